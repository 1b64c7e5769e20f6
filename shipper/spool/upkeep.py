"""Upkeep of a database: what its WAL holds goes into it, and pages that it does not use go back to the disk.

A database grows in the WAL first, so on a disk that fills up the WAL may owe it more than there is room for; then no
checkpoint ends, the WAL takes all that is left, and nothing can ever be stored again. So the room is taken in the
database's own file before a commit that makes it grow: a checkpoint never needs any, and gives back that of the WAL.
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
"""By which the file grows, where there is room for so much."""


class Upkeep:
    """Of one connection, in the thread that uses it. Everything here may raise sqlite3.Error, as a COMMIT may.

    PASSIVE checkpoints let readers be. The first commit after a complete one begins the WAL anew and cuts the file to
    `database.WAL_KEPT_BYTES` (overwriting those is cheaper than growing a file), so its size tells what is in use.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._wal = path.with_name(path.name + "-wal")
        self._due_at = CHECKPOINT_BYTES
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """After the connection was closed: to close a file takes away all locks that SQLite holds on it."""
        if self._file is not None:
            os.close(self._file)

    def reserve(self) -> bool:
        """Have room in the database's file for all pages of the transaction that is to be committed.

        False if the disk is full. Where room cannot be reserved for another reason, the commit is as safe as ever.
        """
        if self._file is None:
            return True
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        has, needs = os.fstat(self._file).st_size, pages * PAGE_BYTES
        return needs <= has or _grow(self._file, has, needs + GROWTH_BYTES) or _grow(self._file, has, needs)

    def is_due(self) -> bool:
        """Whether the WAL has become so large that a checkpoint should not wait until the writer is idle."""
        return self._wal_bytes() > self._due_at

    def checkpoint(self, *, cut: bool = False) -> bool:
        """Empty the WAL into the database, and `cut` its file to nothing; True if readers let all of it go."""
        size = self._wal_bytes()
        mode = "TRUNCATE" if cut or size > 4 * CHECKPOINT_BYTES else "PASSIVE"
        busy, logged, moved = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        complete = not busy and logged == moved
        self._due_at = CHECKPOINT_BYTES if complete else size + CHECKPOINT_BYTES
        return complete

    def vacuum(self, *, all_of_it: bool = False) -> bool:
        """Give one portion of unused pages back; True if there are more. Some stay, unless `all_of_it` is wanted."""
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
