"""Was anything durable lost from the WAL that a killed process left?

SQLite replays a WAL up to the first frame whose checksum is wrong, and takes the rest for the tail that a power cut
tore. That is so if the rest is one unfinished group. But a group is written only when the one before it is on the disk:
where two commits or more stand behind the bad frame, it lies in something that was acknowledged.

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
    """How many commits that were durable are lost; `wal` is what was read before anybody opened the database.

    While the block runs the WAL stays, so that a crash before the answer is stored asks again. Raises sqlite3.Error.
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
    """The numbers of the frames (from 1) that end a commit, as their headers say."""
    if len(wal) < _HEADER.size:
        return []
    page_bytes, salt = _HEADER.unpack_from(wal)
    frames = range(_HEADER.size, len(wal) - _FRAME.size, _FRAME.size + page_bytes)
    headers = (_FRAME.unpack_from(wal, at) for at in frames)
    return [number for number, (pages, its_salt) in enumerate(headers, 1) if pages and its_salt == salt]
