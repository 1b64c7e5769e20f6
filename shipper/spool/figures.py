"""How much waits, by lane and revision: exact counters in memory, at no cost per batch.

A batch is counted in the group (revision, lanes that hold it whole); the unsettled rest of one in the group of its lane
alone. There are as many groups as different routes, so every figure is a sum over a few numbers, however many batches
wait; and when lanes retire, their bytes move from one limit to the other without a scan. An index by lane keeps the
cost of a figure of one lane independent of the number of lanes. An event counts once, however many lanes hold its batch
whole, and once more for each lane that holds it in a rest; `again` is the number of these repeats, subtracted from the
total.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import NamedTuple

from shipper.sdk.peers import Waits
from shipper.spool import queue
from shipper.spool.queue import Entry, Moved, Settled
from shipper.spool.schema import BARRIER, BATCH, SLOT
from shipper.spool.seal import Sealer
from shipper.values import Revision

Group = tuple[Revision, frozenset[int]]


class Amount(NamedTuple):
    events: int
    bytes: int


@dataclass(slots=True)
class Figures:
    """Sums over groups. Changed only by results of committed transactions, in any order."""

    events: Counter[Group]
    bytes: Counter[Group]
    again: int = 0
    changes: dict[int, int] = field(default_factory=dict, compare=False)
    """By lane with entries, a mark that changes whenever its first entry may have changed: some were settled, or came
    from another lane."""
    versions: Counter[int] = field(default_factory=Counter)
    """By lane, how many of the events are versions of keys; a version waits on one lane for itself."""
    _of_lane: dict[int, set[Group]] = field(default_factory=dict, compare=False)
    _all: Amount = field(default=Amount(0, 0), compare=False)
    _marks: Iterator[int] = field(default_factory=count, compare=False)

    def __post_init__(self) -> None:
        self._all = Amount(self.events.total(), self.bytes.total())
        for group in self.events:
            self._remember(group)

    @classmethod
    def none(cls) -> Figures:
        """Returns empty figures."""
        return cls(Counter(), Counter())

    @classmethod
    def of(cls, db: sqlite3.Connection, sealer: Sealer) -> Figures:
        """Counts the entries in one pass, when the spool is opened."""
        figures = cls.none()
        rows = db.execute(
            "SELECT lane, seq, kind, epoch, revision, count, bytes, at FROM todo WHERE kind != ? ORDER BY seq, kind",
            (BARRIER,),
        )
        for _, same in groupby(rows, key=lambda row: row[1]):
            figures._add_parts(db, sealer, [(row[0], queue.entry_of(row[1:])) for row in same])
        return figures

    def _add_parts(self, db: sqlite3.Connection, sealer: Sealer, parts: Sequence[tuple[int, Entry]]) -> None:
        """Adds all entries of one batch."""
        whole = [(lane, entry) for lane, entry in parts if entry.kind == BATCH]
        rests = parts[len(whole) :]
        if whole:
            entry = whole[0][1]
            self.add(entry.revision, frozenset(lane for lane, _ in whole), entry.events, entry.room)
        for lane, entry in rests:
            self.add(entry.revision, frozenset({lane}), entry.events, entry.room)
            self._count_versions(lane, entry, 1)
        if len(parts) > len(whole) > 0:
            self.again += sum(entry.events for _, entry in rests)
        elif len(rests) > 1:
            different = frozenset[int]().union(*(queue.items(db, sealer, lane, entry) for lane, entry in rests))
            self.again += sum(entry.events for _, entry in rests) - len(different)

    def add(self, revision: Revision, lanes: frozenset[int], events: int, size: int) -> None:
        """Adds events and bytes, which may be negative, for these lanes."""
        group = (revision, lanes)
        self._all = Amount(self._all.events + events, self._all.bytes + size)
        if group not in self.events:
            self._remember(group)
        self.events[group] += events
        self.bytes[group] += size
        if not self.events[group] and not self.bytes[group]:
            self._forget(group)

    def _remember(self, group: Group) -> None:
        for lane in group[1]:
            if lane not in self._of_lane:
                self._of_lane[lane] = set()
                self._change(lane)
            self._of_lane[lane].add(group)

    def _change(self, lane: int) -> None:
        if lane in self._of_lane:
            self.changes[lane] = next(self._marks)

    def _forget(self, group: Group) -> None:
        del self.events[group], self.bytes[group]
        for lane in group[1]:
            self._of_lane[lane].remove(group)
            if not self._of_lane[lane]:
                del self._of_lane[lane]
                del self.changes[lane]

    def settled(self, lane: int, change: Settled) -> None:
        """Subtracts the events that a lane settled."""
        entry, others = change.entry, change.others
        self._change(lane)
        self.again += change.again
        mine = frozenset({lane})
        if entry.kind == BATCH:
            self._move(entry, others | mine, others)
        else:
            self.add(entry.revision, mine, -entry.events, -entry.room)
        self._count_versions(lane, entry, -1)
        if change.left is not None:
            self.add(entry.revision, mine, change.left.events, change.left.room)
            self._count_versions(lane, change.left, 1)
        if not self.events:
            self.again = 0  # it is unknown which events a rest shared that was damaged later

    def moved(self, moves: Iterable[Moved]) -> None:
        """What lanes have to do in place of something else."""
        for lane, gone, come in moves:
            if gone is not None:
                self.add(gone.revision, frozenset({lane}), -gone.events, -gone.room)
                self._count_versions(lane, gone, -1)
                self._change(lane)
            if come is not None:
                self.add(come.revision, frozenset({lane}), come.events, come.room)
                self._count_versions(lane, come, 1)

    def fed(self, revision: Revision, lane: int, versions: int) -> None:
        """Adds versions of keys that a lane was fed with."""
        self.add(revision, frozenset({lane}), versions, 0)
        self._add_versions(lane, versions)

    def _count_versions(self, lane: int, entry: Entry, sign: int) -> None:
        if entry.kind == SLOT:
            self._add_versions(lane, sign * entry.events)

    def _add_versions(self, lane: int, number: int) -> None:
        self.versions[lane] += number
        if not self.versions[lane]:
            del self.versions[lane]

    def rebound(self, entry: Entry, others: frozenset[int], source: int, target: int) -> None:
        """Moves an entry from one lane to another."""
        self._move(entry, others | {source}, others | {target})
        self._count_versions(source, entry, -1)
        self._count_versions(target, entry, 1)
        self._change(source)
        self._change(target)

    def _move(self, entry: Entry, source: frozenset[int], target: frozenset[int]) -> None:
        self.add(entry.revision, source, -entry.events, -entry.room)
        if target:
            self.add(entry.revision, target, entry.events, entry.room)

    def total(self) -> Amount:
        """Returns everything that waits; an event counts once, however many lanes hold it."""
        return Amount(max(0, self._all.events - self.again), self._all.bytes)

    def lanes(self) -> Set[int]:
        """Returns the lanes with entries."""
        return self._of_lane.keys()

    def of_lanes(self, lanes: Collection[int]) -> Amount:
        """Returns the amount that waits for any of these lanes."""
        return self._sum(self._held_by(lanes))

    def waits(self, lane: int) -> Waits:
        """Returns what waits for a lane; several parts of one batch count once for it."""
        versions = max(0, self.versions[lane])
        return Waits(max(0, self.of_lanes([lane]).events - versions), versions)

    def only_of(self, lanes: Collection[int]) -> Amount:
        """Returns the amount that waits for these lanes and no other."""
        wanted = frozenset(lanes)
        return self._sum(group for group in self._held_by(lanes) if group[1] <= wanted)

    def of_pair(self, revision: Revision, lane: int) -> Amount:
        """Returns the amount that entered under a revision and waits for a lane."""
        return self._sum(group for group in self._of_lane.get(lane, ()) if group[0] == revision)

    def pairs(self, lanes: Collection[int]) -> list[tuple[Revision, int]]:
        """Returns the pairs (revision, lane) of these lanes with entries; oldest revision first."""
        return sorted({(group[0], lane) for lane in lanes for group in self._of_lane.get(lane, ())})

    def revisions(self, pairs: Collection[tuple[Revision, int]]) -> dict[Revision, Amount]:
        """Returns by revision the amount that waits for any of these (revision, lane); an event counts once."""
        held: defaultdict[Revision, list[Group]] = defaultdict(list)
        for group in self.events:
            if any((group[0], lane) in pairs for lane in group[1]):
                held[group[0]].append(group)
        return {revision: self._sum(groups) for revision, groups in held.items()}

    def _held_by(self, lanes: Collection[int]) -> set[Group]:
        return set[Group]().union(*(self._of_lane.get(lane, ()) for lane in lanes))

    def _sum(self, groups: Iterable[Group]) -> Amount:
        events = size = 0
        for group in groups:
            events += self.events[group]
            size += self.bytes[group]
        return Amount(events, size)
