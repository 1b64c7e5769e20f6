"""Versions get places above what a destination has: after its fence, and where it has keys that are not here.

Pure functions of the database. What is given a place again goes to all that its input feeds, as a new version does.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from shipper.sdk.state import Change, Version, epoch_of
from shipper.spool import feeding, keyed, places, slots, waiting
from shipper.spool.keyed import Admission, Arrival, Key
from shipper.spool.queue import Moved, Settlement
from shipper.spool.schema import get_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Revision


def reissue(
    db: sqlite3.Connection, sealer: Sealer, now: float, lane: int, seq: int, settlement: Settlement, since: int
) -> list[Moved]:
    """Give the version that a settlement is about a place above the destination's fence, if it is to be had there.

    That is the last word of this process, whose epochs are those from `since` on, about an own key; and the destination
    is one of the active revision. It goes to all that its input feeds, and supersedes what is in the slot. Of any other
    version the destination has a newer one. What is said of own keys later is above the fence in any case.
    """
    if settlement.fence is None:
        return []
    fence, _ = settlement.fence
    row = db.execute(
        "SELECT name, keyed.id, input, keyed.place, digest, deleted, keyed.bytes, keyed.body FROM slot"
        " JOIN keyed ON keyed.id = slot.keyed WHERE lane = ? AND seq = ? AND slot.place = ?"
        " AND keyed.place = slot.place AND own",
        (lane, seq, settlement.place),
    ).fetchone()
    active = get_meta(db, "active")
    if row is None or active is None:
        return []
    name, has, body = row[0], Key(*row[1:-1]), row[-1]
    lanes = feeding.lanes_of(db, has.input)
    is_active = not waiting.destinations(db, [lane]).isdisjoint(waiting.destinations(db, lanes))
    if not places.raise_above(db, max(fence, has.place)) or epoch_of(has.place) < since or not is_active:
        return []
    return _give_again(db, sealer, now, Arrival(Revision.parse(active), has.input, lanes, ()), (name, has, body), fence)


def _give_again(
    db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, stored: tuple[bytes, Key, bytes], above: int
) -> list[Moved]:
    """Give the current version of a key (its name, what it has, and its body) another place, above this one."""
    name, has, body = stored
    try:
        batch = slots.unseal(sealer, name, has.place, body)
    except Damaged:
        return []
    version = slots.version_in(batch)
    again = version._replace(place=places.next_place(db, max(above, has.place)))
    document, moved = None if version.deleted else batch.body[:-1], list[Moved]()
    keyed.admit(db, sealer, now, arrival, Admission(name, has, again, document), moved)
    return moved


class Here(NamedTuple):
    """What is here of a key, deleted or not."""

    input: str
    place: int
    is_own: bool


def here(db: sqlite3.Connection, version: Version) -> Here | None:
    """What is here of the key of a version."""
    name = slots.name_of(version.owner, version.collection, version.key)
    row = db.execute("SELECT input, place, own FROM keyed WHERE name = ?", (name,)).fetchone()
    return None if row is None else Here(row[0], row[1], bool(row[2]))


def lift(db: sqlite3.Connection, sealer: Sealer, now: float, at: Revision, version: Version) -> list[Moved]:
    """Give the current version of the key of a version a place above that."""
    name = slots.name_of(version.owner, version.collection, version.key)
    row = db.execute(
        "SELECT id, input, place, digest, deleted, bytes, body FROM keyed WHERE name = ?", (name,)
    ).fetchone()
    if row is None or not places.raise_above(db, version.place):
        return []
    has = Key(*row[:-1])
    arrival = Arrival(at, has.input, feeding.lanes_of(db, has.input), ())
    return _give_again(db, sealer, now, arrival, (name, has, row[-1]), version.place)


def bury(
    db: sqlite3.Connection, sealer: Sealer, now: float, at: Revision, input: str, lane: int, version: Version
) -> list[Moved]:
    """Delete a key that is not here at a destination that has this version of it."""
    if not places.raise_above(db, version.place):
        return []
    change = Change(version.collection, version.key, None, version.owner)
    deletion = slots.version_of(change, places.next_place(db, version.place))
    name = slots.name_of(deletion.owner, deletion.collection, deletion.key)
    moved: list[Moved] = []
    keyed.admit(db, sealer, now, Arrival(at, input, [lane], ()), Admission(name, None, deletion, None), moved)
    return moved
