"""Salvage: the kinds of damage that chance seldom draws; the rest is in `test_spool_repair`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shipper.spool import database
from shipper.spool.database import Connect, connect
from shipper.spool.directory import StateDirectory, own
from shipper.spool.opening import open_newest
from shipper.spool.repair import renew
from shipper.spool.report import Report
from tests.spool.test_spool_repair import Rows, overwrite, page_of, populate, prepare, recovered, rows


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("populated") / "state"
    with own(path) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        populate(generation.db)
        generation.close(failed=False)
    return path


@pytest.fixture
def state(populated: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(populated, tmp_path / "state"))


@pytest.fixture
def whole(populated: Path) -> Rows:
    db = connect(populated / "spool-1.db", True)
    found = rows(db)
    db.close()
    return found


def replace(state: Path, old: bytes, new: bytes) -> None:
    """Damage bytes that stand at one place of the file."""
    path = state / "spool-1.db"
    content = path.read_bytes()
    assert (content.count(old), len(old)) == (1, len(new))
    path.write_bytes(content.replace(old, new))


def failing(when: Callable[[str, Any], object], code: str) -> Connect:
    """Connections that answer some statements, by their text and values, with an error of SQLite."""

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
            if when(sql, values):
                error = sqlite3.OperationalError(code)
                error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, code), code
                raise error
            return super().execute(sql, values)

    return partial(connect, kind=Failing)


def copied(directory: StateDirectory, through: Connect, *, patient: bool = False) -> tuple[Rows, Report]:
    """What a copy of the newest generation holds, and what it reports."""
    number = directory.generations()[-1]
    source = through(directory.database(number), False)
    try:
        generation, report = renew(directory, number, source, prepare, through, patient=patient)
    finally:
        source.close()
    found = rows(generation.db)
    generation.close(failed=False)
    return found, report


# -- damaged keys ------------------------------------------------------------------------------------------------------


def test_a_row_out_of_its_order_at_the_end_of_a_table_is_lost_alone(state: Path, whole: Rows) -> None:
    replace(state, b"\x04\x78\x03\x08\x01\x78", b"\x04\x03\x03\x08\x01\x78")  # the last rowid, 120, becomes 3
    with own(state) as directory:
        found, report = copied(directory, connect)

    assert whole["settled"] - found["settled"] == {(0, 120)}
    assert report.lost == {"settled": 1}


def test_a_row_that_shows_a_key_below_what_was_asked_for_does_not_hold_the_copy_for_ever(tmp_path: Path) -> None:
    """A page of which the beginning came to the disk and the rest is zeros: each lost row seems to have the key 0."""

    @database.with_damage
    def plain(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE IF NOT EXISTS batch (seq INTEGER PRIMARY KEY, body BLOB)")

    with own(tmp_path / "state") as directory:
        old = open_newest(directory, plain, connect, locked_out=False)
        old.db.executemany("INSERT INTO batch VALUES (?, zeroblob(?))", [(n, 3000 * n) for n in range(5)])
        (root,) = old.db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'batch'").fetchone()
        old.close(failed=False)
        overwrite(directory.database(1), root + 1, bytes(database.PAGE_BYTES - 64 - 5), at=64)
        overwrite(directory.database(1), root + 2, bytes(database.PAGE_BYTES))
        source = connect(directory.database(1), False)
        new, report = renew(directory, 1, source, plain, connect, patient=False)
        source.close()
        new.close(failed=True)

    assert report.lost["batch"]


def test_a_page_whose_rows_are_out_of_order_does_not_hold_the_copy_for_ever(state: Path, whole: Rows) -> None:
    """Two pointers to rows of a leaf were overwritten: SQLite gives rows of that table in effect without end."""
    leaf = page_of(state / "spool-1.db", "name = 'cursor' AND path = '/000/'")
    overwrite(state / "spool-1.db", leaf, b"\x8d\xb4\x0bov", at=64)
    with own(state) as directory:
        found, report = copied(directory, connect)

    assert 0 < len(whole["cursor"] - found["cursor"]) <= 73
    assert report.lost["cursor"]


def test_a_key_of_another_type_costs_its_row_alone(state: Path, whole: Rows) -> None:
    replace(state, b"\x05\x09\x01\x83\x1d\x3c1/60 ", b"\x05\x00\x01\x83\x1d\x3c1/60 ")  # lane 1 becomes NULL
    with own(state) as directory:
        found, report = copied(directory, connect)

    assert {row[:2] for row in whole["todo"] - found["todo"]} == {(1, 60)}
    assert report.lost == {"todo": 1}


def test_a_row_that_lacks_what_it_must_have_is_lost_alone(state: Path, whole: Rows) -> None:
    replace(state, b"\x05\x09\x01\x83\x1d\x3c1/60 ", b"\x05\x09\x01\x00\x1d\x3c1/60 ")
    with own(state) as directory:
        found, report = copied(directory, connect)

    assert {row[:2] for row in whole["todo"] - found["todo"]} == {(1, 60)}
    assert report.lost == {"todo": 1}


def test_a_damaged_name_of_a_column_costs_nothing(state: Path, whole: Rows) -> None:
    replace(state, b"position BLOB", b"po$ition BLOB")

    found, report = recovered(state)

    assert found == whole
    assert report is None


def test_a_damaged_header_costs_no_row(state: Path, whole: Rows) -> None:
    overwrite(state / "spool-1.db", 1, b"\x00", at=68)  # of the application's id

    assert recovered(state) == (whole, None)


# -- disks that fail ---------------------------------------------------------------------------------------------------


def test_a_row_that_cannot_be_looked_up_while_the_disk_fails_is_tried_again_or_lost_alone(
    state: Path, whole: Rows
) -> None:
    replace(state, b"\x04\x78\x03\x08\x01\x78", b"\x04\x03\x03\x08\x01\x78")  # the last rowid, 120, becomes 3
    through = failing(lambda sql, values: 'FROM "settled"' in sql and " = ?" in sql and values == (7,), "SQLITE_IOERR")
    with own(state) as directory:
        with pytest.raises(sqlite3.OperationalError, match="SQLITE_IOERR"):
            copied(directory, through, patient=True)
        found, report = copied(directory, through)

    assert whole["settled"] - found["settled"] == {(0, 7), (0, 120)}
    assert (report.lost, report.kept) == ({"settled": 1}, ["quarantine-1.db"])


def test_a_disk_that_fails_to_read_the_schema_is_not_taken_for_an_empty_database(state: Path) -> None:
    through = failing(lambda sql, values: "pragma_table_info(m.name)" in sql, "SQLITE_IOERR")
    with own(state) as directory, pytest.raises(sqlite3.OperationalError, match="SQLITE_IOERR"):
        copied(directory, through)

    assert [path.name for path in state.glob("spool-*.db")] == ["spool-1.db"]


def test_a_copy_that_finds_no_room_leaves_the_old_database_as_it_was(state: Path, whole: Rows) -> None:
    before = (state / "spool-1.db").read_bytes()
    through = failing(lambda sql, values: sql.startswith('INSERT INTO "batch"'), "SQLITE_FULL")
    with own(state) as directory, pytest.raises(sqlite3.OperationalError, match="SQLITE_FULL"):
        copied(directory, through)

    assert (state / "spool-1.db").read_bytes() == before
    assert recovered(state) == (whole, None)


def test_what_stood_in_a_transaction_that_could_not_be_rolled_back_is_not_copied(state: Path, whole: Rows) -> None:
    with own(state) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        generation.db.execute("BEGIN IMMEDIATE")
        generation.db.execute("DELETE FROM batch")
        newer, report = renew(directory, 1, generation.db, prepare, connect, patient=True)
        assert (rows(newer.db), report.intact) == (whole, True)
        for each in (generation, newer):
            each.close(failed=True)


def test_tables_without_numbers_that_were_given_are_copied_too(tmp_path: Path) -> None:
    @database.with_damage
    def plain(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE IF NOT EXISTS batch (seq INTEGER PRIMARY KEY)")

    with own(tmp_path / "state") as directory:
        old = open_newest(directory, plain, connect, locked_out=False)
        old.db.execute("INSERT INTO batch VALUES (7)")
        new, _ = renew(directory, 1, old.db, plain, connect, patient=True)
        assert new.db.execute("SELECT seq FROM batch").fetchall() == [(7,)]
        for each in (old, new):
            each.close(failed=True)
