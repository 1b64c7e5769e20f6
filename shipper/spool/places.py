"""Places of versions: a counter that begins at each start with a new epoch.

An epoch is above those that are stored, the clock in seconds, and those that destinations have reported. A database
that went back gives other places than before.
"""

from __future__ import annotations

import sqlite3

from shipper.sdk.state import LARGEST_PLACE, epoch_of, place_of
from shipper.spool.schema import get_meta, set_meta

_LARGEST_SEQUENCE = 2**31 - 1
_LARGEST_EPOCH = epoch_of(LARGEST_PLACE)


def begin(db: sqlite3.Connection, now: float) -> int:
    """Begin a new epoch of places; returns it."""
    (highest,) = db.execute("SELECT coalesce(max(place), 0) FROM keyed WHERE owner = ''").fetchone()
    epoch = max(int(get_meta(db, "place_epoch") or 0), int(now), epoch_of(highest)) + 1
    return _set_epoch(db, epoch)


def has_given(db: sqlite3.Connection, owner: str, place: int) -> bool:
    """Whether this directory has given the place to a key of the owner; not a newer copy of it, or another one.

    Another shipper that started in the same second has the same epoch: so it is also asked who writes the owner's keys.
    """
    epoch, sequence = epoch_of(place), place - place_of(epoch_of(place), 0)
    if epoch == int(get_meta(db, "place_epoch") or 0):
        last = int(get_meta(db, "place_sequence") or 0)
    else:
        (last,) = db.execute("SELECT last FROM place_epoch WHERE epoch = ?", (epoch,)).fetchone() or (-1,)
    return sequence <= last and (not owner or _gives(db, owner))


def _gives(db: sqlite3.Connection, owner: str) -> bool:
    """Whether places of an owner's keys are given here: those of a program at a door, and not of a shipper's."""
    return db.execute("SELECT 1 FROM keyed WHERE owner = ? AND own LIMIT 1", (owner,)).fetchone() is not None


def raise_above(db: sqlite3.Connection, place: int) -> bool:
    """Have all places that are given from now on be above this one; False if there are none."""
    if epoch_of(place) >= _LARGEST_EPOCH:
        return False
    if place >= place_of(int(get_meta(db, "place_epoch") or 0), int(get_meta(db, "place_sequence") or 0)):
        _set_epoch(db, epoch_of(place) + 1)
    return True


def _set_epoch(db: sqlite3.Connection, epoch: int) -> int:
    epoch = min(epoch, _LARGEST_EPOCH)
    ended = int(get_meta(db, "place_epoch") or 0), min(int(get_meta(db, "place_sequence") or 0), _LARGEST_SEQUENCE)
    db.execute("UPDATE place_epoch SET last = ? WHERE epoch = ?", ended[::-1])
    set_meta(db, "place_epoch", epoch)
    set_meta(db, "place_sequence", 0)
    db.execute("INSERT OR IGNORE INTO place_epoch (epoch) VALUES (?)", (epoch,))
    return epoch


def next_place(db: sqlite3.Connection, above: int) -> int:
    """Give a place above this one and above all that were given."""
    raise_above(db, above)
    row = db.execute("UPDATE meta SET value = value + 1 WHERE key = 'place_sequence' RETURNING value").fetchone()
    if row[0] > _LARGEST_SEQUENCE:
        _set_epoch(db, int(get_meta(db, "place_epoch")) + 1)
        return next_place(db, above)
    return place_of(int(get_meta(db, "place_epoch")), row[0])
