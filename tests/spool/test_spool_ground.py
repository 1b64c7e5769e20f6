"""Methods of parts that are a transaction of their own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from shipper.spool.ground import Part, query, urgent
from shipper.spool.spool import open_spool


def _set(db: sqlite3.Connection, key: str, *, value: str) -> None:
    db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))


def _get(db: sqlite3.Connection, key: str) -> str:
    (value,) = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return str(value)


async def test_a_method_made_of_a_transaction_runs_it_with_its_arguments(tmp_path: Path) -> None:
    class Meta(Part):
        set = urgent(_set)
        get = query(_get)

    async with open_spool(tmp_path, None) as spool:
        meta = Meta(spool)
        await meta.set("colour", value="green")
        assert await meta.get("colour") == "green"
