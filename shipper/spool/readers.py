"""Readers: connections beside the writer's, one bounded read a call.

No cursor outlives its call: one left open would keep every page of the WAL since then. So a read either returns values
or raises, and its snapshot ends with it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from shipper.spool import database

T = TypeVar("T")

_AT_ONCE = 4


class Unreadable(Exception):
    """The disk failed to read a database, or what it read is damaged."""

    def __init__(self, path: Path, cause: sqlite3.Error) -> None:
        super().__init__(f"the spool cannot be read: {database.name(cause)}")
        self.path = path


class Readers:
    """A pool of reading connections to the newest generation."""

    def __init__(self, path: Path, connect: database.Connect) -> None:
        self.path = path
        self._closed = False
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in a worker thread. Raises what it raises, or Unreadable.

        On cancel the caller goes at once; the thread ends with its query.
        """
        return await trio.to_thread.run_sync(self._read, query, abandon_on_cancel=True, limiter=self._limiter)

    def move(self, path: Path) -> None:
        """From now on read another database."""
        self._leave(path)

    def close(self) -> None:
        """Close all connections; those still in use close themselves."""
        self._closed = True
        self._leave(self.path)

    def _leave(self, path: Path) -> None:
        with self._lock:
            self.path = path
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        path = self.path
        try:
            return self._on_snapshot(path, query)
        except sqlite3.Error as error:
            if not (database.is_damage(error) or database.is_io(error)):
                raise
            raise Unreadable(path, error) from error

    def _on_snapshot(self, path: Path, query: Callable[[sqlite3.Connection], T]) -> T:
        db = self._take(path)
        try:
            db.execute("BEGIN")
            return query(db)
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._give_back(path, db)

    def _take(self, path: Path) -> sqlite3.Connection:
        with self._lock:
            if self._idle and path == self.path:
                return self._idle.pop()
        return database.open_reader(path, self._connect)

    def _give_back(self, path: Path, db: sqlite3.Connection) -> None:
        with self._lock:
            if path == self.path and not self._closed:
                self._idle.append(db)
                return
        db.close()
