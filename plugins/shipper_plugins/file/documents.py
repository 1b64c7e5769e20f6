"""One file for each key below a directory, and a database with the place of its version. Blocking.

    <directory>/own/inventory/web-1.json     the document, byte by byte as it was given (`document_names`)
    <directory>/.shipper/places              SQLite: the place and digest of each key, also of deleted ones
    <directory>/.shipper/lock                locked by the only writer
    <directory>/.shipper/new                 the document that is being written

A version is written in four steps. (1) Its place is stored as the next one, durably. (2) Its document is written to a
new file, synced, and renamed over the old one; or the old file is removed. (3) The directories are synced. (4) The next
place is stored as the present one. Only then is the version answered.

A crash leaves the old document or the new one of each key, and a next place. When a version of the key comes, the
digest of the file shows which document it is. If it is the new one, the last two steps are repeated; if not, nobody has
seen the new one, and its place is ignored. A version without an answer comes again from its sender and goes through all
steps, whose result does not depend on what they find. So no other repair is needed, and whatever comes after a crash,
in whatever order, an older version never follows a newer one.

A document that somebody removed is written again when its version comes again; a document that somebody changed is not
noticed. The place of a deleted key stays, so a version from before the deletion is refused for ever.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from shipper.plugin import Answer, Code, Outcome
from shipper.plugin.state import Version, digest_of
from shipper.sdk.codes import of_os_error
from shipper.sdk.descriptors import in_words
from shipper_plugins.file.document_names import path_of

_OWN = ".shipper"
_FORMAT = 1
_MOST_REMEMBERED = 1000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


class _Place(NamedTuple):
    """The durable version of a key."""

    place: int
    digest: bytes


class _Task(NamedTuple):
    """A version to write."""

    position: int
    version: Version
    document: bytes
    path: str


class Documents:
    """A directory of documents; without I/O until the first `put`. Not for two threads at once."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.normpath(directory)
        self._lock: int | None = None
        self._db: sqlite3.Connection | None = None
        self._made: set[str] = set()
        """Directories that exist, durably."""

    def put(self, versions: Sequence[Version], documents: Sequence[bytes]) -> dict[int, Answer]:
        """Writes versions; returns the answers, by position, for those that were not simply written.

        Raises OSError if nothing more can be stored: any of them may have been written. Raises BlockingIOError if
        another process writes here.
        """
        try:
            db = self._opened()
            answers: dict[int, Answer] = {}
            for tasks in _rounds(versions, documents):
                answers |= self._put(db, tasks)
            return answers
        except sqlite3.Error as error:
            self.close()
            code = errno.ENOSPC if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(code, f"the places in {_OWN} cannot be used: {error}") from error
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Lets another process write; the next `put` opens everything again."""
        db, self._db = self._db, None
        lock, self._lock = self._lock, None
        self._made.clear()
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()
        if lock is not None:
            os.close(lock)

    # -- opening ---------------------------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            own = self._path(_OWN)
            _make(self._directory)
            _make(own)
            self._lock = os.open(os.path.join(own, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(error.errno, "another shipper, or another output, writes here") from error
            self._db = _places(os.path.join(own, "places"))
            _sync(own)
        return self._db

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    # -- writing ---------------------------------------------------------------------------------------------------

    def _put(self, db: sqlite3.Connection, tasks: Sequence[_Task]) -> dict[int, Answer]:
        answers = {task.position: self._answer(db, task) for task in tasks}
        new = [task for task in tasks if answers[task.position] is None]
        _announce(db, new)
        failed = self._write(new)
        _confirm(db, [task.path for task in new if task.position not in failed])
        return {position: answer for position, answer in answers.items() if answer is not None} | failed

    def _answer(self, db: sqlite3.Connection, task: _Task) -> Answer | None:
        """Returns the answer for a version that must not be written."""
        has = self._place(db, task.path)
        if has is None or task.version.place > has.place:
            return None
        if (task.version.place, task.version.digest) != (has.place, has.digest):
            return Answer(Outcome.SUPERSEDED, "a newer version is there", fence=(has.place, has.digest))
        is_there = os.path.lexists(self._path(task.path))
        return Answer(Outcome.DUPLICATE) if is_there != task.version.deleted else None

    def _place(self, db: sqlite3.Connection, path: str) -> _Place | None:
        """Completes a write that was begun, if only the last steps are missing."""
        row = db.execute("SELECT place, digest, next_place, next_digest FROM place WHERE path = ?", (path,)).fetchone()
        if row is None:
            return None
        place, digest, next_place, next_digest = row
        if next_place is not None and _digest(self._path(path)) == next_digest:
            self._sync(os.path.dirname(path))
            _confirm(db, [path])
            return _Place(next_place, next_digest)
        return None if place is None else _Place(place, digest)

    def _write(self, tasks: Sequence[_Task]) -> dict[int, Answer]:
        """Writes documents, and removes those of deleted keys; returns the answers for those that failed."""
        failed: dict[int, Answer] = {}
        touched: dict[str, list[int]] = {}
        for task in tasks:
            directory = os.path.dirname(task.path)
            try:
                self._replace(task)
                touched.setdefault(directory, []).append(task.position)
            except OSError as error:
                failed[task.position] = _later(directory, error)
        for directory, positions in touched.items():
            try:
                self._sync(directory)
            except OSError as error:
                failed |= dict.fromkeys(positions, _later(directory, error))
        if failed:
            self._made.clear()
        return failed

    def _sync(self, directory: str) -> None:
        with suppress(FileNotFoundError):  # a key was deleted that was never here
            _sync(self._path(directory))

    def _replace(self, task: _Task) -> None:
        path = self._path(task.path)
        if task.version.deleted:
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        self._ensure(os.path.dirname(path))
        self._new(task.document)
        os.replace(self._path(f"{_OWN}/new"), path)

    def _new(self, document: bytes) -> None:
        file = os.open(self._path(f"{_OWN}/new"), _FLAGS, 0o640)
        try:
            rest = memoryview(document)
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        finally:
            os.close(file)

    def _ensure(self, directory: str) -> None:
        """Makes the directory of a collection, and that of its owner."""
        if directory not in self._made:
            if len(self._made) >= _MOST_REMEMBERED:
                self._made.clear()
            _make(os.path.dirname(directory))
            _make(directory)
            self._made.add(directory)


def _later(directory: str, error: OSError) -> Answer:
    return Answer(Outcome.LATER, f"{directory}: {in_words(error)}", code=of_os_error(error, Code.UNAVAILABLE))


def _rounds(versions: Sequence[Version], documents: Sequence[bytes]) -> Iterator[list[_Task]]:
    """Yields the versions in order, in rounds that have each key at most once."""
    tasks: dict[str, _Task] = {}
    for position, (version, document) in enumerate(zip(versions, documents, strict=True)):
        path = path_of(version)
        if path in tasks:
            yield list(tasks.values())
            tasks = {}
        tasks[path] = _Task(position, version, document, path)
    yield list(tasks.values())


def _make(directory: str) -> None:
    """Makes a directory, durably; where its parent cannot be read, that is left to others."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o750)
    with suppress(PermissionError):
        _sync(os.path.dirname(directory) or ".")


def _sync(directory: str) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _places(path: str) -> sqlite3.Connection:
    """Opens the database; only one process at a time has it, so it needs no shared memory."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        (format,) = db.execute("PRAGMA user_version").fetchone()
        if format > _FORMAT:
            raise OSError(errno.EINVAL, f"the places in {_OWN} were written by a newer version of this program")
        db.execute(
            "CREATE TABLE IF NOT EXISTS place (path TEXT PRIMARY KEY, place INTEGER, digest BLOB, next_place INTEGER,"
            " next_digest BLOB) WITHOUT ROWID"
        )
        db.execute(f"PRAGMA user_version = {_FORMAT}")
    except BaseException:
        db.close()
        raise
    return db


def _announce(db: sqlite3.Connection, tasks: Sequence[_Task]) -> None:
    """Stores the places that are written next."""
    _store(
        db,
        "INSERT INTO place (path, next_place, next_digest) VALUES (?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET next_place = excluded.next_place, next_digest = excluded.next_digest",
        [(task.path, task.version.place, task.version.digest) for task in tasks],
    )


def _confirm(db: sqlite3.Connection, paths: Sequence[str]) -> None:
    """Stores that the next versions of these keys are written."""
    _store(
        db,
        "UPDATE place SET place = next_place, digest = next_digest, next_place = NULL, next_digest = NULL"
        " WHERE path = ?",
        [(path,) for path in paths],
    )


def _store(db: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    """One transaction; durable on return."""
    if not rows:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany(statement, rows)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _digest(path: str) -> bytes | None:
    """Returns the digest of the document in a file, or of a deletion; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except FileNotFoundError:
        return digest_of(None)
    except OSError:
        return None
