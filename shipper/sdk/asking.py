"""What an output says when a person asks it before it is needed: `Output.ask` and `Output.set_up`.

A finding is one answer: of one host, or of one place within the destination. It is told as soon as it is known, since
the next question may time out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
import trio

from shipper.sdk.codes import Code
from shipper.sdk.http_answer import NoAnswer, Unreachable

T = TypeVar("T")
PATIENCE_SECONDS = 15.0
"""How long a host has for one answer: a person waits, and other hosts are asked after it."""

Asked = Literal["secret", "address", "tls", "login", "destination", "privilege"]
"""`secret`: whether the credential can be read here; `address`: whether a connection can be made; `tls`: whether its
other end is trusted; `login`: whether the credential is known; `destination`: what is there; `privilege`: whether
events may be written to a place."""
Verdict = Literal["good", "bad", "unknown"]
"""`unknown`: the destination does not tell, and events may still be delivered."""


class Finding(msgspec.Struct, frozen=True):
    """One answer. `of` is a host and its port, or a place such as `logs-nginx.access-prod`.

    `text` says what is there or what is missing, and what helps. It has no secret, no text of an event, and of a
    destination only texts that are known to be harmless.
    """

    asked: Asked
    of: str
    verdict: Verdict
    text: str = ""
    code: str = Code.OK


class Question(msgspec.Struct, frozen=True):
    """What a policy would send: `targets` are places within the destination, as `Output.targets` names them."""

    targets: Sequence[str] = ()
    has_state: bool = False
    """Whether keyed state would be sent too."""
    may_try: bool = False
    """Whether a request may be sent that the destination checks and then must refuse, where it does not tell otherwise
    what the credential may do. It stores no event, and may create an empty index or topic."""


State = Literal["missing", "same", "different", "foreign", "unknown"]
"""`different`: an older form of what this program has written; `foreign`: of somebody else, and never overwritten;
`unknown`: the destination does not tell."""


class Prepared(msgspec.Struct, frozen=True):
    """A thing that a destination should have, such as an index template: its content, and whether it is there.

    `has_written`: it was written now, and is there as shown.
    """

    kind: str
    name: str
    content: Mapping[str, Any]
    state: State
    has_written: bool = False
    text: str = ""
    code: str = Code.OK


Tell: TypeAlias = Callable[[Finding], None]
TellPrepared: TypeAlias = Callable[[Prepared], None]


async def in_time(host: str, request: Callable[[], Awaitable[T]]) -> T:
    """Returns the answer to a request; raises NoAnswer if it does not come within `PATIENCE_SECONDS`."""
    with trio.move_on_after(PATIENCE_SECONDS):
        return await request()
    raise NoAnswer(f"{host}: no answer within {PATIENCE_SECONDS:g}s", "timeout", Code.TIMED_OUT)


def of_no_answer(error: NoAnswer, host: str, *, is_tls: bool) -> list[Finding]:
    """Returns what a request without an answer shows of a host."""
    text = str(error).removeprefix(f"{host}: ")
    if error.failure == "tls":
        return [Finding("address", host, "good"), Finding("tls", host, "bad", text, error.code)]
    if isinstance(error, Unreachable):
        return [Finding("address", host, "bad", text, error.code)]
    return [*reached(host, is_tls=is_tls), Finding("destination", host, "bad", text, error.code)]


def reached(host: str, *, is_tls: bool) -> list[Finding]:
    """Returns what any answer shows of a host."""
    return [Finding("address", host, "good"), *([Finding("tls", host, "good")] if is_tls else [])]
