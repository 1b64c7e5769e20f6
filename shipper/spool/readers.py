"""Readers: connections beside the writer's, one bounded read a call.

No cursor outlives its call: one left open would keep every page of the WAL since then. So a read either returns values
or raises, and its snapshot ends with it.

All are opened at the start and kept, since nobody reads the queue without them: later there may be no descriptor. Where
these are few at the start, it is one. Those of a new generation are opened when they are needed, and tried for until
that is possible.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from shipper.sdk import descriptors
from shipper.spool import database

T = TypeVar("T")

_AT_ONCE = 4
_PAUSE_SECONDS = 0.1


class Unreadable(Exception):
    """The disk failed to read a database, or what it read is damaged."""

    def __init__(self, path: Path, cause: sqlite3.Error) -> None:
        super().__init__(f"the spool cannot be read: {database.name(cause)}")
        self.path = path


class Readers:
    """A pool of reading connections to the newest generation."""

    def __init__(self, path: Path, connect: database.Connect) -> None:
        self.path = path
        self.problem: str | None = None
        """Why a query waits for a connection."""
        self._closed = False
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._in_use = 0
        self._given_back = threading.Event()
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    def open_all(self) -> None:
        """Open them before the first query, as many as can be opened without the reserve of descriptors, or one."""
        with contextlib.suppress(sqlite3.Error):
            while len(self._idle) < _AT_ONCE and not (self._idle and descriptors.none_is_left(for_outside=True)):
                self._idle.append(database.open_reader(self.path, self._connect))

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
        path, db = self._take()
        try:
            db.execute("BEGIN")
            return query(db)
        except sqlite3.Error as error:
            raise _settlement(path, error) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._give_back(path, db)

    def _take(self) -> tuple[Path, sqlite3.Connection]:
        """A connection of the newest generation, waited for while there is no descriptor for another one."""
        while True:
            self._given_back.clear()
            with self._lock:
                path, idle = self.path, self._idle.pop() if self._idle else None
            db = idle or self._opened(path)
            if db is not None:
                self.problem = None
                with self._lock:
                    self._in_use += 1
                return path, db
            self._given_back.wait(_PAUSE_SECONDS)

    def _opened(self, path: Path) -> sqlite3.Connection | None:
        """None where another attempt may succeed."""
        try:
            return database.open_reader(path, self._connect)
        except sqlite3.Error as error:
            if path != self.path:  # it was replaced meanwhile, and removed
                return None
            if self._closed or not (database.code(error) == sqlite3.SQLITE_CANTOPEN and descriptors.none_is_left()):
                raise _settlement(path, error) from error
            if not self._in_use:  # else one comes back soon
                self.problem = f"the spool cannot be read: {descriptors.shortage()}"
            return None

    def _give_back(self, path: Path, db: sqlite3.Connection) -> None:
        with self._lock:
            self._in_use -= 1
            if path == self.path and not self._closed:
                self._idle.append(db)
                self._given_back.set()
                return
        db.close()


def _settlement(path: Path, error: sqlite3.Error) -> Exception:
    return Unreadable(path, error) if database.is_damage(error) or database.is_io(error) else error
