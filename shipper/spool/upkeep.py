"""Upkeep of a database: checkpoints of its WAL, and the return of unused pages to the disk.

A database grows in the WAL first, so on a disk that fills up a checkpoint may need more room than there is; then no
checkpoint ends, the WAL takes all room, and nothing can ever be stored again. So room is allocated in the database's
own file before a commit that makes it grow: a checkpoint never needs more, and frees the WAL.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from shipper.spool.database import PAGE_BYTES
from shipper.spool.directory import is_no_room

CHECKPOINT_BYTES = 16 * 2**20
VACUUM_PAGES = 256
VACUUM_ABOVE_PAGES = 256
GROWTH_BYTES = 2**20
"""The step by which the file grows, where the disk has room for it."""


class Upkeep:
    """The upkeep of one connection, in its thread. Every method may raise sqlite3.Error, as a COMMIT may.

    PASSIVE checkpoints do not wait for readers. The first commit after a complete one begins the WAL anew and truncates
    the file to `database.WAL_KEPT_BYTES` (overwriting those is cheaper than growing a file), so its size shows its use.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._wal = path.with_name(path.name + "-wal")
        self._due_at = CHECKPOINT_BYTES
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Closes the file, after the connection: closing a file drops all locks that SQLite holds on it."""
        if self._file is not None:
            os.close(self._file)

    def reserve(self) -> bool:
        """Allocates room in the database's file for all pages of the open transaction.

        Returns False if the disk is full. If it fails for another reason, the commit is safe all the same.
        """
        if self._file is None:
            return True
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        has, needs = os.fstat(self._file).st_size, pages * PAGE_BYTES
        return needs <= has or _grow(self._file, has, needs + GROWTH_BYTES) or _grow(self._file, has, needs)

    def is_due(self) -> bool:
        """Whether the WAL is so large that a checkpoint should not wait until the writer is idle."""
        return self._wal_bytes() > self._due_at

    def checkpoint(self, *, cut: bool = False) -> bool:
        """Copies the WAL into the database, and truncates its file if `cut`; returns True if no reader kept a part."""
        size = self._wal_bytes()
        mode = "TRUNCATE" if cut or size > 4 * CHECKPOINT_BYTES else "PASSIVE"
        busy, logged, moved = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        complete = not busy and logged == moved
        self._due_at = CHECKPOINT_BYTES if complete else size + CHECKPOINT_BYTES
        return complete

    def vacuum(self, *, all_of_it: bool = False) -> bool:
        """Gives a portion of unused pages back to the disk; True if there are more. Keeps some, unless `all_of_it`."""
        (unused,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if unused <= (0 if all_of_it else VACUUM_ABOVE_PAGES):
            return False
        self._db.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")  # `execute` stops after the first page
        if self.is_due():
            self.checkpoint()
        return True

    def _wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except FileNotFoundError:
            return 0


def _grow(file: int, has: int, size: int) -> bool:
    try:
        os.posix_fallocate(file, has, size - has)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.ftruncate(file, has)
        return not is_no_room(error)
    return True
