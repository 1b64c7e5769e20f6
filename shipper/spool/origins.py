"""The secrets of the origins whose events may still be stored (`sdk/origins`). Functions of the database.

The origin of a process is stored with its first batch, in the same transaction.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

from shipper.sdk.origins import SECRET_BYTES, Origin
from shipper.spool.seal import Damaged, Sealer

MANY: Final = 64
"""Origins of which none is forgotten."""

_KIND = "origin"
_USED = "SELECT origin FROM batch UNION SELECT origin FROM rest"


def keep(db: sqlite3.Connection, sealer: Sealer, origin: Origin) -> None:
    """Stores an origin, unless it is stored."""
    if db.execute("SELECT 1 FROM origin WHERE id = ?", (origin.id,)).fetchone() is None:
        sealed = sealer.seal(_KIND, origin.id.hex(), 0, 0, origin.secret)
        db.execute("INSERT INTO origin VALUES (?, ?)", (origin.id, sealed))


def load(db: sqlite3.Connection, sealer: Sealer) -> dict[bytes, Origin]:
    """Returns the stored origins, by id, without those that are damaged."""
    found: dict[bytes, Origin] = {}
    for id, sealed in db.execute("SELECT id, secret FROM origin").fetchall():
        with suppress(Damaged):
            secret = sealer.open(_KIND, id.hex(), 0, 0, sealed)
            if len(secret) == SECRET_BYTES:
                found[id] = Origin(secret)
    return found


def forget_unused(db: sqlite3.Connection) -> None:
    """Forgets origins of which no event is stored, once there are many."""
    if db.execute("SELECT count(*) FROM origin").fetchone()[0] > MANY:
        db.execute(f"DELETE FROM origin WHERE id NOT IN ({_USED})")
