"""Taps: a bounded sample of the events that pass one point, for as long as somebody watches it.

    pipeline (any thread) ── offer ──> Tap (a second's worth of events, a mebibyte) ── take ──> a reader

The pipeline never waits for a reader, and does no work for one but to cut a few events off a batch, which is bytes: it
neither parses them nor writes them. A tap keeps at most `rate` events a second: the first ones of each batch that it
takes from. It keeps none while 64 batches or a mebibyte of them wait for the reader; it counts those that it lets pass.
Without a tap an offer costs one look at an empty dictionary.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from shipper.process.environment import REAL, Environment
from shipper.process.signal import Signal
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields

PIECE_BYTES = 16 << 10
"""Of a batch that a tap keeps, or one event. A short line here has all shared fields where it is shown."""
LARGEST_EVENT = 256 << 10
"""In bytes, with its shared fields; to parse a larger one would keep this process from everything else."""
HELD_BYTES = 1 << 20
HELD_PIECES = 64
MOST_A_SECOND = 200.0
"""Events that a tap takes: to parse them, and to search them for secrets, takes time of this process."""


class Tap:
    """What one reader sees of a point. Made by `Taps.opened`."""

    def __init__(self, limit: int, rate: float, environment: Environment) -> None:
        self.passed = 0
        """Events that have passed the point, those that were taken included."""
        self.too_large = 0
        """Events that were not taken for their size."""
        self._left, self._rate, self._room = limit, rate, max(1.0, rate)
        self._clock, self._since = environment.monotonic, environment.monotonic()
        self._held: deque[tuple[Batch, int]] = deque()
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._news, self._to_loop = Signal(), environment.to_loop()

    def offer(self, batch: Batch) -> None:
        """Keeps the first events of a batch, if there is room. Any thread."""
        with self._lock:
            self.passed += batch.count
            count = self._admitted(batch.count)
        if count:
            piece = batch if len(batch.body) <= PIECE_BYTES else next(batch.pieces(PIECE_BYTES))
            self._keep(piece, min(count, piece.together_within(HELD_BYTES)))

    def _admitted(self, count: int) -> int:
        """Returns how many of so many events may be kept now."""
        now = self._clock()
        self._room = min(max(1.0, self._rate), self._room + (now - self._since) * self._rate)
        self._since = now
        return self._fitting(count)

    def _fitting(self, count: int) -> int:
        if self._held_bytes >= HELD_BYTES or len(self._held) >= HELD_PIECES:
            return 0
        return min(count, int(self._room), self._left)

    def _keep(self, piece: Batch, count: int) -> None:
        with self._lock:
            if piece.weight // piece.count > LARGEST_EVENT:
                self.too_large += 1
                return
            if not (count := self._fitting(count)):  # another thread was faster
                return
            self._room -= count
            self._left -= count
            self._held_bytes += _weight(piece, count)
            is_first = not self._held
            self._held.append((piece, count))
        if is_first:
            self._to_loop(self._news.set)

    async def take(self) -> tuple[Batch, int]:
        """Waits for the next batch; returns it, and how many of its events, from the first, belong to the sample."""
        while not self._held:
            await self._news.wait()
        with self._lock:
            piece, count = self._held.popleft()
            self._held_bytes -= _weight(piece, count)
        return piece, count


class Taps:
    """Points are `inputs.NAME`, `inputs.NAME.processors.N` (after the N-th), `outputs.NAME.processors.N` and
    `outputs.NAME`."""

    def __init__(self, environment: Environment = REAL) -> None:
        self._open: dict[str, tuple[Tap, ...]] = {}
        self._environment = environment

    def offer(self, point: str, batch: Batch) -> None:
        """Shows a batch to those that watch a point; costs nothing if nobody does. Any thread."""
        if self._open and batch.count:
            for tap in self._open.get(point, ()):
                tap.offer(batch)

    @contextmanager
    def opened(self, point: str, *, limit: int, rate: float = MOST_A_SECOND) -> Iterator[Tap]:
        """Yields a tap at a point, which takes at most `limit` events, and `rate` of them a second."""
        tap = Tap(limit, min(rate, MOST_A_SECOND), self._environment)
        self._open[point] = (*self._open.get(point, ()), tap)
        try:
            yield tap
        finally:
            if others := tuple(other for other in self._open[point] if other is not tap):
                self._open[point] = others
            else:
                del self._open[point]

    async def collect(self, point: str, limit: int, seconds: float) -> list[Fields]:
        """Returns up to `limit` events that pass within `seconds`."""
        events: list[Fields] = []
        with self.opened(point, limit=limit) as tap, trio.move_on_after(seconds):
            while len(events) < limit:
                piece, count = await tap.take()
                events += shown(piece, range(count))
        return events


def _weight(piece: Batch, count: int) -> int:
    return piece.weight * count // piece.count


def shown(piece: Batch, places: range) -> list[Fields]:
    """Returns the events at these places of a batch, with all their fields, in types of JSON."""
    return (piece if len(places) == piece.count else piece.pick(places)).plain()
