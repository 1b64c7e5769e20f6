"""Reads a state directory without keys and without its owner: for people, while no sidecar runs.

It reads the directory of any user, if the system lets it: root looks after the service of another user.

It makes, changes and locks nothing, not even the WAL of a killed process. SQLite would make an index for that WAL, or
write to it; with a read-only index it makes one in memory. A database without a WAL is read as immutable. A WAL without
its index is not read.

Counts, names and times are in the clear; policies, settings and events stay sealed.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from shipper.sdk.errors import ShipperError, StartFailed
from shipper.spool import credentials, database, revisions
from shipper.spool.database import UNREADABLE
from shipper.spool.directory import StateDirectory
from shipper.spool.figures import Figures
from shipper.spool.revisions import LaneKey
from shipper.spool.schema import BARRIER, BATCH, SLOT
from shipper.values import DeadLetterFigures, Revision, Revisions

_FILES = re.compile(r"keyring|keyring\.copy|state\.key|spool-[0-9]{1,15}\.db")
_OWNER_BYTES = 20
_AS_NOW = """CREATE TEMP VIEW lane AS SELECT *, CASE WHEN credential IS NULL THEN '[]' ELSE json_array(credential) END
              AS credentials FROM main.lane"""
"""A view of the lanes of an earlier version in the present form; in memory."""


class NotReadable(ShipperError):
    """The stored data cannot be read, or not without changing it; the text is the reason."""


class StoredLane(NamedTuple):
    id: int
    key: LaneKey
    active: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """The figures of one moment. An event that several outputs left in rests is counted once at least, not exactly."""

    revisions: Revisions
    figures: Figures
    lanes: tuple[StoredLane, ...]
    barriers: dict[int, Revision]
    """By lane, the revision that put its last open barrier."""
    first: dict[tuple[int, Revision], float]
    """By lane and revision, when the oldest waiting event entered."""
    letters: DeadLetterFigures
    credentials: tuple[str, ...]
    """The credentials in use, as in `ready.credentials_in_use`."""


class Owner(NamedTuple):
    """The last owner of a directory; `pid` is None if it closed the directory. `at` is when it was last seen."""

    pid: int | None
    at: float | None
    lives: bool


def is_state(path: Path) -> bool:
    """Whether this is the state directory of a sidecar. Raises OSError."""
    return any(_FILES.fullmatch(entry.name) for entry in path.iterdir())


def owner(path: Path) -> Owner:
    """Returns the present or last owner of a state directory, from the lock file and the kernel's list of locks."""
    try:
        lock = path / "lock"
        text = lock.read_bytes()[:_OWNER_BYTES].strip() if stat.S_ISREG(lock.lstat().st_mode) else b""
    except OSError:
        return Owner(None, None, lives=False)
    if not text.isdigit():
        return Owner(None, _changed_at(lock), lives=False)
    written = [at for file in [lock, *path.glob("spool-*.db*")] if (at := _changed_at(file)) is not None]
    return Owner(int(text), max(written, default=None), lives=is_locked(lock))


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock (flock) of a file; False where the system has no list of locks. Takes no
    lock."""
    try:
        seen = path.stat()
        held = Path("/proc/locks").read_text()
    except OSError:
        return False
    place = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    return any(" FLOCK " in line and f" {place} " in line for line in held.splitlines())


def read(path: Path) -> Stored | None:
    """Returns the content of the newest database of a directory; None if there is none yet. Raises NotReadable."""
    try:
        generations = StateDirectory(path).any_generations()
        if not generations:
            return None
        with closing(_open(StateDirectory(path).database(generations[-1]))) as db:
            if "credential" in {row[1] for row in db.execute("PRAGMA table_info(lane)")}:
                db.execute(_AS_NOW)
            db.execute("PRAGMA query_only=ON")
            db.execute("BEGIN")
            return _read(db)
    except StartFailed as error:
        raise NotReadable(str(error)) from None
    except (*UNREADABLE, OSError, ValueError) as error:
        raise NotReadable(f"the stored data cannot be read: {database.name(error)}") from None


def _open(path: Path) -> sqlite3.Connection:
    log, index = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    has_log = log.exists() and log.stat().st_size > 0
    if has_log and not index.exists():
        raise NotReadable(f"the stored data cannot be read without changing it: {index.name} is missing beside {log}")
    how = "readonly_shm=1" if has_log else "immutable=1"
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro&{how}", uri=True, timeout=0.5, isolation_level=None)


def _read(db: sqlite3.Connection) -> Stored:
    lanes = db.execute("SELECT id, active, output, type, destination, credentials FROM lane ORDER BY id").fetchall()
    barriers = db.execute("SELECT lane, epoch, revision FROM barrier ORDER BY lane, seq").fetchall()
    first = db.execute(
        "SELECT lane, epoch, revision, min(at) FROM todo WHERE kind != ? GROUP BY 1, 2, 3", (BARRIER,)
    ).fetchall()
    letters = db.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM dead_letter").fetchone()
    return Stored(
        revisions.stages(db),
        _figures(db),
        tuple(StoredLane(id, LaneKey.of(*columns), bool(active)) for id, active, *columns in lanes),
        {lane: Revision(epoch, number) for lane, epoch, number in barriers},
        {(lane, Revision(epoch, number)): at for lane, epoch, number, at in first},
        DeadLetterFigures(*letters),
        tuple(credentials.in_use(db)),
    )


def _figures(db: sqlite3.Connection) -> Figures:
    """As `Figures.of`; the events that rests of one batch share are sealed, so the largest possible overlap is
    assumed."""
    figures = Figures.none()
    rows = db.execute(
        "SELECT seq, lane, kind, epoch, revision, count, iif(kind = ?, 0, bytes) FROM todo WHERE kind != ?"
        " ORDER BY seq, kind",
        (SLOT, BARRIER),
    )
    for _, same in groupby(rows, key=lambda row: row[0]):
        parts = list(same)
        whole = [part for part in parts if part[2] == BATCH]
        rests = parts[len(whole) :]
        if whole:
            _, _, _, epoch, number, events, size = whole[0]
            figures.add(Revision(epoch, number), frozenset(part[1] for part in whole), events, size)
        for _, lane, _, epoch, number, events, size in rests:
            figures.add(Revision(epoch, number), frozenset({lane}), events, size)
        counts = [part[5] for part in rests]
        figures.again += sum(counts) if whole else sum(counts) - max(counts, default=0)
    return figures


def _changed_at(path: Path) -> float | None:
    try:
        return path.lstat().st_mtime
    except OSError:
        return None
