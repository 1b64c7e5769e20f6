"""All lanes: which run, and which a revision takes over or retires.

Opening a lane contacts nobody, so a dead destination never keeps a revision from becoming active. Retired lanes drain
beside the active ones with their own credential and connections, a few at a time (`slots`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping

import trio

from shipper import log, memory
from shipper.aio import Asyncio
from shipper.errors import ShipperError, StartFailed
from shipper.keyring import Keyring
from shipper.lane import Lane
from shipper.loans import Lender
from shipper.plugin import Output
from shipper.policy import restore_output
from shipper.recent import Recent
from shipper.registry import Registry
from shipper.slots import Slots
from shipper.spool.revisions import LaneKey, LaneRow
from shipper.spool.spool import Spool
from shipper.tap import Taps

_log = log.get(__name__)

WATCH_SECONDS = 1.0
"""How often the lanes look at the clock."""


class Delivery:
    """The lanes of this process, by id; they live in `nursery`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        spool: Spool,
        keyring: Keyring,
        aio: Asyncio,
        registry: Registry,
        taps: Taps,
        on_change: Callable[[], None],
        on_barrier: Callable[[], None],
    ) -> None:
        self.lanes: dict[int, Lane] = {}
        self._unreadable: dict[int, tuple[str, str]] = {}
        self._nursery = nursery
        self._spool, self._keyring, self._aio, self._registry = spool, keyring, aio, registry
        self._on_change, self._on_barrier = on_change, on_barrier
        self._slots = Slots()
        self._lender = Lender(careful=spool.was_killed)
        self._recent = Recent()
        self._taps = taps
        self._past: Counter[tuple[str, str]] = Counter()
        spool.on_damage(self._look_anew)
        nursery.start_soon(self._watch)

    @property
    def unreadable(self) -> dict[str, str]:
        """Outputs with a lane that cannot be opened (its plugin is gone), with the reason; its events are held."""
        return dict(self._unreadable.values())

    async def restore(self, rows: Iterable[LaneRow]) -> None:
        """Open the lanes that the spool knows, as they were; one that cannot be opened holds its events."""
        for row in rows:
            try:
                if row.settings is None:
                    raise StartFailed("its stored settings are damaged")
                output = restore_output(row.key.type, row.settings, self._registry)
            except ShipperError as error:
                self._unreadable[row.id] = row.key.output, f"cannot be opened again: {error}"
                _log.error("a lane cannot be opened", output=row.key.output, error=str(error))
                await self.settle_unopened(row.id)
            else:
                self._open(row, output)

    async def settle_unopened(self, lane: int) -> None:
        """Settle the barriers that a lane which nobody can open has reached; it may be gone then."""
        await self._spool.settle_reached(lane)
        if lane not in {row.id for row in await self._spool.lanes()}:
            self._unreadable.pop(lane, None)

    def take_over(self, rows: Iterable[LaneRow], outputs: Mapping[str, Output], retired: Iterable[int]) -> None:
        """After a cut: the lanes of the active revision, with its settings, and those that it retired."""
        for row in rows:  # first: they give back slots that the others need
            output = outputs[row.key.output]
            if row.id in self.lanes:
                self.lanes[row.id].adopt(output, active=True)
            else:
                self._open(row, output)
        for id in retired:
            if id in self.lanes:
                self.lanes[id].adopt(self.lanes[id].output, active=False)

    def ensure(self, row: LaneRow, output: Output) -> None:
        """Open a lane if it is not open."""
        if row.id not in self.lanes:
            self._open(row, output)

    def _open(self, row: LaneRow, output: Output) -> None:
        lane = Lane(
            row,
            output,
            spool=self._spool,
            keyring=self._keyring,
            aio=self._aio,
            slots=self._slots,
            lender=self._lender,
            recent=self._recent,
            taps=self._taps,
            on_change=self._on_change,
            on_barrier=self._on_barrier,
            on_success=self._hasten_others,
        )
        self.lanes[row.id] = lane
        self._unreadable.pop(row.id, None)
        self._nursery.start_soon(self._run, lane, name=f"lane {lane.id} of output {row.key.output}")

    async def _run(self, lane: Lane) -> None:
        await lane.run()
        del self.lanes[lane.id]
        memory.give_back()
        self._past.update({(lane.key.output, name): count for name, count in lane.counters.items()})
        self._spool.made_room()
        self._on_change()

    def _hasten_others(self, key: LaneKey) -> None:
        """After an outage the lanes of a destination need not find out each by itself that it is over."""
        for lane in self.lanes.values():
            if lane.key.credential != key.credential and lane.key._replace(credential=key.credential) == key:
                lane.hasten()

    async def _watch(self) -> None:
        while True:
            await trio.sleep(WATCH_SECONDS)
            holding = self._spool.figures.lanes()
            for lane in self.lanes.values():
                lane.watch(holds_events=lane.id in holding)

    def hurry(self) -> None:
        """The process stops: nothing waits to be sent with more."""
        for lane in self.lanes.values():
            lane.hurry()

    def needed(self) -> set[str]:
        """The credentials that queued events need."""
        return {
            lane.key.credential
            for lane in self.lanes.values()
            if lane.key.credential is not None and self._spool.figures.of_lanes([lane.id]).events
        }

    def supplied(self, credentials: Container[str]) -> None:
        """Secrets have arrived: the lanes that use them try at once."""
        for lane in self.lanes.values():
            if lane.key.credential is not None and lane.key.credential in credentials:
                lane.poke()

    def _look_anew(self) -> None:
        for lane in self.lanes.values():
            lane.look(anew=True)

    def count(self, lane: int, name: str, count: int) -> None:
        """Count for a lane what an order did to it, whether it could be opened or not."""
        if count:
            output = self.lanes[lane].key.output if lane in self.lanes else self._unreadable.get(lane, ("", ""))[0]
            self._past[output, name] += count

    def counters(self) -> dict[str, dict[str, int]]:
        """By output: events delivered, duplicate, dead_letter, damaged since the process started, and retries."""
        sums: dict[str, Counter[str]] = {}
        for (output, name), count in self._past.items():
            sums.setdefault(output, Counter())[name] += count
        for lane in self.lanes.values():
            sums.setdefault(lane.key.output, Counter()).update(lane.counters)
        return {output: dict(counter) for output, counter in sums.items()}
