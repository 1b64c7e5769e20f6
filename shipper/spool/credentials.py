"""Which credentials are in use, and which are released.

    offered ──> used ──> released ──> listed ──> reported
       │                 │            │          that `drained` was written
       │                 │            a `drained` lists it; the next process lists it again
       │                 nothing refers to it any more
       └──> forgotten: its revision was never active

Only the process that sent an ack knows whether it was written, so `reported` is stored with the next `drained`. An id
that is listed twice over a restart does no harm; one that no written ack lists would never be revoked.

A credential is in use while the active revision, a received one, or a lane refers to it. After that only a keyed
fingerprint stays: an id that was ever active names one secret for ever.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec

from shipper.spool.schema import get_meta
from shipper.values import LARGEST_COUNT, Revision

Before = Literal["released", "listed", "reported"]
"""The state of ids that acks have listed: to be listed again, not known to be written yet, or written."""


class Forgotten(NamedTuple):
    """The credentials that a nack releases, and those of them that were never active, so that their ids are free
    again."""

    released: list[str]
    never_used: list[str]


def offer(db: sqlite3.Connection, fingerprints: Mapping[str, bytes]) -> None:
    """Stores the credentials of a received revision."""
    db.executemany(
        "INSERT INTO credential VALUES (?, ?, 'offered')"
        " ON CONFLICT (id) DO UPDATE SET state = 'used' WHERE state != 'offered'",
        list(fingerprints.items()),
    )


def use(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Marks the credentials of a revision that becomes active as used."""
    db.executemany("UPDATE credential SET state = 'used' WHERE id = ?", [(id,) for id in ids])


def may_be_bound(db: sqlite3.Connection, id: str) -> bool:
    """Whether events may be bound to this credential: it was offered, and not released since."""
    row = db.execute("SELECT 1 FROM credential WHERE id = ? AND state IN ('used', 'offered')", (id,)).fetchone()
    return row is not None


def fingerprints(db: sqlite3.Connection) -> dict[str, bytes]:
    """Returns the keyed fingerprint of every id that was ever in use."""
    return dict(db.execute("SELECT id, fingerprint FROM credential").fetchall())


def in_use(db: sqlite3.Connection, still_used: Collection[str] = ()) -> list[str]:
    """Returns the ids to which the active revision, a received one, a lane, or an input that is not closed refers."""
    ids = set(still_used) | _ids_of_lanes(db)
    active = get_meta(db, "active")
    at = Revision.parse(active) if active else Revision(0, -1)
    for (refers,) in db.execute(
        "SELECT credentials FROM revision WHERE (epoch, number) = (?, ?)"
        " UNION ALL SELECT credentials FROM revision WHERE stage = 'received' AND (epoch, number) > (?, ?)",
        (*at, *at),
    ):
        ids.update(msgspec.json.decode(refers))
    return sorted(ids)


def named_above(db: sqlite3.Connection, at: Revision) -> set[str]:
    """Returns the ids that newer revisions name, replaced ones included.

    A supervisor does not heed an older ack that lists one of them, which may have crossed the newer policy in the pipe.
    """
    rows = db.execute("SELECT credentials FROM revision WHERE (epoch, number) > (?, ?)", at)
    return {id for (names,) in rows for id in msgspec.json.decode(names)}


def _ids_of_lanes(db: sqlite3.Connection) -> set[str]:
    """Returns the ids that lanes need to deliver their entries."""
    return _ids(db, "SELECT DISTINCT each.value AS id FROM lane, json_each(lane.credentials) AS each")


def _ids(db: sqlite3.Connection, query: str) -> set[str]:
    """Returns the column `id` of a query. It is fetched as one row, since each fetch releases the interpreter lock."""
    (ids,) = db.execute(f"SELECT json_group_array(id) FROM ({query})").fetchone()
    return set(msgspec.json.decode(ids))


def release(db: sqlite3.Connection, still_used: Collection[str]) -> list[str]:
    """Marks and returns the ids to which nothing refers any more; none while no revision is active."""
    if get_meta(db, "active") is None:
        return []
    used = _ids(db, "SELECT id FROM credential WHERE state IN ('used', 'offered')")
    free = sorted(used.difference(in_use(db, still_used)))
    db.executemany("UPDATE credential SET state = 'released' WHERE id = ?", [(id,) for id in free])
    return free


def listed(db: sqlite3.Connection, before: Before, used: Collection[str], most_bytes: int = LARGEST_COUNT) -> list[str]:
    """Returns the released ids that an ack lists; `before` is the state of the ids that earlier acks have listed.

    An id that a newer revision has brought again is among `used`, and waits for a later ack. So do ids that would
    make the list longer than `most_bytes` as JSON (`unlisted`).
    """
    db.execute("UPDATE credential SET state = ? WHERE state = 'listed'", (before,))
    free = unlisted(db, used)
    sizes = accumulate(len(msgspec.json.encode(id)) + 1 for id in free)
    free = [id for id, size in zip(free, sizes, strict=True) if size <= most_bytes]
    db.executemany("UPDATE credential SET state = 'listed' WHERE id = ?", [(id,) for id in free])
    return free


def unlisted(db: sqlite3.Connection, used: Collection[str]) -> list[str]:
    """Returns the released ids that no ack has listed."""
    return sorted(_ids(db, "SELECT id FROM credential WHERE state = 'released'").difference(used))


def forget(db: sqlite3.Connection, ids: Collection[str], still_used: Collection[str]) -> Forgotten:
    """After a nack, forgets those ids to which nothing refers; the fingerprint of one that was ever active stays."""
    free = sorted(set(ids).difference(in_use(db, still_used)))
    db.executemany("DELETE FROM credential WHERE id = ? AND state = 'offered'", [(id,) for id in free])
    return Forgotten(free, sorted(set(free).difference(fingerprints(db))))
