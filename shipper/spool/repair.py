"""A new generation of the database: what can be read of the old one is copied into an empty one.

It has the tables that `prepare` makes, so it is sound whatever the old one has become; rows find their columns by name,
or by place where names were damaged. The new file is complete, durable and open before the old one is given up.

A database that lost rows of unknown number is kept beside the new one, with all its bytes and out of the way.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shipper.spool import database
from shipper.spool.database import Generation
from shipper.spool.directory import StateDirectory
from shipper.spool.report import Remains, Report
from shipper.spool.salvage import Salvage, Table, quoted

__all__ = ["Report", "copy", "everything_lost", "renew", "retire"]


def renew(
    directory: StateDirectory,
    number: int,
    source: sqlite3.Connection,
    prepare: database.Prepare,
    connect: database.Connect,
    *,
    patient: bool,
) -> tuple[Generation, Report]:
    """Copy what can be read of a generation through `source` to a new one, make it durable and open it.

    `patient`: raise where the disk fails to read, since the next attempt may succeed; otherwise such rows are lost.
    Raises sqlite3.Error or OSError if it cannot be written; the old generation is as it was, then and otherwise.
    """
    if source.in_transaction:
        source.execute("ROLLBACK")
    newer, part = directory.begin_generation()
    target = database.create(part, prepare, connect)
    try:
        with _quarantine(directory) as remains:
            report = copy(source, target, remains, patient=patient)
        report.kept += remains.names
        if report.gaps:
            report.kept.append(directory.aside(number).name)
        report.store(target)
    except BaseException:
        target.close()
        raise
    database.complete(target)
    path = directory.complete_generation(newer)
    return Generation.open(newer, path, prepare, connect), report


def retire(directory: StateDirectory, newest: Generation, report: Report | None) -> None:
    """Put away every older generation: aside where the report says that it is kept, otherwise for ever.

    Call this before its connections are closed: one that finds its file gone writes nothing more to it.
    """
    for number in directory.generations():
        if number < newest.number:
            if report and directory.aside(number).name in report.kept:
                directory.set_aside(number)
            else:
                directory.remove_generation(number)
    directory.sync()


def everything_lost(prepare: database.Prepare) -> Report:
    """The report where nothing of the old tables can be had."""
    tables = database.expected_columns(prepare)
    return Report(lost=Counter(dict.fromkeys(tables, 1)), gaps={table: [(None, None)] for table in tables})


def copy(source: sqlite3.Connection, target: sqlite3.Connection, remains: Remains, *, patient: bool) -> Report:
    """Move every row that can be read into the tables of `target`, which hold nothing worth keeping."""
    report = Report()
    found = _columns(source)
    tables = database.columns(target)
    sequences = tables.pop("sqlite_sequence", None)
    for name, columns in tables.items():
        target.execute("BEGIN")
        target.execute(f"DELETE FROM {quoted(name)}")
        table = Table(name, columns, found.get(name, ()), *_order(target, name))
        Salvage(source, target, table, remains, report, patient=patient).run()
        target.execute("COMMIT")
    if sequences:
        _copy_sequences(source, target)
    return report


@contextmanager
def _quarantine(directory: StateDirectory) -> Iterator[Remains]:
    remains = Remains(directory.new_quarantine("ndjson"))
    try:
        yield remains
    finally:
        remains.close()


def _columns(source: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    try:
        return database.columns(source)
    except database.UNREADABLE as error:
        if database.is_io(error):
            raise
        return {}


def _order(db: sqlite3.Connection, table: str) -> tuple[tuple[str, ...], bool]:
    """What a table is sorted by, and whether it has rowids."""
    query = f"SELECT name, type, pk FROM pragma_table_info({_literal(table)}) WHERE pk ORDER BY pk"
    keys = db.execute(query).fetchall()
    (without_rowid,) = db.execute(f"SELECT wr FROM pragma_table_list WHERE name = {_literal(table)}").fetchone()
    if without_rowid or (len(keys) == 1 and keys[0][1].upper() == "INTEGER"):
        return tuple(name for name, _, _ in keys), not without_rowid
    return ("rowid",), True


def _copy_sequences(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Numbers that were given must not be given again, though their rows are gone."""
    try:
        sequences = source.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
    except database.UNREADABLE:
        return
    for name, seq in sequences:
        changed = target.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (seq, name)).rowcount
        if not changed:
            target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, seq))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
