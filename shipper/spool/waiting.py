"""Where versions wait: at most one slot of a key on a lane, with its turn, and what a newer version does to it.

- A slot of another destination, that is to have the old version (a retired lane), keeps it, as a copy.
- One of the same destination under another credential is superseded, since the new version is durable for that
  destination, on a lane that is in use.
- One of the same lane, not handed out yet and below no barrier, takes the new version in its place and its turn.
- One of the same lane otherwise is superseded, and a new slot stands at the end. So the new version waits neither for
  an answer for the old one, nor below a barrier that does not count it.

A hot key thus goes once round with all others, however often it changes: its slot has its turn as long as it waits, and
comes last once it was handed out. The answer for a version whose slot is gone counts no more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import NamedTuple

from shipper.sdk.state import Version
from shipper.spool import keyed_answers, queue, slots
from shipper.spool.queue import Entry, Moved, Settled
from shipper.spool.schema import SLOT, next_seq
from shipper.values import Counts, Revision


class Slot(NamedTuple):
    """A slot of a key, with its lane's destination; `is_copy`: its version is not the current one."""

    lane: int
    seq: int
    is_copy: bool
    destination: tuple[str, str, str]


def slots_of(db: sqlite3.Connection, id: int) -> list[Slot]:
    """The slots of a key."""
    rows = db.execute(
        "SELECT slot.lane, seq, body IS NOT NULL, output, type, destination FROM slot JOIN lane ON lane.id = slot.lane"
        " WHERE keyed = ?",
        (id,),
    ).fetchall()
    return [Slot(lane, seq, bool(is_copy), (output, type, to)) for lane, seq, is_copy, output, type, to in rows]


def destinations(db: sqlite3.Connection, lanes: Collection[int]) -> frozenset[tuple[str, str, str]]:
    """Where lanes go, whichever credential they have."""
    rows = [db.execute("SELECT output, type, destination FROM lane WHERE id = ?", (id,)).fetchone() for id in lanes]
    return frozenset(tuple(row) for row in rows if row is not None)


def keep_old(db: sqlite3.Connection, those: Sequence[Slot]) -> None:
    """Give slots the current version as a copy of their own."""
    for slot in those:
        db.execute(
            "UPDATE slot SET body = (SELECT body FROM keyed WHERE id = slot.keyed) WHERE lane = ? AND seq = ?",
            (slot.lane, slot.seq),
        )


def put(
    db: sqlite3.Connection,
    now: float,
    revision: Revision,
    lane: int,
    slot: Slot | None,
    new: tuple[int, int, int],
    reference: int,
    front: int | None,
) -> Moved:
    """Let the new version (key, place, size) wait on a lane, in the slot that is there if that keeps its turn.

    `reference` is the id of its row of answers, or 0; `front` the newest entry of the lane that was handed out; None:
    all may have been.
    """
    _, place, size = new
    if slot is None:
        return Moved(lane, None, insert(db, now, revision, lane, new, reference))
    if front is None or slot.seq <= front or _is_below_barrier(db, lane, slot.seq):
        return Moved(lane, supersede(db, lane, slot.seq), insert(db, now, revision, lane, new, reference))
    gone = _entry(db, lane, slot.seq)
    db.execute("UPDATE slot SET place = ?, body = NULL WHERE lane = ? AND seq = ?", (place, lane, slot.seq))
    db.execute(
        "UPDATE todo SET epoch = ?, revision = ?, bytes = ?, awaited = ? WHERE lane = ? AND seq = ?",
        (*revision, size, reference, lane, slot.seq),
    )
    return Moved(lane, gone, gone._replace(revision=revision, size=size))


def _is_below_barrier(db: sqlite3.Connection, lane: int, seq: int) -> bool:
    return db.execute("SELECT 1 FROM barrier WHERE lane = ? AND seq > ?", (lane, seq)).fetchone() is not None


def insert(
    db: sqlite3.Connection, now: float, revision: Revision, lane: int, new: tuple[int, int, int], reference: int = 0
) -> Entry:
    """Let a version (key, place, size) wait at the end of a lane."""
    id, place, size = new
    seq = next_seq(db)
    db.execute("INSERT INTO slot VALUES (?, ?, ?, ?, NULL)", (lane, seq, id, place))
    db.execute(
        "INSERT INTO todo VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?)", (lane, seq, SLOT, *revision, size, now, reference)
    )
    return Entry(seq, SLOT, revision, 1, size, now)


def supersede(db: sqlite3.Connection, lane: int, seq: int) -> Entry:
    """Take a slot away, since a newer version is durable for its destination; the key stays, whatever it has."""
    entry = _entry(db, lane, seq)
    queue.count_answers(db, lane, seq, Counts(superseded=1))
    db.execute("DELETE FROM todo WHERE lane = ? AND seq = ?", (lane, seq))
    db.execute("DELETE FROM slot WHERE lane = ? AND seq = ?", (lane, seq))
    return entry


def _entry(db: sqlite3.Connection, lane: int, seq: int) -> Entry:
    row = db.execute(
        "SELECT seq, kind, epoch, revision, count, bytes, at FROM todo WHERE lane = ? AND seq = ?", (lane, seq)
    ).fetchone()
    return queue.entry_of(row)


# -- orders, dead letters, damage --------------------------------------------------------------------------------------


def make_way(db: sqlite3.Connection, source: int, target: int, seq: int) -> tuple[Counts | None, Settled | None]:
    """Before an order moves a slot to another lane: the final answer that it gets instead, and what gave way to it.

    No version passes a newer one: where the target has one to do, or was fed with one, the slot is superseded. Where
    the same version waits at the target, the slot that is moved takes its place: the barrier that moves with it has to
    wait for the answer.
    """
    row = db.execute(
        "SELECT keyed, slot.place, keyed.place, input FROM slot JOIN keyed ON keyed.id = slot.keyed"
        " WHERE lane = ? AND seq = ?",
        (source, seq),
    ).fetchone()
    if row is None:
        return None, None  # it is damaged, which shows where it is sent
    id, place, current, input = row
    there = db.execute("SELECT seq, place FROM slot WHERE keyed = ? AND lane = ?", (id, target)).fetchone()
    if there is not None and there[1] <= place:
        if there[1] == place:
            keyed_answers.give_way(db, (target, there[0]), (source, seq))
        return None, Settled(supersede(db, target, there[0]), frozenset(), None, 0, 0)
    if there is not None:
        return Counts(superseded=1), None
    is_same = not destinations(db, [source]).isdisjoint(destinations(db, [target]))
    is_fed = db.execute("SELECT 1 FROM fed WHERE lane = ? AND input = ?", (target, input)).fetchone() is not None
    if not is_fed or is_same:
        return None, None
    return Counts(superseded=1) if current > place else Counts(duplicate=1), None


def again(db: sqlite3.Connection, now: float, at: Revision, lane: int, version: Version) -> Entry | None:
    """Let the current version of a key wait on a lane, instead of one that was refused there.

    None where a version waits there already, or the key is forgotten, since it is deleted.
    """
    name = slots.name_of(version.owner, version.collection, version.key)
    row = db.execute("SELECT id, place, bytes FROM keyed WHERE name = ?", (name,)).fetchone()
    if row is None or db.execute("SELECT 1 FROM slot WHERE keyed = ? AND lane = ?", (row[0], lane)).fetchone():
        return None
    return insert(db, now, at, lane, row)


def restore(db: sqlite3.Connection, at: Revision) -> None:
    """Slots whose entries were lost are to be settled again; those of lanes that are lost are gone with them."""
    db.execute("DELETE FROM slot WHERE lane NOT IN (SELECT id FROM lane)")
    db.execute(
        "INSERT OR IGNORE INTO todo SELECT lane, seq, ?, ?, ?, 1, bytes,"
        " coalesce((SELECT max(at) FROM todo WHERE kind = ?), 0.0), 0 FROM slot JOIN keyed ON keyed.id = slot.keyed",
        (SLOT, *at, SLOT),
    )
