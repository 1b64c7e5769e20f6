"""What the destination of a lane has confirmed, by its lineage (`sdk/lineage`). Pure functions of the database."""

from __future__ import annotations

import sqlite3

from shipper.sdk.lineage import Confirmed

MOST = 128
"""Lineages of one lane; those that were noted first are forgotten beyond that."""


def of_lane(db: sqlite3.Connection, lane: int) -> dict[str, Confirmed]:
    """Returns what was noted, by lineage."""
    rows = db.execute("SELECT lineage, events, state, host FROM lineage WHERE lane = ? ORDER BY id", (lane,)).fetchall()
    return {lineage: Confirmed(*row) for lineage, *row in rows}


def note(db: sqlite3.Connection, lane: int, lineage: str, confirmed: Confirmed) -> None:
    """Notes what a lineage has confirmed to a lane that is there."""
    changed = db.execute(
        "UPDATE lineage SET events = ?, state = ?, host = ? WHERE lane = ? AND lineage = ?", (*confirmed, lane, lineage)
    )
    if not changed.rowcount:
        db.execute(
            "INSERT INTO lineage (lane, lineage, events, state, host) SELECT id, ?, ?, ?, ? FROM lane WHERE id = ?",
            (lineage, *confirmed, lane),
        )
        db.execute(
            "DELETE FROM lineage WHERE lane = ? AND id NOT IN"
            " (SELECT id FROM lineage WHERE lane = ? ORDER BY id DESC LIMIT ?)",
            (lane, lane, MOST),
        )


def forget(db: sqlite3.Connection, lane: int) -> None:
    """Forgets what was confirmed to a lane that is gone."""
    db.execute("DELETE FROM lineage WHERE lane = ?", (lane,))
