"""All lanes: which of them run, and which a revision takes over or retires.

Opening a lane contacts nobody, so a dead destination never keeps a revision from becoming active. Retired lanes drain
beside the active ones with their own credentials and connections, a few at a time (`slots`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trio

from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.destination.confirmed import weakest
from shipper.pipeline.destination.pool import Means, Pool
from shipper.pipeline.memory.loans import Lender
from shipper.pipeline.memory.recent import Recent
from shipper.pipeline.memory.slots import Slots
from shipper.plugin import Output
from shipper.policy.policy import restore_output
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.ticks import tick
from shipper.sdk.codes import Code, Why
from shipper.sdk.errors import ShipperError, StartFailed
from shipper.sdk.peers import Confirms
from shipper.spool.revisions import LaneRow

_log = log.get(__name__)

WATCH_SECONDS = 1.0
"""Seconds between two looks of the lanes at the clock."""


class Delivery:
    """The lanes of this process, by id; they live in `nursery`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        means: Means,
        registry: Registry,
        on_change: Callable[[], None],
        on_barrier: Callable[[], None],
    ) -> None:
        self.barrier_settled = on_barrier
        self.lanes: dict[int, Lane] = {}
        self.pool = Pool(means, on_change)
        self.slots = Slots()
        self.lender = Lender(careful=means.spool.store.directory.was_killed)
        self.recent = Recent()
        self._unreadable: dict[int, tuple[str, Why]] = {}
        self._spool, self._registry, self._nursery = means.spool, registry, nursery
        means.spool.on_damage(self._look_anew)
        means.spool.letters.on_freed(self._tell_of_room)
        nursery.start_soon(self._watch)
        nursery.start_soon(self.pool.watch_lease)

    @property
    def unreadable(self) -> dict[str, Why]:
        """By output whose lane cannot be opened (its plugin is gone): the reason. Its events are held."""
        return dict(self._unreadable.values())

    @property
    def closed(self) -> frozenset[int]:
        """Their lanes."""
        return frozenset(self._unreadable)

    def output_of(self, lane: int) -> str:
        """Returns the output of a lane, also of one that could not be opened; "" for an unknown lane."""
        if lane in self.lanes:
            return self.lanes[lane].key.output
        return self._unreadable[lane][0] if lane in self._unreadable else ""

    async def restore(self, rows: Iterable[LaneRow]) -> None:
        """Opens the lanes of the spool as they were; the events of one that cannot be opened are held."""
        for row in rows:
            try:
                if row.settings is None:
                    raise StartFailed("its stored settings are damaged", code=Code.DAMAGED)
                output = restore_output(row.key.type, row.settings.values, self._registry)
            except ShipperError as error:
                why = Why(log.redacted(f"cannot be opened again: {error}"), error.code)
                self._unreadable[row.id] = row.key.output, why
                _log.error("a lane cannot be opened", output=row.key.output, error=str(error))
                await self.settle_unopened(row.id)
            else:
                self._open(row, output)

    async def settle_unopened(self, lane: int) -> None:
        """Settles the barriers that a lane which cannot be opened has reached; the lane may be gone then."""
        if await self._spool.drains.settle_reached(lane):
            self._unreadable.pop(lane, None)

    def take_over(self, rows: Iterable[LaneRow], outputs: Mapping[str, Output], retired: Iterable[int]) -> None:
        """Takes over the lanes of the active revision after a cut, with its settings, and retires the others."""
        for row in rows:  # first: they give back slots that the others need
            output = outputs[row.key.output]
            if row.id in self.lanes:
                self.lanes[row.id].adopt(output, active=True, is_fed=row.is_fed)
            else:
                self._open(row, output)
        for id in retired:
            if id in self.lanes:
                self.lanes[id].adopt(self.lanes[id].link.output, active=False)
        self.pool.ask_again()

    def _open(self, row: LaneRow, output: Output) -> None:
        lane = self.lanes[row.id] = Lane(row, output, self)
        self._unreadable.pop(row.id, None)
        self._nursery.start_soon(self._run, lane, name=f"lane {lane.id} of output {row.key.output}")

    async def _run(self, lane: Lane) -> None:
        await lane.run()
        del self.lanes[lane.id]
        self.pool.unlink(lane.id)
        self.pool.means.environment.give_back()
        self._spool.made_room()
        self.pool.changed()

    async def _watch(self) -> None:
        while True:
            await tick(WATCH_SECONDS)
            holding = self._spool.figures.lanes()
            for lane in self.lanes.values():
                lane.watch(holds_events=lane.id in holding)

    def hurry(self) -> None:
        """The process stops: no event waits for more to be sent with it."""
        for lane in self.lanes.values():
            lane.hurry()

    def _look_anew(self) -> None:
        for lane in self.lanes.values():
            lane.look(anew=True)

    def _tell_of_room(self) -> None:
        for lane in self.lanes.values():
            lane.has_room()

    def count(self, lane: int, name: str, count: int) -> None:
        """Counts the effect of an order on a lane, also on one that could not be opened."""
        if count:
            self.pool.counts.keep(self.output_of(lane), {name: count})

    def confirms(self) -> Confirms | None:
        """Returns the weakest confirmation of the active outputs; None if there are none."""
        return weakest(lane.link.confirms for lane in self.lanes.values() if lane.active and lane.machine.is_fed)

    def counters(self) -> dict[str, dict[str, int]]:
        """Returns, by output, the final answers by kind and the retries since the process started."""
        return self.pool.counts.sums((link.key.output, link.counters) for link in self.pool.links.values())

    def outputs(self) -> dict[str, dict[str, Any]]:
        """Returns, by output with a lane, its requests and the state of its lanes, for metrics."""
        requests = self.pool.counts.requests
        return {name: requests[name].view() | self._standing(name) for name in sorted(requests)}

    def _standing(self, output: str) -> dict[str, Any]:
        lanes = [lane for lane in self.lanes.values() if lane.key.output == output]
        waits = [wait for lane in lanes if (wait := lane.next_attempt) is not None]
        ill = [seconds for lane in lanes if (seconds := lane.ill_seconds) is not None]
        return {
            "held": any(lane.is_held for lane in lanes),
            "next_attempt_seconds": round(min(waits), 3) if waits else None,
            "ill_seconds": round(max(ill), 3) if ill else None,
        }
