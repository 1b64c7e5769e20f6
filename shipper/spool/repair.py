"""Makes a new generation of the database: readable rows of the old one are copied into an empty one.

`prepare` makes its tables, so it is sound whatever the damage; columns are matched by name, or by place where names
were damaged. The new file is complete, durable and open before the old one is removed.

A database that lost an unknown number of rows is kept, unchanged, in quarantine. Where all lost rows are counted,
nothing is kept: what is left of a sealed body cannot be opened.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

from shipper.spool import database
from shipper.spool.database import Generation
from shipper.spool.directory import StateDirectory
from shipper.spool.report import Report
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
    """Copies the readable rows of a generation through `source` to a new one; returns it open and durable.

    `patient`: raises where the disk fails to read, since the next attempt may succeed; otherwise such rows are lost.
    Raises sqlite3.Error or OSError if it cannot be written. The old generation is never changed.
    """
    if source.in_transaction:
        source.execute("ROLLBACK")
    newer, part = directory.begin_generation()
    target = database.create(part, prepare, connect)
    try:
        report = copy(source, target, patient=patient)
        if not report.is_counted:
            report.kept.append(directory.aside(number).name)
        report.store(target)
    except BaseException:
        target.close()
        raise
    database.complete(target)
    path = directory.complete_generation(newer)
    return Generation.open(newer, path, prepare, connect), report


def retire(directory: StateDirectory, newest: Generation, report: Report | None) -> None:
    """Removes every older generation, or sets it aside where the report keeps it.

    Call this before its connections are closed: a connection whose file is gone does not write to it any more.
    """
    for number in directory.generations():
        if number < newest.number:
            if report and directory.aside(number).name in report.kept:
                directory.set_aside(number)
            else:
                directory.remove_generation(number)
    directory.sync()


def everything_lost(prepare: database.Prepare) -> Report:
    """Returns the report for the loss of all tables."""
    tables = database.expected_columns(prepare)
    return Report(lost=Counter(dict.fromkeys(tables, 1)), is_counted=False)


def copy(source: sqlite3.Connection, target: sqlite3.Connection, *, patient: bool) -> Report:
    """Copies every readable row into the tables of `target`, whose rows are deleted."""
    report = Report()
    found = _columns(source)
    tables = database.columns(target)
    sequences = tables.pop("sqlite_sequence", None)
    for name, columns in tables.items():
        target.execute("BEGIN")
        target.execute(f"DELETE FROM {quoted(name)}")
        table = Table(name, columns, found.get(name, ()), *_order(target, name))
        salvage = Salvage(source, target, table, patient=patient)
        salvage.run()
        report.add(name, salvage.lost, is_counted=salvage.is_counted)
        target.execute("COMMIT")
    if sequences:
        _copy_sequences(source, target)
    return report


def _columns(source: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    try:
        return database.columns(source)
    except database.UNREADABLE as error:
        if database.is_io(error):
            raise
        return {}


def _order(db: sqlite3.Connection, table: str) -> tuple[tuple[str, ...], bool]:
    """Returns the columns that sort a table, and whether it has rowids."""
    query = f"SELECT name, type, pk FROM pragma_table_info({_literal(table)}) WHERE pk ORDER BY pk"
    keys = db.execute(query).fetchall()
    (without_rowid,) = db.execute(f"SELECT wr FROM pragma_table_list WHERE name = {_literal(table)}").fetchone()
    if without_rowid or (len(keys) == 1 and keys[0][1].upper() == "INTEGER"):
        return tuple(name for name, _, _ in keys), not without_rowid
    return ("rowid",), True


def _copy_sequences(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copies the counters, so that numbers of deleted rows are not given again."""
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
