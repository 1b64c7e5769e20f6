"""Databases of tests, in memory."""

from __future__ import annotations

import sqlite3
from typing import Any


class Forgotten(sqlite3.Connection):
    """Closed when it is forgotten: Python 3.13 warns of each that nobody has closed."""

    def __del__(self) -> None:
        self.close()


def in_memory(factory: type[Forgotten] = Forgotten, **options: Any) -> sqlite3.Connection:
    """Returns an empty database; `options` are those of `sqlite3.connect`."""
    shared = {"check_same_thread": False}  # it may be forgotten in another thread
    return sqlite3.connect(":memory:", isolation_level=None, factory=factory, **shared, **options)
