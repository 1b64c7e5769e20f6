"""A lane of an earlier version, in which log events and keyed state waited together, becomes two.

What waits of keyed state moves to a lane of its own, with a copy of each barrier and of each order. An answer stays
counted where it was, so the sums of both barriers agree. A lane that never had log events only changes its kind.

Whether a lane is one of these shows in its rows alone: those that a repair has copied come later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

_BARRIER: Final = 2
_SLOT: Final = 3
"""As the earlier version had them."""

_HAS_STATE = (
    "EXISTS (SELECT 1 FROM slot WHERE slot.lane = lane.id) OR EXISTS (SELECT 1 FROM fed WHERE fed.lane = lane.id)"
)
_HAS_LOGS = (
    "confirmed OR EXISTS (SELECT 1 FROM standing_order WHERE lane.id IN (standing_order.lane, target))"
    f" OR EXISTS (SELECT 1 FROM todo WHERE todo.lane = lane.id AND kind NOT IN ({_BARRIER}, {_SLOT}))"
)
_COPIED = "output, type, destination, credentials, settings, active, reached, confirmed, confirmed_versions, contacts"
_SLOTS_BELOW = (
    "(SELECT coalesce(sum(count), 0) FROM todo WHERE todo.lane = :lane AND kind = :slot AND todo.seq < barrier.seq"
    " AND todo.seq > (SELECT coalesce(max(seq), 0) FROM barrier AS older"
    "  WHERE older.lane = :lane AND older.seq < barrier.seq))"
)


def divide(db: sqlite3.Connection) -> None:
    """Divides the lanes of an earlier version, if there are any."""
    found = db.execute(f"SELECT id, {_HAS_LOGS} FROM lane WHERE NOT pair AND ({_HAS_STATE})").fetchall()
    db.executemany("UPDATE lane SET pair = id WHERE id = ?", [(id,) for id, has_logs in found if not has_logs])
    mixed = {id for id, has_logs in found if has_logs}
    made = {id: _of_state(db, id) for id in sorted(mixed | _targets(db, mixed))}
    for id in mixed:
        rows = db.execute("SELECT name, target, epoch, revision, upto, first FROM standing_order WHERE lane = ?", (id,))
        for name, target, *rest in rows.fetchall():
            db.execute(
                "INSERT INTO standing_order (name, lane, target, epoch, revision, upto, first)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, made[id], made.get(target), *rest),
            )


def _targets(db: sqlite3.Connection, lanes: Collection[int]) -> set[int]:
    """Returns where orders move what waits on these lanes."""
    rows = db.execute("SELECT lane, target FROM standing_order WHERE target IS NOT NULL").fetchall()
    return {target for lane, target in rows if lane in lanes}


def _of_state(db: sqlite3.Connection, lane: int) -> int:
    """Makes the lane of keyed state beside a lane, with what waits of it; returns its id."""
    (made,) = db.execute(
        f"INSERT INTO lane ({_COPIED}, pair) SELECT {_COPIED}, id FROM lane WHERE id = ? RETURNING id", (lane,)
    ).fetchone()
    names = {"lane": lane, "made": made, "slot": _SLOT, "barrier": _BARRIER}
    for statement in (
        "INSERT INTO barrier (lane, seq, epoch, revision, accepted, waited, confirmed)"
        f" SELECT :made, seq, epoch, revision, {_SLOTS_BELOW}, waited, confirmed FROM barrier WHERE lane = :lane",
        f"UPDATE barrier SET accepted = accepted - {_SLOTS_BELOW} WHERE lane = :lane",
        "INSERT INTO todo SELECT :made, seq, kind, epoch, revision, 0, 0, 0, 0 FROM todo"
        " WHERE lane = :lane AND kind = :barrier",
        "UPDATE todo SET lane = :made WHERE lane = :lane AND kind = :slot",
        "UPDATE slot SET lane = :made WHERE lane = :lane",
        "UPDATE fed SET lane = :made WHERE lane = :lane",
        "INSERT INTO meta SELECT 'doubt ' || :made, value FROM meta WHERE key = 'doubt ' || :lane",
    ):
        db.execute(statement, {name: value for name, value in names.items() if f":{name}" in statement})
    return int(made)
