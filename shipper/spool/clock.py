"""How long barriers have waited, counted while a process runs and can deliver, and kept in the spool over restarts.

A deadline that a revision has shortened has a clock too, since it takes effect no earlier than its own length after
that revision became active. This clock is kept in `meta`, and begins anew when the deadline changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from shipper.spool.schema import get_meta, set_meta
from shipper.values import Revision

MICROSECONDS = 1_000_000
LARGEST = 2**62 - 1
"""The audit accepts a count up to this; it is more than any disk or life needs."""


class Clock(NamedTuple):
    """Identifies the clock of the barrier at `seq` of a lane; with lane 0, that of a deadline of `seq` microseconds."""

    lane: int
    seq: int


class Reading(NamedTuple):
    """All clocks at one moment, in seconds, and the active revision."""

    active: Revision | None
    clocks: dict[Clock, float]

    def barriers(self) -> dict[Clock, float]:
        return {clock: seconds for clock, seconds in self.clocks.items() if clock.lane}

    def effective(self, deadline: float) -> bool:
        """Whether the deadline is in effect: it has no clock, or its clock has run for its length."""
        return all(seconds >= deadline for clock, seconds in self.clocks.items() if not clock.lane)


def read(db: sqlite3.Connection) -> Reading:
    """Returns the reading of all clocks."""
    active, deadline, own = (get_meta(db, key) for key in ("active", "deadline", "deadline_waited"))
    rows = db.execute("SELECT lane, seq, waited FROM barrier").fetchall()
    clocks = {Clock(lane, seq): float(waited) for lane, seq, waited in rows}
    if own is not None and deadline is not None:
        clocks[Clock(0, deadline)] = own / MICROSECONDS
    return Reading(None if active is None else Revision.parse(active), clocks)


def advance(db: sqlite3.Connection, seconds: Mapping[Clock, float]) -> Reading:
    """Adds seconds to these clocks, except deleted ones; returns the reading of all."""
    for (lane, seq), more in seconds.items():
        if lane:
            db.execute("UPDATE barrier SET waited = waited + ? WHERE lane = ? AND seq = ?", (more, lane, seq))
        elif get_meta(db, "deadline") == seq:
            passed = int(get_meta(db, "deadline_waited") or 0) + round(more * MICROSECONDS)
            set_meta(db, "deadline_waited", min(passed, LARGEST))
    return read(db)


def set_deadline(db: sqlite3.Connection, seconds: float | None) -> None:
    """Stores the deadline of a revision that becomes active; None: never. A shorter one gets a clock.

    So does a longer one while the clock of the previous deadline runs: it may be shorter than the one before that.
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
