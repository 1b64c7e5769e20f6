"""What other owners have of keyed state: it is counted and bounded, and their deletions are forgotten in time.

All counts are of the first part of an owner, with the owners below it.

A deletion of a key whose places others give stays when it is settled: it fences older versions that come late, as from
a directory that went back. So that keys that come and go do not fill this directory, an owner has room for as many
deletions as keys, and for `LEAST_DELETIONS`: where a new key needs room, the oldest settled deletions give way, a
`PORTION` at a time. One that waits for a destination never does. Where those take all the room, no new key is let in,
deleted or not; the deletion of a key that is there takes no room.

The settled deletion with the highest place stays in any case: by the highest place that is here, an edge sees whether
this directory went back.

`keyed.settled` marks settled deletions for an index. The mark is put when the last slot is gone, and stays when another
destination is fed with the deletion: that shows when its turn to give way comes.
"""

from __future__ import annotations

import sqlite3

from shipper.sdk.state import Quota
from shipper.spool import keyed_answers

LEAST_DELETIONS = 1000
PORTION = 100
_NOTHING = Quota(0, 0)


def first(owner: str) -> str:
    """Returns the owner that is counted for this one, and has the quota."""
    return owner.partition("/")[0]


def note(db: sqlite3.Connection, owner: str, before: Quota, now: Quota, known: int) -> None:
    """Counts what a key of another owner takes instead of before, and so many keys more that are known."""
    change = now.keys - before.keys, now.bytes - before.bytes, known
    if owner and any(change):
        db.execute(
            "INSERT INTO holding VALUES (?, ?, ?, ?) ON CONFLICT (owner) DO UPDATE SET keys = keys + excluded.keys,"
            " bytes = bytes + excluded.bytes, known = known + excluded.known",
            (first(owner), *change),
        )


def has_room(db: sqlite3.Connection, quota: Quota, owner: str, before: Quota | None, size: int | None) -> bool:
    """Whether an owner may have a version of so many bytes (None: a deletion); may forget deletions for it.

    `before` is what its key takes so far; None: the key is not known.
    """
    row = db.execute("SELECT keys, bytes, known FROM holding WHERE owner = ?", (first(owner),)).fetchone()
    keys, held, known = row or (0, 0, 0)
    if size is not None:
        had = before or _NOTHING
        growth = size - had.bytes
        if keys - had.keys >= quota.keys or (growth > 0 and held + growth > quota.bytes):
            return False
    most = quota.keys + max(quota.keys, LEAST_DELETIONS)
    return before is not None or known < most or known - _forget_oldest(db, first(owner)) < most


def settled(db: sqlite3.Connection, id: int) -> None:
    """Nothing waits of a deleted key any more: an own key is forgotten, one of others may be."""
    row = db.execute(
        "SELECT own, owner FROM keyed WHERE id = ? AND deleted AND NOT EXISTS (SELECT 1 FROM slot WHERE keyed = ?)",
        (id, id),
    ).fetchone()
    if row is None:
        return
    own, owner = row
    if own == 1:
        db.execute("DELETE FROM keyed WHERE id = ?", (id,))
        note(db, owner, _NOTHING, _NOTHING, -1)
    else:
        db.execute("UPDATE keyed SET settled = ? WHERE id = ?", (first(owner), id))


def _forget_oldest(db: sqlite3.Connection, owner: str) -> int:
    """Returns how many settled deletions were forgotten."""
    rows = db.execute(
        "SELECT id, name, input, place FROM keyed WHERE settled = ?"
        " AND id != (SELECT id FROM keyed WHERE settled = ? ORDER BY place DESC LIMIT 1) ORDER BY place LIMIT ?",
        (owner, owner, PORTION),
    ).fetchall()
    forgotten = 0
    for id, name, input, place in rows:
        query = "DELETE FROM keyed WHERE id = ? AND deleted AND NOT EXISTS (SELECT 1 FROM slot WHERE keyed = ?)"
        if db.execute(query, (id, id)).rowcount:
            forgotten += 1
            keyed_answers.forget_named(db, input, owner, name, place)
        else:
            db.execute("UPDATE keyed SET settled = NULL WHERE id = ?", (id,))
    note(db, owner, _NOTHING, _NOTHING, -forgotten)
    return forgotten


def load(db: sqlite3.Connection) -> dict[str, Quota]:
    """Returns the keys that are not deleted, and the bytes of their versions, by owner."""
    rows = db.execute("SELECT owner, keys, bytes FROM holding").fetchall()
    return {owner: Quota(keys, size) for owner, keys, size in rows}
