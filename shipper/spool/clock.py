"""How long barriers have waited, in time in which a process ran and could deliver: kept in the spool, over restarts.

Besides each barrier, a deadline that a revision has shortened has a clock of its own, since it takes effect no earlier
than its own length after that revision became active. It stands in `meta`, and begins anew when the deadline changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from shipper.spool.schema import get_meta, set_meta
from shipper.values import Revision

MICROSECONDS = 1_000_000
LARGEST = 2**62 - 1
"""What the audit takes for a sound count, and more than any disk or life."""


class Clock(NamedTuple):
    """Of the barrier at this `seq` of a lane; with lane 0, of the deadline of so many microseconds."""

    lane: int
    seq: int


class Reading(NamedTuple):
    """What the clocks say in one moment, in seconds, and the revision that is active then."""

    active: Revision | None
    clocks: dict[Clock, float]

    def barriers(self) -> dict[Clock, float]:
        return {clock: seconds for clock, seconds in self.clocks.items() if clock.lane}

    def effective(self, deadline: float) -> bool:
        """Whether the deadline has had its own time, if it needs it."""
        return all(seconds >= deadline for clock, seconds in self.clocks.items() if not clock.lane)


def read(db: sqlite3.Connection) -> Reading:
    """What all clocks say."""
    active, deadline, own = (get_meta(db, key) for key in ("active", "deadline", "deadline_waited"))
    rows = db.execute("SELECT lane, seq, waited FROM barrier").fetchall()
    clocks = {Clock(lane, seq): float(waited) for lane, seq, waited in rows}
    if own is not None and deadline is not None:
        clocks[Clock(0, deadline)] = own / MICROSECONDS
    return Reading(None if active is None else Revision.parse(active), clocks)


def advance(db: sqlite3.Connection, seconds: Mapping[Clock, float]) -> Reading:
    """Let time pass for these clocks; returns what all say then. One that is gone is passed over."""
    for (lane, seq), more in seconds.items():
        if lane:
            db.execute("UPDATE barrier SET waited = waited + ? WHERE lane = ? AND seq = ?", (more, lane, seq))
        elif get_meta(db, "deadline") == seq:
            passed = int(get_meta(db, "deadline_waited") or 0) + round(more * MICROSECONDS)
            set_meta(db, "deadline_waited", min(passed, LARGEST))
    return read(db)


def set_deadline(db: sqlite3.Connection, seconds: float | None) -> None:
    """The deadline of a revision that becomes active; None: for ever. A shorter one gets a clock of its own.

    So does a longer one while that of the deadline before still runs: it may be shorter than the one before that.
    """
    before, own = get_meta(db, "deadline"), get_meta(db, "deadline_waited")
    now = None if seconds is None else min(round(seconds * MICROSECONDS), LARGEST)
    if now == before:
        return
    runs = own is not None and before is not None and own < before
    db.execute("DELETE FROM meta WHERE key IN ('deadline', 'deadline_waited')")
    if now is not None:
        set_meta(db, "deadline", now)
        if before is None or now < before or runs:
            set_meta(db, "deadline_waited", 0)
