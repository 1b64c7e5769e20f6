"""Read connections beside the writer's; one bounded read a call.

No cursor outlives its call: an open one would keep every later page in the WAL. A read returns values or raises, and
its snapshot ends with it.

All are opened at the start and kept, since later there may be no descriptor; where descriptors are scarce at the start,
one is opened. Those of a new generation are opened when they are needed, with retries.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from shipper.process.environment import Environment
from shipper.sdk import descriptors
from shipper.spool import database

T = TypeVar("T")

_AT_ONCE = 4
_PAUSE_SECONDS = 0.1


class Unreadable(Exception):
    """The disk failed to read a database, or the database is damaged."""

    def __init__(self, path: Path, cause: sqlite3.Error) -> None:
        super().__init__(f"the spool cannot be read: {database.name(cause)}")
        self.path = path


class Readers:
    """A pool of read connections to the newest generation."""

    def __init__(self, path: Path, connect: database.Connect, environment: Environment) -> None:
        self.path = path
        self.problem: str | None = None
        """Why a query waits for a connection."""
        self._closed = False
        self._connect, self._in_thread = connect, environment.in_thread
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._in_use = 0
        self._given_back = threading.Event()
        self._limiter = trio.CapacityLimiter(_AT_ONCE)

    def open_all(self) -> None:
        """Opens as many connections as leave the reserve of descriptors untouched, at least one, before the first
        query."""
        with contextlib.suppress(sqlite3.Error):
            while len(self._idle) < _AT_ONCE and not (self._idle and descriptors.none_is_left(for_outside=True)):
                self._idle.append(database.open_reader(self.path, self._connect))

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a query in a worker thread. Raises its errors, or Unreadable.

        On cancel this returns at once; the thread ends with its query.
        """
        return await self._in_thread(self._read, query, abandon_on_cancel=True, limiter=self._limiter)

    def move(self, path: Path) -> None:
        """Reads another database from now on."""
        self._leave(path)

    def close(self) -> None:
        """Closes all connections; those in use are closed after their query."""
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
            raise _translated(path, error) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self._give_back(path, db)

    def _take(self) -> tuple[Path, sqlite3.Connection]:
        """Returns a connection to the newest generation; waits for one while there is no descriptor."""
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
        """Returns a new connection, or None where another attempt may succeed."""
        try:
            return database.open_reader(path, self._connect)
        except sqlite3.Error as error:
            if path != self.path:  # it was replaced meanwhile, and removed
                return None
            if self._closed or not (database.code(error) == sqlite3.SQLITE_CANTOPEN and descriptors.none_is_left()):
                raise _translated(path, error) from error
            if not self._in_use:  # otherwise one is given back soon
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


def _translated(path: Path, error: sqlite3.Error) -> Exception:
    return Unreadable(path, error) if database.is_damage(error) or database.is_io(error) else error
