"""The spool as a value: the rows of its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from shipper.spool import database, schema
from tests.databases import in_memory

TABLES = (
    *("meta", "revision", "lane", "contact", "batch", "todo", "rest", "barrier", "settled", "credential"),
    *("dead_letter", "standing_order", "keyed", "slot", "place_epoch", "holding", "fed", "request", "sqlite_sequence"),
)
Rows = tuple[tuple[tuple[Any, ...], ...], ...]
"""By table, as in `TABLES`."""


class Plain:
    """Seals nothing: equal values have equal rows."""

    def seal(self, kind: str, row: int | str, epoch: int, revision: int, plain: bytes) -> bytes:
        return plain

    def open(self, kind: str, row: int | str, epoch: int, revision: int, sealed: bytes) -> bytes:
        return sealed


class Store:
    """One database, which can be set to any state."""

    def __init__(self) -> None:
        self.db = in_memory(cached_statements=500)
        schema.prepare(self.db)
        self.db.execute("CREATE TABLE damage (report TEXT NOT NULL)")
        self._rows: Rows = ((),) * len(TABLES)
        self._changes = -1
        self.rows()

    def rows(self) -> Rows:
        """Its present state, which is looked at again only after a change."""
        if self._changes != self.db.total_changes:
            self._rows = tuple(tuple(self.db.execute(f"SELECT * FROM {table}")) for table in TABLES)
            self._changes = self.db.total_changes
        return self._rows

    def fill(self, fill: Callable[[sqlite3.Connection], None]) -> None:
        """Begins again with the rows of an earlier version."""
        for table in {*TABLES, *database.columns(self.db)} - {"sqlite_sequence"}:
            self.db.execute(f"DROP TABLE {table}")
        fill(self.db)
        schema.prepare(self.db)
        self._changes = -1

    def become(self, rows: Rows) -> None:
        """Takes this state."""
        self.rows()
        for table, wanted, has in zip(TABLES, rows, self._rows, strict=True):
            if wanted != has:
                self.db.execute(f"DELETE FROM {table}")
                if wanted:
                    marks = ", ".join("?" * len(wanted[0]))
                    self.db.executemany(f"INSERT INTO {table} VALUES ({marks})", wanted)
        self._rows, self._changes = rows, self.db.total_changes
