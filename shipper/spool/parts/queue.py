"""The queue: what enters under which revision, what waits in the lanes, and its answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import outcome

from shipper.sdk.event import Batch
from shipper.sdk.packing import Oversized
from shipper.spool import awaited, dead_letters, lifting, origins, queue, requests
from shipper.spool.figures import Figures
from shipper.spool.ground import Part, query, urgent
from shipper.spool.queue import Arrival, Entered, Entry, Moved, Settled, Settlement
from shipper.spool.seal import Damaged, Sealer

NAME_BYTES = 16
"""Of the id of a request."""


class Noted(NamedTuple):
    """What came of settling entries: how many old letters were pushed out, the slots that hold another version by now,
    and the lanes that have to do what was given another place."""

    letters_dropped: int
    renewed: frozenset[int] = frozenset()
    lanes: frozenset[int] = frozenset()


class Queue(Part):
    """The queue."""

    positions = query(queue.positions)
    position = query(queue.position)
    window = query(queue.window)
    answers = query(awaited.answers)
    open_requests = query(requests.of_lane)
    forget_requests = urgent(requests.answered)

    async def enter(
        self,
        arrival: Arrival,
        abandoned: Callable[[list[Entered]], object] = lambda entered: None,
        *,
        wait: bool = True,
    ) -> list[Entered]:
        """Stores batches with their input's positions. Raises queue.NotActive and Outdated.

        While the disk is full, waits, or raises Backpressure if `wait` is false.
        `abandoned` is called with the result if it became durable only some seconds after the caller was cancelled.
        """

        def count_abandoned(counted: tuple[list[Entered], Figures]) -> None:
            abandoned(_count(arrival, *counted))

        return _count(arrival, *await self.store.append(self._entering(arrival), count_abandoned, wait=wait))

    def enter_soon(self, arrival: Arrival, ended: Callable[[outcome.Outcome[list[Entered]]], object]) -> None:
        """As `enter` without `wait`, but returns at once; `ended` gets the result, and must not raise."""

        def count(end: outcome.Outcome[tuple[list[Entered], Figures]]) -> None:
            ended(end if isinstance(end, outcome.Error) else outcome.Value(_count(arrival, *end.unwrap())))

        self.store.append_soon(self._entering(arrival), count)

    def _entering(self, arrival: Arrival) -> Callable[[sqlite3.Connection], tuple[list[Entered], Figures]]:
        ground, now = self.ground, self.ground.now()

        def enter(db: sqlite3.Connection) -> list[Entered]:
            origins.keep(db, self.sealer, ground.drawn)
            return queue.enter(db, self.sealer, ground.origin, now, arrival)

        return ground.counted(enter)

    async def load(
        self, lane: int, entries: Sequence[Entry], limit: int | None = None
    ) -> tuple[dict[int, Batch], Sequence[Entry]]:
        """Returns the events of several entries, by their places, and the entries from the first that does not fit.

        The returned batches fit into `limit` bytes (`Batch.size`). Damaged entries are missing.
        """

        def load(db: sqlite3.Connection) -> tuple[dict[int, Batch], Sequence[Entry]]:
            found: dict[int, Batch] = {}
            free = limit
            for number, entry in enumerate(entries):
                try:
                    batch = found[entry.seq] = queue.load(db, self.sealer, lane, entry, free)
                except Oversized:
                    return found, entries[number:]
                except Damaged:
                    continue
                free = None if free is None else free - batch.size
            return found, ()

        return await self.store.read(load)

    async def recount(self, lane: int, entry: Entry, events: int) -> Entry:
        """Corrects the count of an entry to the number of events in its sealed batch; returns the corrected entry."""
        _, figures = await self.store.do(self.ground.counted(lambda db: queue.recount(db, lane, entry, events)))
        figures.add(entry.revision, frozenset({lane}), events - entry.events, 0)
        return entry._replace(events=events)

    async def compose(self, lane: int, parts: Sequence[requests.Part], instead: str | None = None) -> str | None:
        """Stores what a request is composed of; returns its id, or None if one of its events is in another request. See
        `requests.compose`."""
        name = self.ground.entropy(NAME_BYTES).hex()
        stored = await self.ground.urgent(lambda db: requests.compose(db, lane, name, parts, instead))
        return name if stored else None

    async def settle(
        self, lane: int, settlements: Mapping[int, Settlement], *, patience: float = 0.0, answered: Collection[str] = ()
    ) -> Noted:
        """Stores settlements of entries, by their places; `answered` are requests that have all their answers now.

        If nobody waits for it, it may wait for the next commit with `patience`. Raises dead_letters.Full, which names
        the letters that have room, and stores nothing then.
        """
        ground, now, limits = self.ground, self.ground.now(), self.ground.limits.dead_letters

        def settle(db: sqlite3.Connection) -> tuple[list[Settled], list[Moved]]:
            if answered:
                requests.answered(db, answered)
            return settle_all(db, self.sealer, lane, settlements, limits, now, ground.first_epoch)

        (changes, moved), figures = await self.store.do(ground.counted(settle), patience=patience)
        for change in changes:
            figures.settled(lane, change)
        figures.moved(moved)
        ground.settled(changes)
        renewed = frozenset(change.entry.seq for change in changes if change.is_renewed)
        return Noted(sum(change.letters_dropped for change in changes), renewed, frozenset(each.lane for each in moved))


def settle_all(
    db: sqlite3.Connection,
    sealer: Sealer,
    lane: int,
    settlements: Mapping[int, Settlement],
    limits: dead_letters.Limits,
    now: float,
    since: int = 0,
) -> tuple[list[Settled], list[Moved]]:
    """Stores settlements, by places; returns the changes, and what lanes have to do since (`lifting.reissue`)."""
    dead_letters.check_room(db, {seq: settlement.letters for seq, settlement in settlements.items()}, limits)
    changes, moved = [], list[Moved]()
    for seq, settlement in settlements.items():
        if settlement.fence is not None:
            moved += lifting.reissue(db, sealer, now, lane, seq, settlement, since)
        if change := queue.settle(db, sealer, lane, seq, settlement, limits, now):
            changes.append(change)
    return changes, moved


def _count(arrival: Arrival, entered: list[Entered], figures: Figures) -> list[Entered]:
    for packed, batch in zip(arrival.batches, entered, strict=True):
        figures.add(arrival.revision, frozenset(arrival.lanes_of(packed)), batch.events, batch.size)
    return entered
