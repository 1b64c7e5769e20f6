"""The `generate` input: makes numbered messages, to try out a policy and to measure it.

    inputs: {load: {type: generate, rate: 1000, count: 60000, bytes: 200}}

Message n is always the same text, and the position is the number of the next one: so after a restart the input
continues where the stored events end, and a reader of the destination can find missing or repeated numbers.

With a `rate`, a batch has the messages that are due since the last one, at most every 10 ms. Time spent waiting for
room counts: the input catches up afterwards, like a producer with its own clock. Without a rate, batches follow each
other as fast as they are stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar

import msgspec
import trio

from shipper.plugin import Batch, Credential, Input, InputContext, Source

_POSITION = "next"
_MOST_EVENTS = 2000
_MOST_BYTES = 1 << 20
_SHORTEST_WAIT = 0.01
_FILLER = b" the quick brown fox jumps over the lazy dog" * 32
_DIGITS = 12


class GenerateInput(Input, frozen=True, kw_only=True):
    """Makes numbered messages."""

    rereads: ClassVar[bool] = True

    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Events per second (default: as fast as they can be stored)."""
    count: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The number of messages, restarts included (default: no limit)."""
    bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 100
    """Length of a message; its number is never cut."""

    def identity(self) -> Any:
        """The end of the sequence: it continues with another rate or length."""
        return self.count

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        """See `Input.open`."""
        yield _Generator(self, context)


class _Generator(Source):
    def __init__(self, settings: GenerateInput, context: InputContext) -> None:
        self._settings = settings
        self._context = context
        self._next = 0
        self._changed = trio.Event()

    def change(self, settings: GenerateInput, credentials: Mapping[str, Credential]) -> None:
        """See `Source.change`."""
        self._settings = settings
        self._changed.set()

    async def run(self) -> None:
        """See `Source.run`; returns when `count` messages are stored."""
        self._next = int(await self._context.position(_POSITION) or b"0")
        while not self._ended():
            self._changed = trio.Event()
            await self._run_with(self._settings)

    async def _run_with(self, settings: GenerateInput) -> None:
        """Emits until the end, or until the settings change; restarts the clock."""
        start, first = trio.current_time(), self._next
        while not self._ended() and not self._changed.is_set():
            if settings.rate is None:
                await self._emit(settings, _MOST_EVENTS)
                continue
            due = settings.rate * (trio.current_time() - start) - (self._next - first)
            if due >= 1:
                await self._emit(settings, int(due))
                continue
            with trio.move_on_after(max((1 - due) / settings.rate, _SHORTEST_WAIT)):
                await self._changed.wait()

    async def _emit(self, settings: GenerateInput, due: int) -> None:
        left = due if settings.count is None else min(due, settings.count - self._next)
        count = min(left, _MOST_EVENTS, max(1, _MOST_BYTES // settings.bytes))
        batch = _batch(settings, self._next, count)
        await self._context.emit(batch, positions={_POSITION: b"%d" % (self._next + count)})
        self._next += count

    def _ended(self) -> bool:
        return self._settings.count is not None and self._next >= self._settings.count


def _batch(settings: GenerateInput, first: int, count: int) -> Batch:
    digits = min(_DIGITS, settings.bytes)
    filler = (_FILLER * (settings.bytes // len(_FILLER) + 1))[: settings.bytes - digits] + b"\n"
    text = b"".join([b"%0*d%b" % (digits, n, filler) for n in range(first, first + count)])
    shared = {"event": {"dataset": settings.data_stream.dataset}}
    return Batch.lines(text, offset=first * (settings.bytes + 1), shared=shared)
