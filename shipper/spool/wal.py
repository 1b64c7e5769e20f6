"""Finds durable commits that were lost from the WAL of a killed process.

SQLite replays a WAL up to the first frame with a wrong checksum, and ignores the rest as torn by a power cut. That is
right if the rest is one unfinished group. But a group is written only when the previous one is on the disk: where two
or more commits follow the bad frame, it belongs to an acknowledged one.

Format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shipper.spool.database import Connect

_HEADER = struct.Struct(">8xI4x8s8x")
_FRAME = struct.Struct(">4xI8s8x")


@contextmanager
def lost_commits(path: Path, wal: bytes, connect: Connect) -> Iterator[int]:
    """Yields the number of lost durable commits; `wal` was read before the database was opened.

    The WAL is kept while the block runs, so that after a crash in the block the next start repeats this check. Raises
    sqlite3.Error.
    """
    commits = _commits(wal)
    db = connect(path, False)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        replayed = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        behind = sum(frame > replayed for frame in commits)
        yield behind if behind > 1 else 0
    finally:
        db.close()


def _commits(wal: bytes) -> list[int]:
    """Returns the numbers (from 1) of the frames that end a commit by their headers."""
    if len(wal) < _HEADER.size:
        return []
    page_bytes, salt = _HEADER.unpack_from(wal)
    frames = range(_HEADER.size, len(wal) - _FRAME.size, _FRAME.size + page_bytes)
    headers = (_FRAME.unpack_from(wal, at) for at in frames)
    return [number for number, (pages, its_salt) in enumerate(headers, 1) if pages and its_salt == salt]
