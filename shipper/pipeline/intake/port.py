"""The `InputContext` of the plugin contract: the shipper as one running input sees it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
import trio
from outcome import Outcome, Value

from shipper.pipeline import door
from shipper.pipeline.intake.entrance import Entrance, Ready, Route, most_inline, prepared
from shipper.pipeline.intake.gathering import Ended, Gathering, together
from shipper.pipeline.intake.listeners import Listeners
from shipper.pipeline.intake.stages import Emission, Group, Made, Stages
from shipper.plugin import Credential
from shipper.policy.policy import InputSpec
from shipper.process import log
from shipper.sdk.aio import Asyncio
from shipper.sdk.codes import Code, checked
from shipper.sdk.endpoints import Endpoint
from shipper.sdk.errors import Backpressure, PluginFault, forget_frames
from shipper.sdk.event import Batch
from shipper.sdk.meters import Meters
from shipper.sdk.state import Change, Kept, Mark, Quota, Version
from shipper.sdk.tallies import Taken
from shipper.spool.awaited import Awaited

CHUNK_BYTES = 4 << 10, 1 << 20
CHUNKS = 16
"""At least so many chunks fill a queue. What does not fit waits as a whole: a chunk as large as the queue left it
almost empty, and called it full."""


class Told(Protocol):
    """A running input, as its port tells it what has happened."""

    def read_again(self) -> None:
        """What it has emitted was not stored: the source is closed, and opened again."""

    def answered(self, keys: Sequence[str]) -> None:
        """Batches have all their answers."""

    def adopted(self, owners: Collection[str]) -> None:
        """Keys of these owners were taken from a destination."""


class InputCounts(msgspec.Struct, frozen=True):
    """What is counted for an input over all revisions; `turn_away` is called with closed connections."""

    taken: Taken
    meters: Meters
    turn_away: Callable[[int], None]


class _Faults:
    """Names the faults of a block; each small batch passes three such blocks, of which a generator would make much."""

    __slots__ = ("_port",)

    def __init__(self, port: Port) -> None:
        self._port = port

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, traceback: object) -> None:
        if isinstance(fault, PluginFault):
            raise self._port.name_fault(fault) from None


class Port:
    """See `InputContext`."""

    def __init__(
        self,
        spec: InputSpec,
        credentials: Mapping[str, Credential],
        *,
        entrance: Entrance,
        listeners: Listeners,
        aio: Asyncio,
        counts: InputCounts,
    ) -> None:
        self.name, self._spec = spec.name, spec
        self.credentials = credentials
        self.stages = Stages(self, entrance.environment.monotonic, rereads=spec.config.rereads)
        self.input: Told
        """Set before the source is opened."""
        self.aio = aio
        self.problem: str | None = None
        self.fault: str | None = None
        """Why the last batch could not be stored, until one can be; also if the input goes on without a word."""
        self.code: str = Code.OK
        """The code of the problem."""
        self.is_complete = False
        """Whether it says that it has read all its keys."""
        self.on_complete: Callable[[], None] = lambda: None
        self.waiting = 0
        self.storing = 0
        self._counts, self.meters = counts, counts.meters
        self._entrance, self._listeners = entrance, listeners
        self._gathering = Gathering(self)
        self._route: Route | None = None
        self._switched = trio.Event()

    def switch(self, route: Route) -> None:
        """From now on events belong to this route, also those that wait for room."""
        self._route = route
        self._switched.set()
        self._switched = trio.Event()

    async def emit(
        self,
        *batches: Batch,
        positions: Mapping[str, bytes | None] | None = None,
        wait: bool = True,
        expect: Mapping[str, bytes | None] | None = None,
        awaited: Sequence[str | None] = (),
        forgotten: Collection[str] = (),
    ) -> None:
        arrived = self._entrance.now()
        with self._faults():
            door.check_types(batches, positions or {}, expect or {}, relays=self._spec.config.relays)
            door.check_awaited(batches, awaited)
        rows = [_awaited(key, batch) for key, batch in zip(awaited, batches, strict=False)]
        is_alone = not (wait or positions or expect or awaited or forgotten)
        while True:
            route, switched = self._route, self._switched
            if route is None:
                if not wait:
                    raise Backpressure("no revision takes events from this input yet")
                await switched.wait()
                continue
            if route.chain.stages and (rows or forgotten):  # a newer revision came in between
                raise Backpressure("what processors hold cannot be awaited")
            if route.chain.stages:
                with self._faults():
                    if await self.stages.emit(Emission(batches, arrived, positions or {}, wait, expect or {})):
                        return
                continue
            if not self.stages.is_idle:
                await self.stages.free()
                continue
            if is_alone and (emission := self._small(batches, arrived, route)) is not None:
                if await self._gathering.enter(emission):
                    return
                if self._route is route:
                    await switched.wait()
                continue
            with self._faults():
                ready, failures = await self._entrance.process(route, self.name, batches, arrived)
            if await self._entrance.enter(
                self,
                route,
                ready,
                positions or {},
                wait=wait,
                expect=expect or {},
                awaited=rows,
                forgotten=forgotten,
            ):
                self._answer_dropped(route, ready, awaited)
                self._count(
                    sum(batch.count for batch in batches), sum(len(batch.body) for batch in batches), ready, failures
                )
                return
            if self._route is route:
                await switched.wait()

    def _small(self, batches: Sequence[Batch], arrived: datetime, route: Route) -> Emission | None:
        """Returns the emission of checked batches; None if it must be worked on by itself."""
        emission = Emission(batches, arrived, {}, wait=False)
        if emission.size > most_inline(route):
            return None
        with self._faults():
            for batch in batches:
                door.check(batch)
        return emission

    @property
    def most_gathered(self) -> int:
        """See `gathering.Owner`."""
        return 0 if self._route is None else most_inline(self._route)

    def begin(self, group: Sequence[Emission], ended: Ended) -> bool:
        """See `gathering.Owner`."""
        route = self._route
        if route is None or route.chain.stages or most_inline(route) < 0:
            return False
        ready, failures = list[Made](), 0
        with self._faults():
            for arrived, batches in together(group):
                made, failed = prepared(route, self.name, batches, arrived, self._entrance.taps)
                ready += made
                failures += failed

        def stored(end: Outcome[object]) -> None:
            if isinstance(end, Value):
                events, size = sum([one.events for one in group]), sum([one.size for one in group])
                self._count(events, size, ready, failures)
            ended(end)

        self._entrance.enter_soon(self, route, ready, stored)
        return True

    def _answer_dropped(self, route: Route, ready: Ready, awaited: Sequence[str | None]) -> None:
        """Tells the source of batches that go nowhere, as processors dropped all their events."""
        left = {made.packed.source for made in ready if route.lanes_of(made)}
        if gone := [key for number, key in enumerate(awaited) if key is not None and number not in left]:
            self.input.answered(gone)

    async def answers(self, keys: Collection[str]) -> Mapping[str, bytes | None]:
        return await self._entrance.spool.queue.answers(self.source, keys)

    async def keep(
        self,
        changes: Sequence[Change],
        positions: Mapping[str, bytes | None] | None = None,
        expect: Mapping[str, bytes | None] | None = None,
        *,
        wait: bool = True,
        quota: Quota | None = None,
        awaited: bool = False,
    ) -> tuple[Kept, ...]:
        with self._faults():
            door.check_changes(changes, positions or {}, expect or {})
        while True:
            route, switched = self._route, self._switched
            if route is not None:
                kept = await self._entrance.keep(
                    self, route, changes, positions or {}, expect or {}, wait=wait, quota=quota, awaited=awaited
                )
                if kept is not None:
                    self._count_kept(changes, kept)
                    return kept
            elif not wait:
                raise Backpressure("no revision takes keyed state from this input yet")
            if self._route is route:
                await switched.wait()

    async def marks(self, owner: str) -> list[Mark]:
        return await self._entrance.spool.state.marks_of_owner(owner)

    async def versions(self, keys: Sequence[tuple[str, int]]) -> list[Version]:
        return await self._entrance.spool.state.versions(keys)

    async def documents(self, keys: Sequence[tuple[str, int]], most: int) -> tuple[list[tuple[Version, bytes]], int]:
        return await self._entrance.spool.state.documents(keys, most)

    def complete(self, is_complete: bool) -> None:
        is_new, self.is_complete = is_complete and not self.is_complete, is_complete
        if is_new:
            self.on_complete()

    def adopted(self, owners: Collection[str]) -> None:
        """See `sources.Reading`."""
        self.input.adopted(owners)

    # -- the owner of its stages ---------------------------------------------------------------------------------------

    def read_again(self) -> None:
        """See `stages.Owner`."""
        self.input.read_again()

    async def process(self, emission: Emission) -> tuple[Ready, int]:
        """See `stages.Owner`."""
        return await self._entrance.process(self._there(), self.name, emission.batches, emission.arrived)

    async def flush(self) -> tuple[Ready, int]:
        """See `stages.Owner`."""
        return await self._entrance.flush(self._there())

    async def store(self, group: Group) -> bool:
        """See `stages.Owner`."""
        there, expect = self._there(), group.expect
        return await self._entrance.enter(self, there, group.made, group.positions, wait=group.wait, expect=expect)

    def stored(self, group: Group) -> None:
        """See `stages.Owner`."""
        self._count(group.events, group.bytes, group.made, group.failures)

    def stage_failed(self) -> None:
        """See `stages.Owner`."""
        self.show()

    def show(self) -> None:
        """Shows what has changed."""
        self._entrance.on_change()

    def _there(self) -> Route:
        assert self._route is not None, "stages are asked for nothing before there is a route"
        return self._route

    def _faults(self) -> _Faults:
        """Shows a fault of the input's batches, with its name."""
        return _Faults(self)

    def name_fault(self, fault: PluginFault) -> PluginFault:
        """Shows a fault; returns it with the name of the input."""
        forget_frames(fault)
        text = log.redacted(f"input {self.name} ({self._spec.type}) emitted what cannot be stored: {fault}")
        self._set_fault(text)
        return PluginFault(text)

    def _set_fault(self, fault: str | None) -> None:
        if fault != self.fault:
            self.fault = fault
            self._entrance.on_change()

    def _count(self, events: int, size: int, ready: Ready, failures: int) -> None:
        taken = self._counts.taken
        taken.events += events
        taken.bytes += size
        taken.filtered += max(0, events - sum(made.packed.events for made in ready))
        taken.failures += failures
        self._set_fault(None)

    def _count_kept(self, changes: Sequence[Change], kept: Sequence[Kept]) -> None:
        new = [change.document or b"" for change, answer in zip(changes, kept, strict=True) if answer.is_new]
        self._counts.taken.events += len(new)
        self._counts.taken.bytes += sum(map(len, new))
        self._set_fault(None)

    @property
    def delivers(self) -> bool:
        return self._route is not None and all(
            lane.link.delivers for lane in (*self._route.lanes.values(), *self._route.state)
        )

    @property
    def is_held(self) -> bool:
        return self.stages.are_any

    @property
    def chunk_bytes(self) -> int:
        return max(CHUNK_BYTES[0], min(self._entrance.max_bytes // CHUNKS, CHUNK_BYTES[1]))

    def no_room(self, size: int = 0) -> str | None:
        if self._route is None:
            return "events are not taken yet"
        return self._entrance.no_room(max(self.chunk_bytes, min(size, self._entrance.max_bytes // 2)))

    async def positions(self, prefix: str = "") -> dict[str, bytes]:
        pending = await self.stages.pending()
        held = {key: position for key, position in pending.items() if key.startswith(prefix)}
        stored = {**await self._entrance.spool.queue.positions(self.source, prefix), **held}
        return {key: position for key, position in stored.items() if position is not None}

    async def position(self, key: str) -> bytes | None:
        pending = await self.stages.pending()
        return pending[key] if key in pending else await self._entrance.spool.queue.position(self.source, key)

    @property
    def source(self) -> str:
        """The name under which its positions are stored."""
        return f"{self._spec.type}/{self.name}"

    def report(self, problem: str | None, *, code: str = Code.INPUT_DEGRADED) -> None:
        code = Code.OK if problem is None else checked(code)
        problem = None if problem is None else log.redacted(problem)
        if (problem, code) != (self.problem, self.code):
            self.problem, self.code = problem, code
            self._entrance.on_change()

    def turned_away(self, peers: int) -> None:
        self._counts.turn_away(peers)

    async def listen(
        self, endpoint: Endpoint, *, mode: int | None = None, receive_buffer: int | None = None
    ) -> socket.socket:
        return await self._listeners.get(self, self.name, endpoint, mode=mode, receive_buffer=receive_buffer)

    def is_switched_from(self, route: Route) -> bool:
        return self._route is not route


def _awaited(key: str | None, batch: Batch) -> Awaited | None:
    return None if key is None else Awaited(key, batch.count, batch.items)
