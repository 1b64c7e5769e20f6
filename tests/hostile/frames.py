"""Lines of the control channel that nobody should send, and what must be answered to each.

A frame is drawn from a `random.Random`, so a seed names it. What it deserves is judged twice: by an independent reading
(`is_json`: what is no JSON in UTF-8 must be an `error`), and for the rest by what `shipper.protocol.messages` parses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from shipper.protocol.messages import MAX_LINE_BYTES, Action, Hello, Message, Policy, Stop, parse

WORDS = ("type", "policy", "hello", "stop", "observe", "action", "credentials", "epoch", "revision", "id", "name")
ACTIONS = ("tap", "diagnostics", "dead_letters", "rebind", "forward", "drop", "dead_letter", "explode", "")
NUMBERS = (0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40, 0.5, 1e308)
TEXTS = ("", "x", "\0", "\u202e", "é" * 40, "\ud800", "..", "../../etc/passwd", "x" * 5000, "\x1b[31m", "'; --", "${A}")
OUTPUT = "main: {type: elasticsearch, hosts: ['http://127.0.0.1:1'], credential: c%d}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One line, and the message that it is (None: it deserves an `error`); `kind` is what was drawn."""

    line: bytes
    message: Message | None
    kind: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether no `stop`, which ends the talk, stands here."""
        return not isinstance(self.message, Stop)


def frame(draw: Random, number: int) -> Frame:
    """A frame; `number` is in its ids and revisions, so that its answers are known by it."""
    kind = draw.choice(_DRAWN)
    line = KINDS[kind](draw, number).replace(b"\n", b" ")
    return Frame(line, understood(line), kind)


def understood(line: bytes) -> Message | None:
    """What a line says; raises AssertionError if something is understood that is no JSON."""
    try:
        message = parse(line) if len(line) <= MAX_LINE_BYTES else None
    except ValueError:
        return None
    assert message is None or is_json(line), f"understood, though it is no JSON: {line[:200]!r}"
    return message


def is_json(line: bytes) -> bool:
    """By a reader that is not ours."""
    try:
        json.loads(line.decode(), parse_int=len)
    except ValueError:
        return False
    except RecursionError:
        return True
    return True


# -- kinds -------------------------------------------------------------------------------------------------------------


def value(draw: Random, depth: int = 0) -> Any:
    """Any JSON value."""
    kind = draw.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return draw.choice((None, True, False))
    if kind == 1:
        return draw.choice(NUMBERS)
    if kind in (2, 3, 4):
        return draw.choice((*TEXTS, *WORDS))
    if kind == 5:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {str(draw.choice((*TEXTS, *WORDS))): value(draw, depth + 1) for _ in range(draw.randrange(4))}


def _garbage(draw: Random, number: int) -> bytes:
    return draw.randbytes(draw.choice((0, 1, 3, 40, 2000)))


def _deep(draw: Random, number: int) -> bytes:
    depth = draw.choice((30, 900, 3000, 100_000))
    opened, closed = draw.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
    nested = opened * depth + b"1" + closed * draw.choice((depth, depth - 1, 0))
    return (
        draw.choice((b"%b", b'{"type":"observe","x":%b}', b'{"type":"action","id":"d","name":"x","params":%b}'))
        % nested
    )


def _giant(draw: Random, number: int) -> bytes:
    size = MAX_LINE_BYTES + draw.choice((-40, 0, 1, 70_000)) if draw.random() < 0.02 else 70_000
    return b'{"type":"observe","x":"' + b"x" * (size - 25) + b'"}'


def _observe(draw: Random, number: int) -> bytes:
    return _line({"type": "observe", **dict.fromkeys(draw.sample(TEXTS, 2), 1)})


def _action(draw: Random, number: int) -> bytes:
    params = {draw.choice(("point", "limit", "from", "to", "revision", "output", "export", "list")): value(draw)}
    return _line(
        {"type": "action", "id": f"a{number}", "name": draw.choice(ACTIONS), "params": {**params, "seconds": 0.01}}
    )


def _policy(draw: Random, number: int) -> bytes:
    text = "version: 1\n" + draw.choice(("", f"outputs:\n  {OUTPUT % number}\n", f"log_level: {draw.choice(WORDS)}\n"))
    if draw.random() < 0.5:
        text = mutated(draw, text.encode()).decode("utf-8", "replace")
    carried = {f"c{number}": {"api_key": "i:s"}} if draw.random() < 0.7 else value(draw)
    return _line({"type": "policy", "revision": number, "policy": text, "credentials": carried})


def _credentials(draw: Random, number: int) -> bytes:
    return _line({"type": "credentials", "credentials": value(draw)})


def _hello(draw: Random, number: int) -> bytes:
    return _line({"type": "hello", "protocol": value(draw), "state_keys": value(draw)})


def _any(draw: Random, number: int) -> bytes:
    return _line({"type": draw.choice(WORDS), **{draw.choice(WORDS): value(draw) for _ in range(3)}})


def _mutated(draw: Random, number: int) -> bytes:
    return mutated(draw, draw.choice((_observe, _action, _policy, _credentials, _hello))(draw, number))


KINDS: Mapping[str, Callable[[Random, int], bytes]] = {
    "noise": _garbage,
    "nested": _deep,
    "giant": _giant,
    "observe": _observe,
    "action": _action,
    "policy": _policy,
    "credentials": _credentials,
    "second hello": _hello,
    "any keys": _any,
    "damaged": _mutated,
}
_DRAWN = (*KINDS, *["damaged"] * 5)


def mutated(draw: Random, raw: bytes) -> bytes:
    """The bytes with some of them changed, removed, repeated or cut off."""
    content = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(content) + 1)
        length = draw.choice((1, 1, 2, 8))
        kind = draw.randrange(5)
        if kind == 0:
            content[at : at + length] = draw.randbytes(length)
        elif kind == 1:
            del content[at : at + length]
        elif kind == 2:
            content[at:at] = content[at : at + 20 * length]
        elif kind == 3:
            content[at:at] = draw.choice(
                (b'"', b"{", b"}", b"\\", b"\xff", b"\0", b"9" * 30, b": ", b"\n", b"- ", b"&a ")
            )
        elif draw.random() < 0.2:
            del content[at:]
    return bytes(content)


def _line(message: Any) -> bytes:
    return json.dumps(message).encode()


# -- what is answered --------------------------------------------------------------------------------------------------


def is_error(message: Message | None) -> bool | None:
    """Whether an `error` is the answer; None: it depends on what came before."""
    if message is None or isinstance(message, Hello):
        return True
    return False if isinstance(message, Policy | Action) or type(message).__name__ == "Observe" else None
