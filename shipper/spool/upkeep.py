"""Upkeep of a database: what its WAL holds goes into it, and pages that it does not use go back to the disk."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

CHECKPOINT_BYTES = 16 * 2**20
VACUUM_PAGES = 256
VACUUM_ABOVE_PAGES = 256


class Upkeep:
    """Of one connection, in the thread that uses it. Everything here may raise sqlite3.Error, as a COMMIT may.

    PASSIVE checkpoints let readers be. The first commit after a complete one begins the WAL anew and cuts the file to
    `database.WAL_KEPT_BYTES` (overwriting those is cheaper than growing a file), so its size tells what is in use.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._wal = path.with_name(path.name + "-wal")
        self._due_at = CHECKPOINT_BYTES

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
