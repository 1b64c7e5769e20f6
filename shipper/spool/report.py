"""The report of a repair, and the remains of lost rows."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

Key = tuple[Any, ...]
Gap = tuple[Key | None, Key | None]


@dataclass(slots=True)
class Report:
    """The moved and lost rows of each table.

    It is stored in the new database until it is handled, so that a crash cannot hide a loss.
    """

    rows: Counter[str] = field(default_factory=Counter)
    """Rows that were moved."""
    lost: Counter[str] = field(default_factory=Counter)
    """Lost rows; a gap counts as one, but may have held many, or none."""
    gaps: dict[str, list[Gap]] = field(default_factory=dict)
    """Ranges of keys in which an unknown number of rows was lost, from a key (whose row may have been moved) to below
    another; None is the end of the table, and a key may be a prefix."""
    kept: list[str] = field(default_factory=list)
    """The files, in the state directory, that hold the remains."""

    @property
    def intact(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost

    def store(self, db: sqlite3.Connection) -> None:
        """Stores the report in a database, if anything was lost."""
        if self.lost:
            text = json.dumps([self.rows, self.lost, self.gaps, self.kept], default=_as_base64)
            db.execute("INSERT INTO damage VALUES (?)", (text,))

    @classmethod
    def load(cls, db: sqlite3.Connection) -> Report | None:
        """Returns all losses that were not handled yet, or None."""
        report = cls()
        for (text,) in db.execute("SELECT report FROM damage ORDER BY rowid").fetchall():
            report._add(text)
        return None if report.intact else report

    def _add(self, text: str) -> None:
        try:
            rows, lost, gaps, kept = json.loads(text)
            self.rows = Counter(rows)
            self.lost.update(lost)
            for table, found in gaps.items():
                self.gaps.setdefault(table, []).extend((_key(low), _key(high)) for low, high in found)
            self.kept += kept
        except (ValueError, TypeError, AttributeError, RecursionError):
            self.lost["damage"] += 1  # this report is damaged itself

    @staticmethod
    def forget(db: sqlite3.Connection) -> None:
        """Deletes the stored reports; run it in the transaction that handles them."""
        db.execute("DELETE FROM damage")


def _key(stored: list[Any] | None) -> Key | None:
    return None if stored is None else tuple(stored)


class Remains:
    """A file for readable parts of lost rows, one JSON object a line; made with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    @property
    def names(self) -> list[str]:
        """Returns the name of the file, if it was made."""
        return [self._path.name] if self._file else []

    def add(self, table: str, key: Key, columns: dict[str, Any]) -> None:
        """Writes the readable columns of a row; bytes as base64."""
        if self._file is None:
            self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w")
        json.dump({"table": table, "key": key, "columns": columns}, self._file, default=_as_base64)
        self._file.write("\n")

    def close(self) -> None:
        """Makes the file durable and closes it."""
        if self._file is not None:
            with self._file as file:
                file.flush()
                os.fsync(file.fileno())


def _as_base64(value: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(value).decode()}
