"""What a relay compares with its other side, and how they agree again. Pure functions of the database.

A key is named by its owner and its point, which says nothing about it in the clear; reads are bounded, so that a caller
pages through a hundred thousand keys. What changes between two pages is seen as a difference at worst, and sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shipper.sdk.state import Mark, Version, point_of
from shipper.spool import keyed, slots
from shipper.spool.queue import Moved
from shipper.spool.schema import get_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Revision

PAGE = 5000
MOST_KEYS = 1000
"""Of one call."""
_POINTS = 1 << 64
_FIRST = (-(1 << 63), -1)
"""Before all points and rows of an owner."""


# -- reading -----------------------------------------------------------------------------------------------------------


def inputs_of(db: sqlite3.Connection, lane: int) -> list[str]:
    """The inputs of keyed state that are routed to an active lane."""
    return [input for (input,) in db.execute("SELECT input FROM fed WHERE lane = ? ORDER BY input", (lane,))]


def of_input(db: sqlite3.Connection, input: str, after: int) -> tuple[list[Mark], int | None]:
    """Keys of one input, from the one behind `after` on; and the last one, unless it is all."""
    rows = db.execute(
        "SELECT id, owner, point, place, digest, deleted FROM keyed WHERE input = ? AND id > ? ORDER BY id LIMIT ?",
        (input, after, PAGE),
    ).fetchall()
    marks = [Mark(owner, point % _POINTS, place, digest, bool(gone)) for _, owner, point, place, digest, gone in rows]
    return marks, rows[-1][0] if len(rows) == PAGE else None


Place = tuple[str, int, int]
"""Of a key among those of owners: its owner, its point as it is stored, and its row."""


def of_owner(db: sqlite3.Connection, owner: str, after: Place | None) -> tuple[list[Mark], Place | None]:
    """The same of an owner and all below it, by owners and points."""
    rows: list[tuple[str, int, int, int, bytes, int]] = []
    below, end = owner + "/", owner + "0"  # the character behind the slash
    for first, beyond in ((owner, owner + "\0"), (below, end)):
        begin = max(after or (owner, *_FIRST), (first, *_FIRST))
        rows += db.execute(
            "SELECT owner, point, id, place, digest, deleted FROM keyed WHERE (owner, point, id) > (?, ?, ?)"
            " AND owner < ? ORDER BY owner, point, id LIMIT ?",
            (*begin, beyond, PAGE - len(rows)),
        ).fetchall()
    marks = [Mark(of, point % _POINTS, place, digest, bool(gone)) for of, point, _, place, digest, gone in rows]
    return marks, rows[-1][:3] if len(rows) == PAGE else None


def versions(db: sqlite3.Connection, sealer: Sealer, keys: Sequence[tuple[str, int]]) -> list[Version]:
    """The current versions of keys that are not deleted; those that cannot be read are missing."""
    found: list[Version] = []
    for owner, point in keys[:MOST_KEYS]:
        rows = db.execute(
            "SELECT name, place, CAST(body AS BLOB) FROM keyed WHERE owner = ? AND point = ? AND NOT deleted",
            (owner, keyed.signed(point)),
        ).fetchall()
        for name, place, body in rows:
            try:
                batch = slots.unseal(sealer, name, place, body)
            except Damaged:
                continue
            found += [version for version in batch.versions or () if version is not None]
    return found


# -- agreeing ----------------------------------------------------------------------------------------------------------


def send_again(db: sqlite3.Connection, now: float, lane: int, keys: Sequence[tuple[str, int]]) -> list[Moved]:
    """Let the current versions of keys wait on a lane that is fed with them; one that waits there keeps its turn."""
    active = get_meta(db, "active")
    if active is None:
        return []
    moved: list[Moved] = []
    for owner, point in keys[:MOST_KEYS]:
        rows = db.execute(
            "SELECT id, place, bytes FROM keyed WHERE owner = ? AND point = ?"
            " AND EXISTS (SELECT 1 FROM fed WHERE fed.input = keyed.input AND fed.lane = ?)"
            " AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.keyed = keyed.id AND slot.lane = ?)",
            (owner, keyed.signed(point), lane, lane),
        ).fetchall()
        moved += [Moved(lane, None, keyed.wait(db, now, Revision.parse(active), lane, row)) for row in rows]
    return moved


def delete(db: sqlite3.Connection, sealer: Sealer, now: float, lane: int, surplus: Sequence[Version]) -> list[Moved]:
    """Send deletions, newer than these versions, of own keys that are not here; what is here is sent again."""
    active, inputs = get_meta(db, "active"), inputs_of(db, lane)
    if active is None or not inputs:
        return []
    moved: list[Moved] = []
    for version in surplus[:MOST_KEYS]:
        if keyed.is_known(db, version):
            moved += send_again(db, now, lane, [(version.owner, point_of(version.collection, version.key))])
        elif keyed.has_given(db, version.place):
            moved += keyed.bury(db, sealer, now, Revision.parse(active), inputs[0], lane, version)
    return moved
