"""Slots in rows: the one version of a key that waits on a lane. How they are filled says `waiting`.

A version is sealed for its key and its place, wherever it stands: as the current one of its key, or, once there is a
newer one that this lane is not to have, as a copy in the slot. Its id is that of its key and its place.
"""

from __future__ import annotations

import sqlite3

from shipper.sdk.event import Batch
from shipper.sdk.state import DELETED, Change, Version, digest_of, digest_of_names
from shipper.spool import holdings
from shipper.spool.seal import Damaged, Sealer

NOTHING = Batch.documents(())
NAME_BYTES = 16


def name_of(owner: str, collection: str, key: str) -> bytes:
    """The digest that names a key; as long as the origin of a batch, since it is that of its versions' ids."""
    return digest_of_names(owner, collection, key)[:NAME_BYTES]


def seal(sealer: Sealer, name: bytes, version: Version, document: bytes | None) -> bytes:
    """A version as it is stored; `name` is that of its key."""
    batch = Batch.documents([DELETED if document is None else document]).with_columns(versions=[version])
    return sealer.seal("keyed", _row(name, version.place), 0, 0, batch.pack())


def unseal(sealer: Sealer, name: bytes, place: int, sealed: bytes, limit: int | None = None) -> Batch:
    """A version as a batch of one event; raises Damaged, or Oversized."""
    packed = sealer.open("keyed", _row(name, place), 0, 0, sealed)
    try:
        batch = Batch.unpack(packed, origin=name, seq=place, limit=limit)
    except ValueError as error:
        raise Damaged(str(error)) from None
    if batch.versions is None or batch.count != 1:
        raise Damaged("it is no version of a key")
    return batch


def version_in(batch: Batch) -> Version:
    """Of a batch that `unseal` made."""
    assert batch.versions is not None
    (version,) = batch.versions
    assert version is not None
    return version


def _row(name: bytes, place: int) -> str:
    return f"{name.hex()}:{place}"


def version_of(change: Change, place: int) -> Version:
    """The version that a change becomes."""
    digest = digest_of(change.document)
    return Version(change.owner, change.collection, change.key, place, digest, change.document is None)


def load(db: sqlite3.Connection, sealer: Sealer, lane: int, seq: int, limit: int | None = None) -> Batch:
    """What waits in a slot; no events where it was settled, or superseded, since. Raises Damaged, or Oversized."""
    row = db.execute(
        "SELECT name, slot.place, CAST(coalesce(slot.body, keyed.body) AS BLOB), slot.body IS NULL, keyed.place"
        " FROM slot LEFT JOIN keyed ON keyed.id = slot.keyed WHERE slot.lane = ? AND slot.seq = ?",
        (lane, seq),
    ).fetchone()
    if row is None:
        if db.execute("SELECT 1 FROM todo WHERE lane = ? AND seq = ?", (lane, seq)).fetchone() is None:
            return NOTHING
        raise Damaged(f"slot {seq} is missing")
    name, place, sealed, is_current, current = row
    if name is None or (is_current and place != current):
        raise Damaged(f"the key of slot {seq} is missing")
    return unseal(sealer, name, place, sealed, limit)


def is_renewed(db: sqlite3.Connection, lane: int, seq: int, place: int | None) -> bool:
    """Whether another version waits in a slot than the one at this place."""
    if place is None:
        return False
    row = db.execute("SELECT place FROM slot WHERE lane = ? AND seq = ?", (lane, seq)).fetchone()
    return row is not None and row[0] != place


def remove(db: sqlite3.Connection, lane: int, seq: int) -> None:
    """Empty a slot; a key that is deleted, and of which nothing waits any more, need not be remembered for it."""
    row = db.execute("DELETE FROM slot WHERE lane = ? AND seq = ? RETURNING keyed", (lane, seq)).fetchone()
    if row is not None:
        holdings.settled(db, row[0])
