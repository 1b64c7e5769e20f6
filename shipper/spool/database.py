"""Makes and opens databases of the spool, and classifies their errors.

WAL, `synchronous=FULL`: a COMMIT that returned is on the disk. Pages of 16 KiB, since rows are bodies of 100 KiB and
more. Only the writer's connection writes and checkpoints; SQLite's automatic checkpoint is off, because it swallows
errors. Nothing is mapped into memory: an I/O error there would be a signal. No dirty page leaves the cache before the
COMMIT, so that a full disk fails the COMMIT and no operation before it.

Readers open with `mode=ro`. Such a connection can neither checkpoint nor remove a WAL, and while one is open, closing
another does neither: so a failed database is closed without one more write.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

PAGE_BYTES = 16384
APPLICATION_ID = 0x73687072
WAL_KEPT_BYTES = 4 * 2**20

Prepare = Callable[[sqlite3.Connection], None]
Connect = Callable[[Path, bool], sqlite3.Connection]

_BROKEN = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_INTERNAL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
UNREADABLE = (sqlite3.Error, MemoryError, UnicodeDecodeError)
"""Errors of reading a damaged database: lengths and messages may be damaged too."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB})


def connect(path: Path, readonly: bool, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """Opens an existing database; every connection is made here."""
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={'ro' if readonly else 'rw'}",
        uri=True,
        timeout=0.5,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=kind,
    )


@functools.cache
def with_damage(prepare: Prepare) -> Prepare:
    """Returns `prepare` extended by the table `damage`, which keeps reports of losses until they are handled."""

    def prepare_all(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE IF NOT EXISTS damage (report TEXT NOT NULL)")
        prepare(db)

    return prepare_all


def create(path: Path, prepare: Prepare, connect: Connect = connect) -> sqlite3.Connection:
    """Makes the tables in an empty file; nothing is durable before `complete` and an fsync of the file."""
    db = connect(path, False)
    try:
        for pragma in (
            f"page_size={PAGE_BYTES}",
            "auto_vacuum=INCREMENTAL",
            f"application_id={APPLICATION_ID}",
            "journal_mode=OFF",
            "synchronous=OFF",
            "cell_size_check=ON",
            "secure_delete=OFF",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        db.execute("BEGIN")
        prepare(db)
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def complete(db: sqlite3.Connection) -> None:
    """Closes a database that was made by `create` and filled, with its WAL switched on.

    Switching it on later takes a rollback journal; where a file system shows old bytes after a power cut, that journal
    could roll a complete database back to an empty one.
    """
    try:
        db.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        db.close()


class Generation(msgspec.Struct, frozen=True):
    """An open database, and a reader: the order in which both are closed decides whether the WAL is emptied."""

    number: int
    path: Path
    db: sqlite3.Connection
    reader: sqlite3.Connection

    @classmethod
    def open(cls, number: int, path: Path, prepare: Prepare, connect: Connect) -> Generation:
        """Opens a complete database and migrates its tables.

        Raises sqlite3.Error for damage that shows without reading all of it.
        """
        db = open_writer(path, prepare, connect)
        try:
            return cls(number, path, db, open_reader(path, connect))
        except BaseException:
            db.close()
            raise

    def close(self, *, failed: bool) -> None:
        """Closes both connections; if the database `failed`, without another write: only the last one empties the
        WAL."""
        for db in (self.db, self.reader) if failed else (self.reader, self.db):
            with contextlib.suppress(sqlite3.Error):
                db.close()


def open_writer(path: Path, prepare: Prepare, connect: Connect = connect) -> sqlite3.Connection:
    """Opens a connection for writing; see `Generation.open`."""
    if path.stat().st_size < PAGE_BYTES:
        raise Malformed("the database is cut off")  # SQLite would take an empty file for a new database
    db = connect(path, False)
    try:
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "wal_autocheckpoint=0",
            f"journal_size_limit={WAL_KEPT_BYTES}",
            "cache_size=-16384",
            "cache_spill=OFF",
            "temp_store=MEMORY",
            "mmap_size=0",
            "cell_size_check=ON",
            "secure_delete=OFF",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            raise Malformed("the header of the database is damaged")
        db.execute("BEGIN IMMEDIATE")
        prepare(db)
        db.execute("COMMIT")
        if columns(db) != expected_columns(prepare):
            raise Malformed("the schema of the database is damaged")
    except BaseException:
        db.close()
        raise
    return db


def open_reader(path: Path, connect: Connect = connect) -> sqlite3.Connection:
    """Opens a connection for reading; a connection that is closed before it does not empty the WAL."""
    db = connect(path, True)
    try:
        db.execute("PRAGMA query_only=ON")
        db.execute("PRAGMA cell_size_check=ON")
        db.execute("PRAGMA cache_size=-4096")
        db.execute("PRAGMA temp_store=MEMORY")  # a file takes a descriptor in the middle of a query
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


class Malformed(sqlite3.DatabaseError):
    """A damaged database that SQLite would take for a good one."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    sqlite_errorname = "SQLITE_CORRUPT"


def is_full(error: Exception) -> bool:
    """Whether the disk is full; then nothing was committed."""
    return code(error) == sqlite3.SQLITE_FULL


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process has locked the database for longer than a statement waits."""
    return code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_broken(error: sqlite3.Error) -> bool:
    """Whether the database or its disk failed, as opposed to a statement."""
    return code(error) in _BROKEN


def is_damage(error: sqlite3.Error) -> bool:
    """Whether stored bytes were changed."""
    return code(error) in _DAMAGED or "decode to UTF-8" in str(error)


def is_io(error: Exception) -> bool:
    """Whether the disk failed to read or write; the next attempt may succeed."""
    return code(error) == sqlite3.SQLITE_IOERR


def name(error: BaseException) -> str:
    """Returns the name of the error without its text, which could quote a value."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return getattr(error, "sqlite_errorname", type(error).__name__)


def columns(db: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Returns the names of all columns, by table."""
    query = """SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c
               WHERE m.type = 'table' ORDER BY m.name, c.cid"""
    found: dict[str, tuple[str, ...]] = {}
    for table, column in db.execute(query).fetchall():
        found[table] = (*found.get(table, ()), column)
    return found


@functools.cache
def expected_columns(prepare: Prepare) -> dict[str, tuple[str, ...]]:
    """Returns the columns that `prepare` makes."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        prepare(db)
        return columns(db)
    finally:
        db.close()


def code(error: Exception) -> int:
    """Returns the primary result code of SQLite; 0 if the error is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
