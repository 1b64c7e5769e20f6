"""All lanes: which of them run, and which a revision takes over or retires.

Opening a lane contacts nobody, so a dead destination never keeps a revision from becoming active. Retired lanes drain
beside the active ones with their own credentials and connections, a few at a time (`slots`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import trio

from shipper.pipeline.delivery.lane import Lane, Means
from shipper.pipeline.destination.confirmed import weakest
from shipper.pipeline.destination.counts import OutputCounts
from shipper.pipeline.memory.loans import Lender
from shipper.pipeline.memory.recent import Recent
from shipper.pipeline.memory.slots import Slots
from shipper.plugin import Confirms, Output, Principal
from shipper.policy.policy import restore_output
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.signal import Signal
from shipper.process.ticks import tick
from shipper.sdk.codes import Code, Why
from shipper.sdk.errors import ShipperError, StartFailed
from shipper.spool.revisions import LaneKey, LaneRow

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
        self.means, self._registry = means, registry
        self.changed, self.barrier_settled = on_change, on_barrier
        self.lanes: dict[int, Lane] = {}
        self.slots = Slots()
        self.lender = Lender(careful=means.spool.store.directory.was_killed)
        self.recent = Recent()
        self.counts = OutputCounts()
        self._unreadable: dict[int, tuple[str, Why]] = {}
        self._nursery = nursery
        means.spool.on_damage(self._look_anew)
        means.spool.letters.on_freed(self._tell_of_room)
        self._holds = self.means.lease.holds()
        """Whether the lease held at the last look."""
        self._renewed = Signal()
        self._asked: frozenset[str] = frozenset()
        nursery.start_soon(self._watch)
        nursery.start_soon(self._watch_lease)

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
        if await self.means.spool.drains.settle_reached(lane):
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
                self.lanes[id].adopt(self.lanes[id].output, active=False)
        self.ask(self._asked)

    def _open(self, row: LaneRow, output: Output) -> None:
        lane = self.lanes[row.id] = Lane(row, output, self)
        self.counts.requests_of(row.key)
        self.counts.meters_of(row.key)
        self._unreadable.pop(row.id, None)
        self._nursery.start_soon(self._run, lane, name=f"lane {lane.id} of output {row.key.output}")

    async def _run(self, lane: Lane) -> None:
        await lane.run()
        del self.lanes[lane.id]
        self.means.environment.give_back()
        self.counts.gone(lane.key, lane.counters, [other.key for other in self.lanes.values()])
        self.means.spool.made_room()
        self.changed()

    def succeeded(self, key: LaneKey) -> None:
        """Lets the other lanes of a destination try at once, as it answers again after an outage."""
        for lane in self.lanes.values():
            if lane.key != key and _is_beside(lane.key, key):
                lane.hasten()

    def beside(self, key: LaneKey) -> list[Principal]:
        """See `lane.Home`."""
        said = [lane.peer.relayed_to() for lane in self.lanes.values() if _is_beside(lane.key, key)]
        return [principal for principal in said if principal is not None]

    def moved(self, lanes: Collection[int]) -> None:
        """See `lane.Home`."""
        for id in lanes:
            if id in self.lanes:
                self.lanes[id].look_at_barrier()

    async def _watch(self) -> None:
        while True:
            await tick(WATCH_SECONDS)
            holding = self.means.spool.figures.lanes()
            for lane in self.lanes.values():
                lane.watch(holds_events=lane.id in holding)

    def renew_lease(self, until: float | None) -> None:
        """See `Lease.renew`. If the old lease had lapsed, all connections are aborted, even if this one holds."""
        self._look_at_lease()
        self.means.lease.renew(until)
        self._look_at_lease()
        self._renewed.set()
        self.changed()

    async def _watch_lease(self) -> None:
        while True:
            with trio.move_on_after(self.means.lease.look_seconds if self._holds else math.inf):
                await self._renewed.wait()
            self._look_at_lease()

    def _look_at_lease(self) -> None:
        before, self._holds = self._holds, self.means.lease.holds()
        if before == self._holds:
            return
        for lane in self.lanes.values():
            if self._holds:
                lane.look()
            else:
                lane.cut_off()
        self.changed()

    def hurry(self) -> None:
        """The process stops: no event waits for more to be sent with it."""
        for lane in self.lanes.values():
            lane.hurry()

    def needed(self) -> set[str]:
        """Returns the credentials that queued events need."""
        lanes = (lane for lane in self.lanes.values() if self.means.spool.figures.of_lanes([lane.id]).events)
        return {id for lane in lanes for id in lane.key.credentials}

    def accepted(self) -> list[str]:
        """Returns the credentials that every active destination with them has accepted."""
        stands: dict[str, bool] = {}
        good = {_destination(lane.key) for lane in self.lanes.values() if lane.is_accepted}
        for lane in self.lanes.values():
            if lane.active and lane.key.credentials:
                is_accepted = _destination(lane.key) in good
                stands |= {id: stands.get(id, True) and is_accepted for id in lane.key.credentials}
        return sorted(id for id, is_accepted in stands.items() if is_accepted)

    def ask(self, credentials: Collection[str]) -> None:
        """Asks the destinations of the active lanes with these credentials whether they accept them, and those of lanes
        that become active before it is called again: who asks may be ahead of a revision."""
        self._asked = frozenset(credentials)
        for lane in self.lanes.values():
            if lane.active and not set(lane.key.credentials).isdisjoint(credentials):
                lane.ask()

    def supplied(self, credentials: Collection[str]) -> None:
        """Secrets have arrived: the lanes that use them try at once."""
        for lane in self.lanes.values():
            if not set(lane.key.credentials).isdisjoint(credentials):
                lane.poke()

    def withdrawn(self, credentials: Collection[str]) -> None:
        """Secrets were withdrawn: the connections of their lanes are aborted, and the events held."""
        for lane in self.lanes.values():
            if not set(lane.key.credentials).isdisjoint(credentials):
                lane.cut_off()

    def _look_anew(self) -> None:
        for lane in self.lanes.values():
            lane.look(anew=True)

    def _tell_of_room(self) -> None:
        for lane in self.lanes.values():
            lane.has_room()

    def count(self, lane: int, name: str, count: int) -> None:
        """Counts the effect of an order on a lane, also on one that could not be opened."""
        if count:
            self.counts.keep(self.output_of(lane), {name: count})

    def confirms(self) -> Confirms | None:
        """Returns the weakest confirmation of the active outputs; None if there are none."""
        return weakest(lane.confirms for lane in self.lanes.values() if lane.active and lane.is_fed)

    def counters(self) -> dict[str, dict[str, int]]:
        """Returns, by output, the final answers by kind and the retries since the process started."""
        return self.counts.sums((lane.key.output, lane.counters) for lane in self.lanes.values())

    def outputs(self) -> dict[str, dict[str, Any]]:
        """Returns, by output with a lane, its requests and the state of its lanes, for metrics."""
        return {name: requests.view() | self._standing(name) for name, requests in sorted(self.counts.requests.items())}

    def _standing(self, output: str) -> dict[str, Any]:
        lanes = [lane for lane in self.lanes.values() if lane.key.output == output]
        waits = [wait for lane in lanes if (wait := lane.next_attempt) is not None]
        ill = [seconds for lane in lanes if (seconds := lane.ill_seconds) is not None]
        return {
            "held": any(lane.is_held for lane in lanes),
            "next_attempt_seconds": round(min(waits), 3) if waits else None,
            "ill_seconds": round(max(ill), 3) if ill else None,
        }


def _is_beside(other: LaneKey, key: LaneKey) -> bool:
    """Whether both are of one destination, with whatever credentials."""
    return _destination(other.with_credentials(key.credentials)) == _destination(key)


def _destination(key: LaneKey) -> LaneKey:
    """Returns what both lanes of a destination have in common."""
    return key._replace(state=False)
