"""The report of a repair."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter

import msgspec


class Report(msgspec.Struct):
    """The losses of each table.

    It is stored in the new database until it is handled, so that a crash cannot hide a loss.
    """

    lost: Counter[str] = msgspec.field(default_factory=Counter)
    """Lost rows, at most; unless all are counted, an unknown number of them counts as one."""
    kept: list[str] = msgspec.field(default_factory=list)
    """The files, in the state directory, that hold what was lost."""
    is_counted: bool = True
    """Whether each lost row is counted."""

    def add(self, table: str, lost: int, *, is_counted: bool) -> None:
        """Adds the losses of a table, if any."""
        if lost:
            self.lost[table] += lost
            self.is_counted = self.is_counted and is_counted

    @property
    def intact(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost

    def store(self, db: sqlite3.Connection) -> None:
        """Stores the report in a database, if anything was lost."""
        if self.lost:
            db.execute("INSERT INTO damage VALUES (?)", (json.dumps([self.lost, self.kept, self.is_counted]),))

    @classmethod
    def load(cls, db: sqlite3.Connection) -> Report | None:
        """Returns all losses that were not handled yet, or None."""
        report = cls()
        for (text,) in db.execute("SELECT report FROM damage ORDER BY rowid").fetchall():
            report._read(text)
        return None if report.intact else report

    def _read(self, text: str) -> None:
        try:
            lost, kept, is_counted = json.loads(text)
            self.lost.update(lost)
            self.kept += kept
            self.is_counted = self.is_counted and is_counted
        except (ValueError, TypeError, AttributeError, RecursionError):
            self.lost["damage"] += 1  # this report is damaged itself

    @staticmethod
    def forget(db: sqlite3.Connection) -> None:
        """Deletes the stored reports; run it in the transaction that handles them."""
        db.execute("DELETE FROM damage")
