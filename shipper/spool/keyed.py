"""Versions of keyed state are admitted, each as the current one of its key. Pure functions of the database.

    places     the counter that gives each version its place
    waiting    the slots of lanes, and what a newer version does to them
    feeding    the cut: new destinations, and inputs that are removed
    lifting    versions get places above what a destination has

A key has one current version, and on each lane that it is to go to at most one slot, so what is stored grows with keys
and with unsettled destinations, never with updates. What another input says of a key is a new version, also if it is
the same: the lanes of that one may not have it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from shipper.sdk.state import Change, Kept, Quota, Version, digest_of, point_of
from shipper.spool import holdings, keyed_answers, places, queue, slots, waiting
from shipper.spool.queue import Moved, NotActive
from shipper.spool.schema import get_meta
from shipper.spool.seal import Sealer
from shipper.values import Revision, StateFigures


class Arrival(msgspec.Struct, frozen=True):
    """Changes that enter together, in one transaction.

    `fronts`: by lane, the newest entry that was handed out; of a lane that is not there, all may have been.
    """

    revision: Revision
    input: str
    lanes: Sequence[int]
    changes: Sequence[Change]
    positions: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    expect: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    fronts: Mapping[int, int] = msgspec.field(default_factory=dict)
    quota: Quota | None = None
    """Of each owner of these changes, with all owners below it (`owner/…`)."""
    awaited: bool = False
    """Whether the final answers for these versions are to be kept: see `keyed_answers`."""


class Admitted(NamedTuple):
    """The answers for changes, and what lanes have to do since."""

    kept: tuple[Kept, ...]
    moved: list[Moved]


class Key(NamedTuple):
    """A key as it is stored."""

    id: int
    input: str
    place: int
    digest: bytes
    deleted: bool
    size: int


def signed(point: int) -> int:
    """A point as a column holds it."""
    return point - (1 << 64) if point >> 63 else point


def keep(db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival) -> Admitted:
    """Admit changes, and store the input's positions. Raises NotActive or Outdated, and has stored nothing then."""
    if get_meta(db, "active") != str(arrival.revision):
        raise NotActive
    queue.require_positions(db, arrival.input, arrival.expect)
    moved: list[Moved] = []
    kept = tuple([_keep(db, sealer, now, arrival, change, moved) for change in arrival.changes])
    queue.set_positions(db, arrival.input, arrival.positions)
    return Admitted(kept, moved)


def adopt(db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, change: Change) -> list[Moved]:
    """Take a version that a destination has under its place, unless a newer one is here."""
    moved: list[Moved] = []
    _keep(db, sealer, now, arrival, change, moved)
    return moved


def _keep(
    db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, change: Change, moved: list[Moved]
) -> Kept:
    name = slots.name_of(change.owner, change.collection, change.key)
    row = db.execute("SELECT id, input, place, digest, deleted, bytes FROM keyed WHERE name = ?", (name,)).fetchone()
    has = None if row is None else Key(*row)
    known = _known(has, change)
    is_from_another = has is not None and known is not None and not known.fenced and has.input != arrival.input
    if known is not None and not is_from_another:
        is_here = has is not None and change.place is not None and not known.fenced
        return _again(db, now, arrival, has, change, known, moved) if has is not None and is_here else known
    place = change.place if change.place is not None else places.next_place(db, 0 if has is None else has.place)
    version = slots.version_of(change, place)
    new = Admission(name, has, version, change.document, change.place is None)
    if not _has_room(db, arrival.quota, new):
        return Kept(place, version.digest, False, False, is_full=True)
    admit(db, sealer, now, arrival, new, moved)
    kept = Kept(place, version.digest, known is None or change.place is None, False)
    return keyed_answers.with_answers(db, arrival.input, version, kept) if arrival.awaited else kept


def _again(
    db: sqlite3.Connection, now: float, arrival: Arrival, has: Key, change: Change, known: Kept, moved: list[Moved]
) -> Kept:
    """The answer for a version that came again. Where its answers are lost, as by damage, it is sent once more."""
    if arrival.awaited and not keyed_answers.is_awaited(db, has.input, change, has.place):
        reference = keyed_answers.add(db, has.input, change, has.place, len(arrival.lanes))
        there = {slot.lane: slot for slot in waiting.slots_of(db, has.id)}
        for lane in arrival.lanes:
            slot = there.get(lane)
            if slot is None or slot.is_copy:
                waits = has.id, has.place, has.size
                front = arrival.fronts.get(lane)
                moved.append(waiting.put(db, now, arrival.revision, lane, slot, waits, reference, front))
            else:
                db.execute("UPDATE todo SET awaited = ? WHERE lane = ? AND seq = ?", (reference, lane, slot.seq))
    return keyed_answers.with_answers(db, has.input, change, known)


def _known(has: Key | None, change: Change) -> Kept | None:
    """The answer for a change that is no new version; None: it is one.

    The deletion of a key that is not here is one where a program wants it: a destination may have the key, though this
    directory has lost it. An input of own keys knows what it has given.
    """
    digest = digest_of(change.document)
    if has is None:
        is_nothing = change.place is None and change.document is None and not change.owner
        return Kept(0, digest, False, False) if is_nothing else None
    is_same = has.digest == digest and bool(has.deleted) == (change.document is None)
    if change.place is None:
        return Kept(has.place, digest, False, False) if is_same else None
    if change.place > has.place:
        return None
    return Kept(has.place, has.digest, False, change.place < has.place or not is_same)


class Admission(NamedTuple):
    """A new version of a key, and what the key `has` so far."""

    name: bytes
    has: Key | None
    version: Version
    document: bytes | None
    is_own: bool = True
    """Whether its place was given here."""


def _has_room(db: sqlite3.Connection, quota: Quota | None, new: Admission) -> bool:
    """Whether an owner may have this too; the deletion of a key that is there always."""
    if quota is None:
        return True
    before = None if new.has is None else _held(new.has)
    size = None if new.document is None else len(new.document)
    return holdings.has_room(db, quota, new.version.owner, before, size)


def _held(has: Key | None) -> Quota:
    """What a key counts for, as it is so far."""
    return Quota(0, 0) if has is None or has.deleted else Quota(1, has.size)


def admit(
    db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, new: Admission, moved: list[Moved]
) -> None:
    """Store a new version, and have it wait on the lanes of an arrival; `moved` gets what lanes have to do since."""
    there = [] if new.has is None else waiting.slots_of(db, new.has.id)
    mine = {slot.lane: slot for slot in there if slot.lane in arrival.lanes}
    others = [slot for slot in there if slot.lane not in arrival.lanes]
    destinations = waiting.destinations(db, arrival.lanes) if others else frozenset()
    elsewhere = [slot for slot in others if slot.destination not in destinations]
    waiting.keep_old(db, [slot for slot in elsewhere if not slot.is_copy])
    reference = _await(db, arrival, new)
    id, size = _store(db, sealer, arrival.input, new)
    for slot in others:
        if slot.destination in destinations:
            moved.append(Moved(slot.lane, waiting.supersede(db, slot.lane, slot.seq), None))
    for lane in arrival.lanes:
        waits = id, new.version.place, size
        front = arrival.fronts.get(lane)
        moved.append(waiting.put(db, now, arrival.revision, lane, mine.get(lane), waits, reference, front))
    holdings.settled(db, id)


def _await(db: sqlite3.Connection, arrival: Arrival, new: Admission) -> int:
    """Have the answers for a new version kept, and not those for the one before; what its entries name for that."""
    if new.has is not None:
        keyed_answers.forget(db, new.has.input, new.version, new.has.place)
    if not arrival.awaited:
        return 0
    return keyed_answers.add(db, arrival.input, new.version, new.version.place, len(arrival.lanes))


def _store(db: sqlite3.Connection, sealer: Sealer, input: str, new: Admission) -> tuple[int, int]:
    """Make it the current version; the id of its key, and what its body takes, in bytes."""
    version = new.version
    sealed = slots.seal(sealer, new.name, version, new.document)
    values = (version.place, version.digest, version.deleted, new.is_own, len(sealed), sealed)
    held = Quota(0, 0) if version.deleted else Quota(1, len(sealed))
    holdings.note(db, version.owner, _held(new.has), held, known=new.has is None)
    if new.has is not None:
        db.execute(
            "UPDATE keyed SET place = ?, digest = ?, deleted = ?, own = iif(own = 1, 1, 2) * ?, bytes = ?, body = ?,"
            " settled = NULL WHERE id = ?",
            (*values, new.has.id),
        )
        if new.has.input != input:
            db.execute("UPDATE keyed SET input = ? WHERE id = ?", (input, new.has.id))
        return new.has.id, len(sealed)
    point = signed(point_of(version.collection, version.key))
    row = db.execute(
        "INSERT INTO keyed (name, owner, collection, point, input, place, digest, deleted, own, bytes, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (new.name, version.owner, version.collection, point, input, *values),
    ).fetchone()
    return int(row[0]), len(sealed)


def figures(db: sqlite3.Connection) -> StateFigures:
    """Counted over indexes: some milliseconds for 100,000 keys."""
    return StateFigures(*db.execute("SELECT (SELECT count(*) FROM keyed), (SELECT count(*) FROM slot)").fetchone())
