"""Watches of people: a bounded sample of the events that pass a point, in JSON, a line each.

    {"watching":"outputs.main"}
    {"event":{"message":"…"}}                                      as soon as it passes
    {"end":{"why":"limit","shown":20,"passed":48211,"left_out":0}}

Events go to the peer alone: neither to the supervisor, whose pipe carries acknowledgements, nor into the log, which
says only that somebody watches. Secrets that this process knows are hidden in them.

A watch is bounded by its events, by its time, which is that of a peer that does not read too, and by the memory of a
`Tap`. `why` is `limit`, `time`, or `reader` where the peer has closed its side. `left_out` events were larger than
LARGEST_EVENT. A peer that has not read in time gets no end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec
import orjson
import trio

from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.intake.intake import Intake
from shipper.pipeline.tap import LARGEST_EVENT, Tap, Taps, shown
from shipper.process import log
from shipper.process.environment import Environment
from shipper.sdk.event import Batch

MOST_EVENTS = 10_000
MOST_SECONDS = 3600.0
AT_ONCE = 8
"""Watches at a time."""
_SECONDS = 5.0
_PARSED_AT_ONCE = 50

_log = log.get(__name__)

Why: TypeAlias = Literal["limit", "time", "reader"]


class Watch(msgspec.Struct, frozen=True, tag_field="ask", tag="watch"):
    """Asks for a sample of the events that pass a point; `rate` is how many of them at most in a second."""

    point: str
    limit: int = 20
    seconds: float = 60.0
    rate: float = 20.0


def points(intake: Intake, delivery: Delivery) -> list[str]:
    """Returns the names of all points that events pass now."""
    inputs = intake.running.items()
    found = [f"inputs.{name}" for name, _ in inputs]
    found += [f"inputs.{name}.processors.{n}" for name, r in inputs for n in range(len(r.plan.processors))]
    branches = {output: len(those) for _, r in inputs for output, those in r.plan.branches.items()}
    found += [f"outputs.{name}.processors.{n}" for name, count in sorted(branches.items()) for n in range(count)]
    return found + sorted({f"outputs.{lane.key.output}" for lane in delivery.lanes.values()})


def no_such_point(points: list[str]) -> str:
    return f"no such point; there are: {', '.join(points) or 'none'}"


class _Watched(msgspec.Struct):
    """What became of one watch."""

    why: Why = "time"
    shown: int = 0
    left_out: int = 0
    rest: bytes = b""
    """What is still to be sent of the line that was begun: nothing else can follow it."""


class Tapping:
    """The taps that people have open."""

    def __init__(self, taps: Taps, points: Callable[[], list[str]], environment: Environment) -> None:
        self.points = points
        """Returns the points that there are."""
        self._taps, self._environment = taps, environment
        self._watches, self._thread = 0, trio.CapacityLimiter(1)

    async def watch(self, stream: trio.SocketStream, watch: Watch) -> None:
        """Shows events to the peer until the watch ends. Raises BrokenResourceError."""
        if reason := self._refusal(watch):
            await _say(stream, {"refused": reason})
        else:
            await self._watch(stream, watch)

    def _refusal(self, watch: Watch) -> str | None:
        if not (1 <= watch.limit <= MOST_EVENTS and 0 < watch.seconds <= MOST_SECONDS and watch.rate > 0):
            return f"limit is 1 to {MOST_EVENTS}, seconds up to {MOST_SECONDS:g}, rate above 0"
        if watch.point not in (known := self.points()):
            return no_such_point(known)
        return f"{AT_ONCE} taps are open; close one first" if self._watches >= AT_ONCE else None

    async def _watch(self, stream: trio.SocketStream, watch: Watch) -> None:
        _log.info("events are shown to a tap", point=watch.point, limit=watch.limit, seconds=watch.seconds)
        self._watches += 1
        found = _Watched()
        try:
            with self._taps.opened(watch.point, limit=watch.limit, rate=watch.rate) as tap:
                with trio.move_on_after(watch.seconds):
                    await _say(stream, {"watching": watch.point})
                    await self._until_reader_leaves(stream, tap, watch, found)
            with trio.move_on_after(_SECONDS):  # a reader that leaves reads on, to the end
                await _send_rest(stream, found)
            left_out = found.left_out + tap.too_large
            end = {"why": found.why, "shown": found.shown, "passed": tap.passed, "left_out": left_out}
            if not found.rest:
                await _say(stream, {"end": end})
        finally:
            self._watches -= 1
            _log.info("a tap has ended", point=watch.point, shown=found.shown, passed=tap.passed)

    async def _until_reader_leaves(self, stream: trio.SocketStream, tap: Tap, watch: Watch, found: _Watched) -> None:
        async with trio.open_nursery() as nursery:

            async def heed_end() -> None:
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some(4096):
                        pass
                found.why = "reader"
                nursery.cancel_scope.cancel("the reader has left")

            nursery.start_soon(heed_end)
            with suppress(trio.BrokenResourceError):
                await self._show(stream, tap, watch, found)
            nursery.cancel_scope.cancel("the watch is over")

    async def _show(self, stream: trio.SocketStream, tap: Tap, watch: Watch, found: _Watched) -> None:
        while found.shown + found.left_out < watch.limit:
            piece, count = await tap.take()
            for first in range(0, count, _PARSED_AT_ONCE):
                places = range(first, min(count, first + _PARSED_AT_ONCE))
                lines = await self._environment.in_thread(_lines, piece, places, limiter=self._thread)
                for line in lines:
                    if line is None:
                        found.left_out += 1
                    else:
                        found.rest = line
                        await _send_rest(stream, found)
        found.why = "limit"


def _lines(piece: Batch, places: range) -> list[bytes | None]:
    """Returns events as lines of the answer, without secrets; None for one that is too large."""
    return list(map(_line, shown(piece, places)))


def _line(event: dict[str, Any]) -> bytes | None:
    raw = orjson.dumps(event)
    return None if len(raw) > LARGEST_EVENT else b'{"event":%b}\n' % log.redacted(raw.decode()).encode()


async def _send_rest(stream: trio.SocketStream, found: _Watched) -> None:
    """Sends the rest of an event's line. Raises BrokenResourceError; when cancelled, it can be called again."""
    while found.rest:
        try:
            sent = await stream.socket.send(found.rest)
        except OSError:
            raise trio.BrokenResourceError from None
        found.rest = found.rest[sent:]
        found.shown += not found.rest


async def _say(stream: trio.SocketStream, answer: dict[str, Any]) -> None:
    """Says it to a peer that reads."""
    with trio.move_on_after(_SECONDS):
        await stream.send_all(orjson.dumps(answer) + b"\n")
