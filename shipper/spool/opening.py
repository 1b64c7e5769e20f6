"""Opens the newest database at a start, repaired or new if need be."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from shipper.sdk.codes import Code
from shipper.sdk.errors import StartFailed, StateLocked
from shipper.spool import database
from shipper.spool.database import Generation
from shipper.spool.directory import StateDirectory
from shipper.spool.keys import Keyring
from shipper.spool.repair import everything_lost, renew, retire
from shipper.spool.report import Report
from shipper.spool.seal import KEY_ID_BYTES, OVERHEAD_BYTES
from shipper.spool.wal import lost_commits

_IO_ATTEMPTS = 3
_IO_PAUSE_SECONDS = 0.1
_MANY_KEYS = 64
_FIRST_BYTES = 12 * 2**20
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)


def open_newest(
    directory: StateDirectory, prepare: database.Prepare, connect: database.Connect, *, locked_out: bool
) -> Generation:
    """Opens the newest generation, repaired if need be, or makes the first; removes older ones.

    `locked_out`: the keys of the stored data are lost, so it is set aside. Raises StartFailed or OSError.
    """
    directory.clear_leftovers()
    generations = directory.generations()
    if generations and not locked_out:
        generation = _open_or_repair(directory, generations[-1], prepare, connect)
    else:
        lost = bool(generations) or directory.ballast.exists()  # a ballast alone: the database was removed
        for older in generations:
            directory.set_aside(older)
        generation = _first(directory, prepare, connect, everything_lost(prepare) if lost else Report())
    try:
        retire(directory, generation, Report.load(generation.db))
        directory.ballast.restore()
    except BaseException:
        generation.close(failed=True)
        raise
    return generation


def _first(
    directory: StateDirectory, prepare: database.Prepare, connect: database.Connect, report: Report
) -> Generation:
    if report.intact and not directory.has_room(_FIRST_BYTES):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    number, part = directory.begin_generation()
    try:
        db = database.create(part, prepare, connect)
        report.store(db)
        database.complete(db)
        path = directory.complete_generation(number)
        return Generation.open(number, path, prepare, connect)
    except sqlite3.Error as error:
        text = f"no database can be made in {directory.path}: {database.name(error)}"
        raise StartFailed(text, code=_code(error)) from error


def _open_or_repair(
    directory: StateDirectory, number: int, prepare: database.Prepare, connect: database.Connect
) -> Generation:
    """Opens a generation; retries after read errors, and gives ballast on a full disk, before rows are lost."""
    path = directory.database(number)
    if not directory.has_room():
        directory.ballast.give()
    attempts = 0
    while True:
        attempts += 1
        try:
            return _open(directory, number, prepare, connect)
        except database.UNREADABLE as error:
            if not directory.has_room() and directory.ballast.give():
                continue
            if database.code(error) in _NOT_DAMAGE or database.is_full(error):
                raise StartFailed(f"{path} cannot be opened: {database.name(error)}", code=_code(error)) from error
            if not database.is_io(error) or attempts >= _IO_ATTEMPTS:
                return _repair(directory, number, prepare, connect)
        time.sleep(_IO_PAUSE_SECONDS)


def _open(directory: StateDirectory, number: int, prepare: database.Prepare, connect: database.Connect) -> Generation:
    path = directory.database(number)
    wal = directory.read(f"{path.name}-wal")
    if not wal:
        return _open_checked(number, path, prepare, connect, None)
    with lost_commits(path, wal, connect) as lost:
        report = None
        if lost:
            report = everything_lost(prepare)
            report.lost["wal"] = lost
            report.kept.append(directory.new_quarantine("wal").name)
            directory.write(report.kept[0], wal)
        return _open_checked(number, path, prepare, connect, report)


def _open_checked(
    number: int, path: Path, prepare: database.Prepare, connect: database.Connect, report: Report | None
) -> Generation:
    generation = Generation.open(number, path, prepare, connect)
    try:
        if report is not None:
            report.store(generation.db)
        Report.load(generation.db)
    except BaseException:
        generation.close(failed=True)
        raise
    return generation


def _repair(directory: StateDirectory, number: int, prepare: database.Prepare, connect: database.Connect) -> Generation:
    source = connect(directory.database(number), False)
    try:
        with contextlib.suppress(*database.UNREADABLE):
            source.execute("PRAGMA writable_schema=ON")  # else one damaged line of the schema hides the others
        newer, report = renew(directory, number, source, prepare, connect, patient=False)
        try:
            retire(directory, newer, report)
        except BaseException:
            newer.close(failed=True)
            raise
    except sqlite3.Error as error:
        text = f"{directory.path} cannot be repaired: {database.name(error)}"
        raise StartFailed(text, code=_code(error)) from error
    finally:
        source.close()
    return newer


def _code(error: Exception) -> Code:
    return Code.DISK_FULL if database.is_full(error) else Code.DISK_FAILED


# -- data keys ---------------------------------------------------------------------------------------------------------


def refuse_takeover(ring: Keyring, db: sqlite3.Connection, sealed: Collection[tuple[str, str]]) -> None:
    """Raises StateLocked if a value of the `sealed` columns (table, column) needs a data key that `ring` does not have.

    For the start in which given keys take over from `state.key`: such a value was sealed under another keyring, which
    an attacker has replaced. Unreadable values are ignored.
    """
    for table, column in sealed:
        with contextlib.suppress(*database.UNREADABLE):
            values = f'FROM "{table}" WHERE typeof("{column}") = \'blob\' AND length("{column}") >= ?'
            query = f'SELECT DISTINCT substr("{column}", 1, ?) {values}'
            if any(id not in ring.data_keys for (id,) in db.execute(query, (KEY_ID_BYTES, OVERHEAD_BYTES))):
                raise StateLocked(
                    "the state directory holds data that its own state.key does not open, so the given state keys do "
                    "not take over from that file: restore keyring and keyring.copy, or use another directory"
                )


def forget_unused_keys(directory: StateDirectory, ring: Keyring, db: sqlite3.Connection) -> None:
    """Removes the data keys with whose id no stored value begins, once there are many: each start adds one.

    A sealed value is a whole column value and begins with the id of its key, so the other keys are not needed. Nothing
    is removed while something is in quarantine, nor if a page cannot be read.
    """
    if len(ring) > _MANY_KEYS and not any(directory.path.glob("quarantine-*")):
        with contextlib.suppress(*database.UNREADABLE):
            ring.keep(set(_beginnings(db)))


def _beginnings(db: sqlite3.Connection) -> Iterator[bytes]:
    for table, columns in database.columns(db).items():
        for column in columns:
            query = f'SELECT DISTINCT substr("{column}", 1, ?) FROM "{table}" WHERE typeof("{column}") = \'blob\''
            for (beginning,) in db.execute(query, (KEY_ID_BYTES,)):
                yield beginning
