"""Ages of drains: for each revision and lane, when the oldest waiting event entered.

Read from the spool only where entries left a lane, or came to it from another one, as the figures show: a look costs as
much as has changed, not as much as waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from shipper.spool.figures import Figures
from shipper.spool.schema import BARRIER
from shipper.values import Revision

READ_AT_ONCE = 1000
"""Pairs that one look reads, which bounds its time; the next look reads the others."""

_FIRST = """
WITH RECURSIVE older (place, step) AS (
    SELECT 0, 1 << 61
    UNION ALL
    SELECT place + step * coalesce((
        SELECT (epoch, revision) < (:epoch, :number) FROM todo
        WHERE lane = :lane AND seq >= place + step ORDER BY seq LIMIT 1
    ), 0), step >> 1 FROM older WHERE step > 0)
SELECT at, epoch, revision FROM todo
WHERE lane = :lane AND seq > (SELECT max(place) FROM older) AND kind != :barrier ORDER BY seq LIMIT 1
"""
"""The first event of a lane above its last entry of an older revision. That entry is found by halving, since places
rise with revisions; a scan would read all entries of older revisions."""

Pair = tuple[Revision, int]


class Ages:
    """The oldest times by (revision, lane), as Unix time; unread ones are missing."""

    def __init__(self) -> None:
        self._known: dict[Pair, tuple[float, int]] = {}
        self._figures: Figures | None = None

    def outdated(self, figures: Figures, lanes: Collection[int]) -> dict[Pair, int]:
        """Returns the pairs of these lanes to read now, each with a mark for `note`; forgets pairs of other lanes."""
        if figures is not self._figures:  # recounted, after damage
            self._figures, self._known = figures, {}
        waiting = dict.fromkeys(figures.pairs(lanes))
        self._known = {pair: known for pair, known in self._known.items() if pair in waiting}
        changed = ((pair, figures.changes[pair[1]]) for pair in waiting)
        return dict(islice(((pair, mark) for pair, mark in changed if self._mark(pair) != mark), READ_AT_ONCE))

    def _mark(self, pair: Pair) -> int | None:
        return self._known[pair][1] if pair in self._known else None

    def note(self, marks: Mapping[Pair, int], found: Mapping[Pair, float]) -> None:
        """Stores the result of `read` for outdated pairs."""
        for pair, mark in marks.items():
            self._known.pop(pair, None)
            if pair in found:
                self._known[pair] = found[pair], mark

    def oldest(self, lanes: Iterable[int] | None = None) -> float | None:
        """Returns the oldest time of all pairs, or of those of some lanes."""
        wanted = None if lanes is None else frozenset(lanes)
        times = (at for (_, lane), (at, _) in self._known.items() if wanted is None or lane in wanted)
        return min(times, default=None)

    def oldest_of(self, pairs: Iterable[Pair]) -> dict[Revision, float]:
        """Returns the oldest known time of these pairs, by revision."""
        oldest: dict[Revision, float] = {}
        for pair in pairs:
            if pair in self._known:
                at, _ = self._known[pair]
                oldest[pair[0]] = min(at, oldest.get(pair[0], at))
        return oldest


def read(db: sqlite3.Connection, pairs: Iterable[Pair]) -> dict[Pair, float]:
    """Returns when the first event of each pair entered."""
    found = {pair: _first_at(db, *pair) for pair in pairs}
    return {pair: at for pair, at in found.items() if at is not None}


def _first_at(db: sqlite3.Connection, revision: Revision, lane: int) -> float | None:
    row = db.execute(_FIRST, {"lane": lane, **revision._asdict(), "barrier": BARRIER}).fetchone()
    return float(row[0]) if row is not None and tuple(row[1:]) == revision else None
