"""Reads the answers of a principal; a refusal becomes the error that follows from it. No I/O."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from shipper.plugin import Code, Held, Later, Outcome, TooLarge
from shipper.sdk.http_answer import Response, address
from shipper_plugins.elasticsearch.client.bulk import retry_after
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import FrameError

_CODE = re.compile(r"[a-z_]{1,40}")


class Refused(Exception):
    """A part cannot be taken, perhaps because of the others in its request."""

    def __init__(self, outcome: Outcome, reason: str, code: str) -> None:
        super().__init__(reason)
        self.outcome, self.code = outcome, code


class Over(Later):
    """The session of a request has ended."""


class Busy(Later):
    """The other side has no room now."""


def read(response: Response, kind: type[frames.M], host: str) -> frames.M:
    """Returns the message of an answer. Raises Later if it has another form."""
    try:
        return frames.read(response.body, kind)
    except FrameError:
        raise Later(f"{address(host)}: its answer is not that of a relay", code=Code.BAD_ANSWER) from None


def refusal(response: Response, host: str) -> Exception:
    """Returns the error for an answer that is no confirmation."""
    status, code = response.status, code_of(response)
    text = f"{address(host)}: {status} {code}".rstrip()
    if code == "session_over":
        return Over(text)
    if code == "edge_cloned":
        return Held(f"{text}: another live process has the name of this edge there", code=code)
    if code == "identity_conflict":
        return Refused(Outcome.HELD, f"{text}: it has other events under this identity", code)
    if code == frames.FOREIGN:
        text += ": these events are of other shippers: write `relays: true` for this edge in the policy there"
        return Refused(Outcome.HELD, text, code)
    if code == frames.NO_EVENTS:
        return Refused(Outcome.HELD, f"{text}: the principal takes no log events, but keyed state alone", code)
    if code == "part_refused":
        return Refused(Outcome.REJECTED, text, Code.REJECTED)
    if status in (401, 403) or code == "protocol":
        return Held(text)
    if status == 413:
        return TooLarge(text)
    return (Busy if status == 429 else Later)(text, retry_after(response.headers, datetime.now(UTC)))


class _Error(msgspec.Struct):
    code: str = ""


class _Errors(msgspec.Struct):
    error: _Error


def code_of(response: Response) -> str:
    """Returns the code of a refusal; empty if the answer is not from a relay."""
    try:
        code = frames.read(response.body, _Errors).error.code
    except FrameError:
        return ""
    return code if _CODE.fullmatch(code) else ""
