"""The entrance to the spool: batches pass the processors of their route, wait for room, and become durable.

Room is counted in bytes. Active lanes, together with what retired lanes hold beyond their own limit, stay within the
queue's limit. A batch larger than the limit enters an empty queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Protocol

import msgspec
import trio
from outcome import Outcome, Value

from shipper.pipeline import door
from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.intake.chain import Chain, bounded
from shipper.pipeline.intake.envelope import Envelope
from shipper.pipeline.intake.stages import Made
from shipper.pipeline.tap import Taps
from shipper.plugin import Part
from shipper.process.environment import REAL, Environment
from shipper.sdk.editing import tagged_here
from shipper.sdk.errors import Backpressure
from shipper.sdk.event import Batch
from shipper.sdk.state import Change, Kept, Quota
from shipper.spool import keyed
from shipper.spool.awaited import Awaited
from shipper.spool.queue import Arrival, Entered, NotActive, Packed
from shipper.spool.requeue import Room
from shipper.spool.spool import Spool
from shipper.values import Revision

INLINE_BYTES = 4 << 10
INLINE_PLAIN_BYTES = 32 << 10
"""Bytes of a batch without processors from which on a worker thread prepares it: compressing so many takes 50 µs, a
worker thread and back 100."""
WORKER_THREADS = 2
FULL = "the queue is full"


class Route(msgspec.Struct, frozen=True):
    """The way of an input's events under one revision, and where its keyed state goes."""

    revision: Revision
    chain: Chain
    lanes: Mapping[str, Lane]
    """By output, those of log events."""
    envelope: Envelope
    state: Sequence[Lane] = ()

    def lanes_of(self, made: Made) -> list[Lane]:
        return [lane for name, lane in self.lanes.items() if made.outputs is None or name in made.outputs]


Ready = Sequence[Made]


class Entering(Protocol):
    """A running input, as the entrance knows it."""

    waiting: int
    """Batches that wait for room in the queue."""
    storing: int
    """Batches that are becoming durable."""

    @property
    def source(self) -> str:
        """The name under which its positions are stored."""

    def is_switched_from(self, route: Route) -> bool:
        """Whether its events belong to another route by now."""


class Entrance:
    """The entrance of all inputs of this process. The limits are those of the active revision."""

    def __init__(self, spool: Spool, on_change: Callable[[], None], environment: Environment = REAL) -> None:
        self.spool, self.environment = spool, environment
        self.taps = Taps(environment)
        self.max_bytes = 1 << 30
        self.retired_max_bytes = 1 << 30
        self.lanes: Mapping[int, Lane] = {}
        self._reserved = 0
        self._waiting = 0
        self._threads = trio.CapacityLimiter(WORKER_THREADS)
        self.on_change = on_change

    async def process(self, route: Route, name: str, batches: Sequence[Batch], arrived: datetime) -> tuple[Ready, int]:
        """Returns what the processors make of batches in their envelope, packed, and how often one failed on an event.

        A large batch, or a slow processor, is worked on in a worker thread.
        """
        if sum(len(batch.body) for batch in batches) <= most_inline(route):
            return processed(route, name, batches, arrived, self.taps)
        in_thread = self.environment.in_thread
        return await in_thread(processed, route, name, batches, arrived, self.taps, limiter=self._threads)

    async def flush(self, route: Route) -> tuple[Ready, int]:
        """Returns what the stages of a route hold, packed, and how often a processor failed on an event."""
        return await self.environment.in_thread(flushed, route, self.now(), self.taps, limiter=self._threads)

    def now(self) -> datetime:
        """Returns the wall clock's time."""
        return datetime.fromtimestamp(self.environment.wall(), UTC)

    async def enter(
        self,
        port: Entering,
        route: Route,
        ready: Ready,
        positions: Mapping[str, bytes | None],
        *,
        wait: bool,
        expect: Mapping[str, bytes | None],
        awaited: Sequence[Awaited | None] = (),
        forgotten: Collection[str] = (),
    ) -> bool:
        """Stores batches that were prepared for `route`; returns False if its revision is no longer the active one.

        Raises Outdated, and Backpressure if `wait` is false.
        """
        size = _size(ready)
        if not (ready or positions or expect or awaited or forgotten):
            return True
        if ready and not await self._room(port, route, size, wait=wait):
            return False
        arrived = partial(self._arrived, route, ready, awaited)
        arrival = _arrival(port, route, ready, positions, expect, awaited, forgotten)
        entered: list[Entered] = []
        self._begin(port, size)
        try:
            entered = await self.spool.queue.enter(arrival, arrived, wait=wait)
        except NotActive:
            return False
        finally:
            self._end(port, size, is_stored=bool(entered))
        arrived(entered)
        return True

    def enter_soon(self, port: Entering, route: Route, ready: Ready, ended: Callable[[Outcome[object]], None]) -> None:
        """As `enter` without positions and without `wait`, but returns at once; `ended` gets the result, or the error.

        Raises Backpressure.
        """
        if not ready:
            ended(Value(None))
            return
        size = _size(ready)
        if self._is_too_much(size):
            raise Backpressure(FULL)

        def stored(end: Outcome[list[Entered]]) -> None:
            self._end(port, size, is_stored=isinstance(end, Value))
            if isinstance(end, Value):
                self._arrived(route, ready, (), end.value)
            ended(end)

        self._begin(port, size)
        try:
            self.spool.queue.enter_soon(_arrival(port, route, ready), stored)
        except BaseException:
            self._end(port, size, is_stored=False)
            raise

    def _begin(self, port: Entering, size: int) -> None:
        self._reserved += size
        port.storing += 1
        if self.spool.store.problem is not None:
            self.on_change()

    def _end(self, port: Entering, size: int, *, is_stored: bool) -> None:
        self._reserved -= size
        port.storing -= 1
        if not is_stored:
            self.spool.made_room()

    def _arrived(
        self, route: Route, ready: Ready, awaited: Sequence[Awaited | None], entered: Sequence[Entered]
    ) -> None:
        """Tells lanes of what is durable for them."""
        sources = {number for number, one in enumerate(awaited) if one is not None}
        for made, stored in zip(ready, entered, strict=True):
            placed = made.batch.stored(self.spool.origin, stored.seq)
            is_awaited = made.packed.source in sources
            entry = stored.entry(route.revision, is_awaited=is_awaited)
            for lane in route.lanes_of(made):
                lane.arrived(entry, placed)

    async def keep(
        self,
        port: Entering,
        route: Route,
        changes: Sequence[Change],
        positions: Mapping[str, bytes | None],
        expect: Mapping[str, bytes | None],
        *,
        wait: bool,
        quota: Quota | None,
        awaited: bool,
    ) -> tuple[Kept, ...] | None:
        """Stores versions of keyed state; returns None if the revision of the route is no longer the active one.

        They do not wait for room, as each key has one slot. The `front` of each lane is read now: a slot that was
        handed out before this is stored then holds a version other than the one that was sent, and the answer shows it.
        """
        fronts = {lane.id: lane.front for lane in route.state}
        ids = [lane.id for lane in route.state]
        arrival = keyed.Arrival(route.revision, port.source, ids, changes, positions, expect, fronts, quota, awaited)
        port.storing += 1
        if self.spool.store.problem is not None:
            self.on_change()
        try:
            admitted = await self.spool.state.keep(arrival, self._look, wait=wait)
        except NotActive:
            return None
        finally:
            port.storing -= 1
        self._look(admitted)
        return admitted.kept

    def _look(self, admitted: keyed.Admitted) -> None:
        """Wakes the lanes of what was stored, and counts what it supersedes."""
        superseded = Counter(moved.lane for moved in admitted.moved if moved.gone is not None)
        for id in {moved.lane for moved in admitted.moved} & self.lanes.keys():
            self.lanes[id].link.counters["superseded"] += superseded[id]
            self.lanes[id].look_at_barrier()

    async def _room(self, port: Entering, route: Route, size: int, *, wait: bool) -> bool:
        """Waits for room; returns False if the route was switched meanwhile. Raises Backpressure if `wait` is false."""
        while self._is_too_much(size):
            if not wait:
                raise Backpressure(FULL)
            freed = self.spool.room
            self.spool.store.hurry()
            port.waiting += 1
            self._waiting += 1
            self.on_change()
            try:
                await freed.wait()
            finally:
                port.waiting -= 1
                self._waiting -= 1
            if port.is_switched_from(route):
                return False
        return True

    def _is_too_much(self, size: int) -> bool:
        held = self.used() + self._reserved
        return held > 0 and held + size > self.max_bytes

    def no_room(self, size: int) -> str | None:
        """Returns why so many bytes could not be stored now; None if they could."""
        if self.spool.store.problem is not None:
            return "events cannot be stored now"
        return FULL if self._is_too_much(size) else None

    @contextmanager
    def room(self, most: int, max_bytes: int) -> Iterator[Room]:
        """Returns how many of `most` bytes may enter beside the inputs, within the queue's limit and this one.

        Until the block ends, the inputs count them as used.
        """
        held = self.used() + self._reserved
        size = max(0, min(most, min(self.max_bytes, max_bytes) - held))
        self._reserved += size
        try:
            yield Room(size, is_empty=not held)
        finally:
            self._reserved -= size
            self.spool.made_room()

    def used(self) -> int:
        """Returns the bytes that count against the queue's limit."""
        figures = self.spool.figures
        retired = figures.only_of([id for id, lane in self.lanes.items() if not lane.active]).bytes
        return figures.total().bytes - min(retired, self.retired_max_bytes)

    @property
    def is_full(self) -> bool:
        """Whether an input waits for room."""
        return self._waiting > 0


def most_inline(route: Route) -> int:
    """Returns how many bytes of a route's batches are prepared without a worker thread; -1: none."""
    if route.chain.is_slow:
        return -1
    return INLINE_BYTES if route.chain.has_links else INLINE_PLAIN_BYTES


def _arrival(
    port: Entering,
    route: Route,
    ready: Ready,
    positions: Mapping[str, bytes | None] = MappingProxyType({}),
    expect: Mapping[str, bytes | None] = MappingProxyType({}),
    awaited: Sequence[Awaited | None] = (),
    forgotten: Collection[str] = (),
) -> Arrival:
    lanes = [lane.id for lane in route.lanes.values()]
    batches = [_for_lanes(route, made) for made in ready]
    return Arrival(route.revision, port.source, lanes, batches, positions, expect, awaited, forgotten)


def _size(ready: Ready) -> int:
    return sum([len(made.packed.body) for made in ready])


def _for_lanes(route: Route, made: Made) -> Packed:
    if made.outputs is None:
        return made.packed
    return made.packed._replace(lanes=tuple([lane.id for lane in route.lanes_of(made)]))


def processed(route: Route, name: str, batches: Sequence[Batch], arrived: datetime, taps: Taps) -> tuple[Ready, int]:
    """Returns what `Entrance.process` does; any thread.

    Raises PluginFault for an invalid batch, before any processor sees one of them.
    """
    return prepared(route, name, [door.check(batch) for batch in batches], arrived, taps)


def prepared(route: Route, name: str, batches: Sequence[Batch], arrived: datetime, taps: Taps) -> tuple[Ready, int]:
    """As `processed`, of batches that the door has passed."""
    ready, failures = list[Made](), -tagged_here()
    for number, given in enumerate(batches):
        for batch in bounded(route.envelope.on(given, arrived)):
            taps.offer(f"inputs.{name}", batch)
            ready += _made(route.chain.distinct(route.chain.on(batch, taps)), number)
    return ready, failures + tagged_here()


def flushed(route: Route, moment: datetime, taps: Taps) -> tuple[Ready, int]:
    """Returns what `Entrance.flush` does; any thread."""
    failures = -tagged_here()
    ready = list(_made(route.chain.flush(lambda batch: route.envelope.on(batch, moment), taps)))
    return ready, failures + tagged_here()


def _made(parts: Iterable[Part], source: int = 0) -> Iterator[Made]:
    for part in parts:
        for batch in bounded(part.batch):
            if batch.count:
                packed = Packed(batch.count, batch.pack(), source=source, is_anew=not batch.is_relayed)
                yield Made(batch, packed, part.outputs)
