"""A small sidecar, as far as a fleet can see it: stages, requests with credentials, a lease, a withdrawal.

It obeys the protocol: a version is durable before it is `received`; requests begin only before the end of the lease;
`drained` comes when no event of an older version is left and none of its requests goes on. It skips versions that were
replaced before they became active. Its supervisor's lines come in order, each after a delay, as do its own answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import trio

from shipper.fleet.memory import Kept, Memory
from shipper.fleet.records import Version
from shipper.supervise.answers import Stage
from tests.simulation.fleets.transcript import Reached, Received, Transcript, Use

REQUEST = 5.0
"""Seconds of the longest request."""
LINES = 1000
"""Lines in a pipe."""
MOST_QUEUED = 30


@dataclass(frozen=True)
class Event:
    """An event in the queue: the version under which it entered, and the credential that it needs."""

    version: Version
    id: str


@dataclass
class Directory:
    """A state directory: of the membership, the agent and the sidecar."""

    memory: Memory | None = None
    kept: Kept | None = None
    sent: tuple[Version, tuple[str, ...]] | None = None
    """The newest version that the agent has made durable for its sidecar, with its pins."""
    ledger: frozenset[str] = frozenset()
    stages: dict[Stage, tuple[Version, tuple[str, ...]]] = field(default_factory=dict)
    queue: tuple[Event, ...] = ()

    def copy(self) -> Directory:
        return replace(self, stages=dict(self.stages))


class Sidecar:
    """One process; `run` it in the machine's nursery."""

    def __init__(
        self,
        machine: str,
        directory: Directory,
        transcript: Transcript,
        random: Random,
        clock: Callable[[], float],
        running: Callable[[], Any],
        answer: Callable[..., None],
        *,
        leased: bool,
        refuses: Callable[[], bool],
        pace: float,
        idle: bool = False,
    ) -> None:
        self.machine, self.directory, self.transcript = machine, directory, transcript
        self._random, self._clock, self._running, self._answer = random, clock, running, answer
        self._refuses, self._pace, self._idle = refuses, pace, idle
        self._until = -math.inf if leased else math.inf
        self._held: set[str] = set()
        self._lost: set[str] = set()
        self._sending: list[tuple[Event, Use]] = []
        self._lines, self._pipe = trio.open_memory_channel[tuple[Any, ...]](LINES)
        self._turned = trio.Event()

    def write(self, *line: Any) -> None:
        """Writes a line into the pipe of this sidecar."""
        self._lines.send_nowait(line)

    @property
    def in_use(self) -> frozenset[str]:
        """The ids that events or versions need."""
        stages = self.directory.stages
        versions = (stages[stage][1] for stage in ("received", "active") if stage in stages)
        events = {event.id for event in self.directory.queue} | {event.id for event, _ in self._sending}
        return frozenset(events).union(*versions)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._progress)
                if not self._idle:
                    nursery.start_soon(self._send)
                    nursery.start_soon(self._enter)
        finally:
            now = trio.current_time()
            for _, use in self._sending:
                use.end = now

    async def _pause(self, most: float) -> None:
        await trio.sleep(self._random.uniform(0.0, most))

    def _turn(self) -> None:
        self._turned.set()
        self._turned = trio.Event()

    # lines of the supervisor

    async def _read(self) -> None:
        async for kind, *arguments in self._pipe:
            await self._pause(0.3)
            await self._running()
            if kind == "lease":
                self._until = math.inf if arguments[0] is None else arguments[0]
            elif kind == "withdraw":
                self._withdraw(*arguments)
            else:
                self._receive(*arguments)
            self._turn()

    def _withdraw(self, ids: Sequence[str]) -> None:
        """Loses credentials; the events that need one are held."""
        self._held -= set(ids)
        self._lost |= set(ids)
        self._rebind()

    def _rebind(self) -> None:
        """Binds held events to the active credential of the same name; a person gives up those for which there is
        none."""
        active = self.directory.stages.get("active")
        names = {id.rpartition("-")[0]: id for id in (active[1] if active else ()) if id not in self._lost}
        if not self._lost or (active and self._lost & set(active[1])):
            return
        found = ((event, names.get(event.id.rpartition("-")[0])) for event in self.directory.queue)
        moved = [(event, event.id if event.id not in self._lost else id) for event, id in found]
        self.directory.queue = tuple(replace(event, id=id) for event, id in moved if id is not None)
        self._answer("released", None, self.in_use)

    def _receive(self, version: Version, pins: tuple[str, ...], content: str, supplied: frozenset[str]) -> None:
        self._held |= supplied
        self._lost -= set(pins)
        known = self.directory.stages.get("received")
        if known is not None and known[0] == version:
            for stage, (each, _) in self.directory.stages.items():
                self._answer(stage, each, self.in_use)
            return
        self.transcript.received.append(Received(trio.current_time(), self.machine, version, content))
        if self._refuses():
            self._answer("refused", version, self.in_use)
            return
        self._reach("received", version, pins)

    def _reach(self, stage: Stage, version: Version, pins: tuple[str, ...]) -> None:
        self.directory.stages[stage] = version, pins
        self.transcript.reached.append(Reached(trio.current_time(), self.machine, stage, version))
        self._answer(stage, version, self.in_use)
        if stage == "active":
            self._rebind()

    # what it does by itself

    async def _progress(self) -> None:
        while True:
            stages = self.directory.stages
            received, active, drained = (stages.get(stage) for stage in ("received", "active", "drained"))
            if received is not None and received != active:
                await self._pause(self._pace)
                await self._running()
                if stages["received"] == received:
                    self._reach("active", *received)
            elif active is not None and active != drained and not self._is_behind(active[0]):
                self._reach("drained", *active)
            else:
                await self._turned.wait()

    def _is_behind(self, version: Version) -> bool:
        events = (*self.directory.queue, *(event for event, _ in self._sending))
        return any(event.version != version for event in events)

    async def _enter(self) -> None:
        while True:
            await trio.sleep(self._random.uniform(0.5, 3.0) * self._pace)
            await self._running()
            active = self.directory.stages.get("active")
            if active is not None and active[1] and len(self.directory.queue) < MOST_QUEUED:
                self.directory.queue += (Event(active[0], self._random.choice(active[1])),)

    async def _send(self) -> None:
        while True:
            await trio.sleep(self._random.uniform(0.1, 1.0) * self._pace)
            await self._running()
            event = next((event for event in self.directory.queue if event.id in self._held), None)
            if event is None or self._clock() >= self._until:
                continue
            use = Use(trio.current_time(), self.machine, event.id)
            self.transcript.uses.append(use)
            self._sending.append((event, use))
            await trio.sleep(min(REQUEST, self._random.expovariate(3.0)))
            use.end = trio.current_time()
            self._sending.remove((event, use))
            queue = list(self.directory.queue)
            if event in queue:
                queue.remove(event)
                self.directory.queue = tuple(queue)
            if event.id not in self.in_use:
                self._answer("released", None, self.in_use)
            self._turn()
