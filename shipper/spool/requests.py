"""Requests that stay the same: which events one has, in which order, until all of them have their final answers.

An output that asks for them (`Feeding.stable`) gets a request a second time, after a lost answer or a crash, with the
same events and the same id. So the composition is durable before the request begins. It names entries of a lane, and of
each the first and the last item: only what the destination finds too large is ever divided within an entry.

    composed ──> sent, and sent again ──> answered: in the transaction that stores the last answers, the row goes

Events that leave the queue on another way, by an order or by damage, are missing from then on; the rest keeps the id.
Entries that an order moves to another lane take their request along, unless some stay behind: what was moved is free
then. A row that is lost by damage frees its events: they are
composed anew, under another id.

Pure functions of the database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from shipper.spool import queue
from shipper.spool.queue import Entry


class Part(NamedTuple):
    """The events of the entry `seq` from the item `first` to the item `last`."""

    seq: int
    first: int
    last: int

    def meets(self, other: Part) -> bool:
        """Whether both have an item of the same entry."""
        return self.first <= other.last and other.first <= self.last


class Composed(NamedTuple):
    """A request whose composition is durable. `entries` are those that still wait, in the order of its parts."""

    name: str
    parts: list[Part]
    entries: list[Entry]


def compose(db: sqlite3.Connection, lane: int, name: str, parts: Sequence[Part], instead: str | None = None) -> bool:
    """Stores the composition of a request, in the place of one that was too large.

    Returns False, and changes nothing, if another request has one of its events: an order has moved that one here.
    """
    by_seq = {part.seq: part for part in parts}
    others = [part for other, those in _of_lane(db, lane).items() if other != instead for part in those]
    if any(other.seq in by_seq and by_seq[other.seq].meets(other) for other in others):
        return False
    db.execute("DELETE FROM request WHERE name = ?", (instead,))
    db.execute("INSERT INTO request VALUES (?, ?, ?)", (name, lane, msgspec.json.encode(parts).decode()))
    return True


def of_lane(db: sqlite3.Connection, lane: int) -> list[Composed]:
    """Returns the requests of a lane of which events wait, in the order in which they were composed."""
    found = [Composed(name, parts, _entries_of(db, lane, parts)) for name, parts in _of_lane(db, lane).items()]
    return [one for one in found if one.entries]


def answered(db: sqlite3.Connection, names: Collection[str]) -> None:
    """Forgets requests that have all their answers."""
    db.executemany("DELETE FROM request WHERE name = ?", [(name,) for name in names])


def follow(db: sqlite3.Connection, lane: int, target: int | None) -> None:
    """After an order: has requests go where all that is left of them went, and forgets those of which nothing is."""
    for name, parts in _of_lane(db, lane).items():
        if _entries_of(db, lane, parts):
            continue
        if target is not None and _entries_of(db, target, parts):
            db.execute("UPDATE request SET lane = ? WHERE name = ?", (target, name))
        else:
            answered(db, [name])


def forget(db: sqlite3.Connection, lane: int) -> None:
    """Forgets the requests of a lane that is gone."""
    db.execute("DELETE FROM request WHERE lane = ?", (lane,))


def read_parts(text: str) -> list[Part]:
    """Reads parts as they are stored. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(text, type=list[Part])


def _of_lane(db: sqlite3.Connection, lane: int) -> Mapping[str, list[Part]]:
    rows = db.execute("SELECT name, parts FROM request WHERE lane = ? ORDER BY rowid", (lane,)).fetchall()
    return {name: read_parts(parts) for name, parts in rows}


def _entries_of(db: sqlite3.Connection, lane: int, parts: Sequence[Part]) -> list[Entry]:
    seqs = dict.fromkeys(part.seq for part in parts)
    return [entry for seq in seqs for entry in queue.window(db, lane, seq - 1, 1) if entry.seq == seq]
