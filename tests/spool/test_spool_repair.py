"""Repair: any content of a database opens, and what is not damaged is still there."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shipper.sdk.errors import StartFailed
from shipper.spool import database, opening, repair
from shipper.spool.database import Generation, connect
from shipper.spool.directory import StateDirectory, own
from shipper.spool.opening import open_newest
from shipper.spool.repair import renew, retire
from shipper.spool.report import Report
from tests.databases import in_memory
from tests.examples import examples

PAGE = database.PAGE_BYTES
BATCHES = 120
LANES = 3
Rows = dict[str, set[tuple[Any, ...]]]


@database.with_damage
def prepare(db: sqlite3.Connection) -> None:
    for table in (
        "batch (seq INTEGER PRIMARY KEY, count INTEGER NOT NULL, body BLOB NOT NULL)",
        "todo (lane INTEGER, seq INTEGER, note TEXT NOT NULL, PRIMARY KEY (lane, seq)) WITHOUT ROWID",
        "cursor (input TEXT, key TEXT, position BLOB NOT NULL, PRIMARY KEY (input, key)) WITHOUT ROWID",
        "rest (id INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER, seq INTEGER, UNIQUE (lane, seq))",
        "settled (epoch INTEGER, revision INTEGER)",
    ):
        db.execute(f"CREATE TABLE IF NOT EXISTS {table}")


def body(seq: int) -> bytes:
    return hashlib.sha256(b"%d" % seq).digest() * (40 * (1 + seq % 50))


def populate(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    for seq in range(1, BATCHES + 1):
        db.execute("INSERT INTO batch VALUES (?, ?, ?)", (seq, seq * 2, body(seq)))
        db.execute("INSERT INTO rest (lane, seq) VALUES (?, ?)", (seq % LANES, seq))
        db.execute("INSERT INTO settled VALUES (?, ?)", (0, seq))
        for lane in range(LANES):
            db.execute("INSERT INTO todo VALUES (?, ?, ?)", (lane, seq, f"{lane}/{seq} " * 40))
            db.execute("INSERT INTO cursor VALUES (?, ?, ?)", (f"input-{lane}", f"file-{seq:03}", body(seq)[:200]))
    db.execute("COMMIT")


def rows(db: sqlite3.Connection) -> Rows:
    """All rows, in the order of the tables, as any query would read them."""
    return {
        table: set(db.execute(f"SELECT * FROM {table}").fetchall())
        for table in ("batch", "todo", "cursor", "rest", "settled")
    }


class Page(NamedTuple):
    number: int
    table: str
    reach: int
    """How many rows cannot be read any more if this page is lost, at most."""


class Template:
    def __init__(self, path: Path, rows: Rows, pages: list[Page]) -> None:
        self.path = path
        self.rows = rows
        self.pages = pages


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A directory with a populated database, and what depends on each of its pages."""
    path = tmp_path_factory.mktemp("template") / "state"
    with own(path) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        populate(generation.db)
        found, pages = rows(generation.db), list(_pages(generation.db))
        generation.close(failed=False)
    return Template(path, found, pages)


def _pages(db: sqlite3.Connection) -> Iterator[Page]:
    stats = db.execute("SELECT name, path, pageno, pagetype, ncell FROM dbstat").fetchall()
    without_rowid = {"todo", "cursor"}
    for name, path, number, kind, _ in stats:
        if kind == "overflow":
            yield Page(number, name, 1)
            continue
        below = [s for s in stats if s[0] == name and s[1].startswith(path) and s[3] != "overflow"]
        if name in without_rowid:  # whose inner pages hold the rows between their leaves: one on each side
            yield Page(number, name, sum(s[4] for s in below) + 2)
        else:
            yield Page(number, name, sum(s[4] for s in below if s[3] == "leaf"))


@pytest.fixture
def state(template: Template, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template.path, tmp_path / "state"))


def damage(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def overwrite(path: Path, page: int, garbage: bytes, at: int = 0) -> None:
    """Put garbage on a page (the first is 1), and not beyond it."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE + at)
        file.write(garbage[: PAGE - at])


def page_of(path: Path, query: str) -> int:
    db = connect(path, True)
    (number,) = db.execute(f"SELECT pageno FROM dbstat WHERE {query}").fetchone()
    db.close()
    return int(number)


def recovered(path: Path) -> tuple[Rows, Report | None]:
    """What is left in a directory, read as the store reads: where reading fails, a repair comes first."""
    with own(path) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        try:
            found = rows(generation.db)
        except database.UNREADABLE:
            generation = renewed(directory, generation)
            found = rows(generation.db)
        report = Report.load(generation.db)
        if generation.number > 1:
            assert generation.db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        generation.close(failed=False)
    return found, report


def renewed(directory: StateDirectory, old: Generation) -> Generation:
    new, report = renew(directory, old.number, old.db, prepare, connect, patient=True)
    retire(directory, new, report)
    old.close(failed=True)
    return new


SLOW = settings(max_examples=examples(0.5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(st.data())
def test_a_damaged_page_costs_no_row_that_does_not_depend_on_it(
    template: Template, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    page = data.draw(st.sampled_from(template.pages).filter(lambda page: page.number != 1))
    garbage = data.draw(
        st.one_of(
            st.tuples(st.integers(0, PAGE - 1), st.binary(min_size=1, max_size=8)),
            st.tuples(st.integers(0, 12), st.binary(min_size=1, max_size=8)),
            st.sampled_from([(0, bytes(PAGE)), (0, b"\xff" * PAGE), (0, bytes(range(256)) * (PAGE // 256))]),
        )
    )
    path = tmp_path_factory.mktemp("state") / "state"
    shutil.copytree(template.path, path)
    overwrite(path / "spool-1.db", page.number, garbage[1], garbage[0])

    found, _ = recovered(path)

    for table, wanted in template.rows.items():
        lost = len(wanted - found[table])
        allowed = page.reach if page.table == table else 0
        assert lost <= allowed, (table, page)
    shutil.rmtree(path)


@SLOW
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 255)), min_size=1, max_size=2000), st.booleans())
def test_flipped_bytes_anywhere_open(
    template: Template, tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], head: bool
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    shutil.copytree(template.path, path)

    def change(content: bytearray) -> None:
        for at, mask in flips:
            content[at % (2 * PAGE if head else len(content))] ^= mask

    damage(path / "spool-1.db", change)
    recovered(path)
    shutil.rmtree(path)


@pytest.mark.parametrize("pages", [0, 0.5, 1.5, 20.3])
def test_a_database_that_was_cut_off_opens(state: Path, pages: float) -> None:
    damage(state / "spool-1.db", lambda content: content.__delitem__(slice(int(pages * PAGE), None)))

    _, report = recovered(state)

    assert report is not None
    assert report.lost["batch"] >= 1
    assert (state / "quarantine-1.db").stat().st_size == int(pages * PAGE)


@pytest.mark.parametrize("content", [b"", b"x", b"SQLite format 3\0", bytes(PAGE), b"\xff" * 5 * PAGE])
def test_any_content_opens_empty_and_is_kept(state: Path, content: bytes) -> None:
    (state / "spool-1.db").write_bytes(content)

    found, report = recovered(state)

    assert not any(found.values())
    assert report is not None
    assert report.lost == {"batch": 1, "todo": 1, "cursor": 1, "rest": 1, "settled": 1, "damage": 1}
    assert (state / "quarantine-1.db").read_bytes() == content
    assert report.kept == ["quarantine-1.db"]


def test_nothing_is_lost_by_a_copy_of_a_sound_database(template: Template, state: Path) -> None:
    with own(state) as directory:
        generation = renewed(directory, open_newest(directory, prepare, connect, locked_out=False))

        assert rows(generation.db) == template.rows
        assert Report.load(generation.db) is None
        assert directory.generations() == [2]
        generation.close(failed=False)
    assert not list(state.glob("quarantine*"))


def test_a_copy_does_not_bring_back_what_was_deleted(state: Path) -> None:
    with own(state) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        generation.db.execute("DELETE FROM batch WHERE seq > 5")
        generation = renewed(directory, generation)

        assert {row[0] for row in rows(generation.db)["batch"]} == {1, 2, 3, 4, 5}
        generation.close(failed=False)


def test_what_lies_between_damaged_pages_is_not_lost(template: Template, state: Path) -> None:
    pages = [page for page in template.pages if page.table == "batch" and page.reach < BATCHES][::20]
    for page in pages:
        overwrite(state / "spool-1.db", page.number, b"\xff" * PAGE)

    found, report = recovered(state)

    assert report is not None
    assert len(pages) > 5
    assert len(template.rows["batch"] - found["batch"]) <= sum(page.reach for page in pages)
    assert 5 < BATCHES - len(found["batch"]) <= report.lost["batch"]


def test_a_row_with_a_lost_part_is_counted_and_its_neighbours_are_not_lost(template: Template, state: Path) -> None:
    second = "SELECT path FROM dbstat WHERE name = 'batch' AND path LIKE '%+000001' LIMIT 1"
    path = state / "spool-1.db"
    overwrite(path, page_of(path, f"name = 'batch' AND path = replace(({second}), '+000001', '+000000')"), b"\xff" * 4)

    found, report = recovered(state)

    assert report is not None
    assert len(template.rows["batch"] - found["batch"]) == 1
    assert (report.lost, report.kept) == ({"batch": 1}, [])
    assert not list(state.glob("quarantine*"))


def test_a_database_that_lost_an_unknown_number_of_rows_is_kept(template: Template, state: Path) -> None:
    path = state / "spool-1.db"
    overwrite(path, page_of(path, "name = 'todo' AND path = '/001/'"), b"\xff" * PAGE)
    content = path.read_bytes()

    found, report = recovered(state)

    assert report is not None
    lost = sorted(row[:2] for row in template.rows["todo"] - found["todo"])
    assert all(not lost[0] < row[:2] < lost[-1] for row in found["todo"])
    assert (report.lost, report.kept) == ({"todo": 1}, ["quarantine-1.db"])
    assert (state / "quarantine-1.db").read_bytes() == content


def test_a_report_is_there_until_somebody_acted_upon_it(state: Path) -> None:
    (state / "spool-1.db").write_bytes(b"")
    for _ in range(3):
        with own(state) as directory:
            generation = open_newest(directory, prepare, connect, locked_out=False)
            report = Report.load(generation.db)
            generation.close(failed=False)
            assert report is not None
    with own(state) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        Report.forget(generation.db)
        generation = renewed(directory, generation)

        assert Report.load(generation.db) is None
        generation.close(failed=False)


class Died(BaseException):
    pass


@pytest.mark.parametrize("step", ["create", "copy", "complete_generation", "retire"])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_repair_that_dies_anywhere_is_made_at_the_next_start(
    template: Template, state: Path, monkeypatch: pytest.MonkeyPatch, step: str, damaged: bool
) -> None:
    def die(*args: Any, **options: Any) -> Any:
        raise Died

    if damaged:
        overwrite(state / "spool-1.db", 1, b"\xff" * 4)
    owner: Any = {"create": database, "copy": repair, "complete_generation": StateDirectory, "retire": opening}[step]
    with monkeypatch.context() as patched, own(state) as directory:
        patched.setattr(owner, step, die)
        with pytest.raises(Died):
            renewed_or_opened(directory, die if step == "retire" else retire)

    found, report = recovered(state)

    assert (report is not None) == damaged
    assert (state / "quarantine-1.db").exists() == damaged
    assert damaged or found == template.rows
    assert not list(state.glob("*.tmp*"))


def renewed_or_opened(directory: StateDirectory, put_away: Callable[..., None]) -> None:
    generation = open_newest(directory, prepare, connect, locked_out=False)
    try:
        new, report = renew(directory, generation.number, generation.db, prepare, connect, patient=True)
        try:
            put_away(directory, new, report)
        finally:
            new.close(failed=True)
    finally:
        generation.close(failed=True)


@pytest.mark.parametrize(
    ("code", "name"), [(sqlite3.SQLITE_CANTOPEN, "SQLITE_CANTOPEN"), (sqlite3.SQLITE_READONLY, "SQLITE_READONLY")]
)
def test_a_database_that_cannot_be_opened_is_not_taken_for_a_damaged_one(state: Path, code: int, name: str) -> None:
    before = (state / "spool-1.db").read_bytes()

    def refusing(path: Path, readonly: bool) -> sqlite3.Connection:
        error = sqlite3.OperationalError("refused")
        error.sqlite_errorcode, error.sqlite_errorname = code, name
        raise error

    with own(state) as directory, pytest.raises(StartFailed, match=name):
        open_newest(directory, prepare, refusing, locked_out=False)

    assert (state / "spool-1.db").read_bytes() == before


class Unreadable(sqlite3.Connection):
    """A disk that cannot read one stretch of the table `batch`, this time."""

    failures = 0

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if Unreadable.failures and '"batch"' in sql and "SELECT" in sql:
            Unreadable.failures -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_READ, "SQLITE_IOERR_READ"
            raise error
        return super().execute(sql, *args)


def test_a_disk_that_fails_to_read_for_a_moment_costs_nothing(template: Template, state: Path) -> None:
    def unreadable(path: Path, readonly: bool) -> sqlite3.Connection:
        return connect(path, readonly, Unreadable)

    with own(state) as directory:
        old = open_newest(directory, prepare, unreadable, locked_out=False)
        Unreadable.failures = 1
        with pytest.raises(sqlite3.OperationalError, match="I/O"):
            renew(directory, old.number, old.db, prepare, unreadable, patient=True)

        new, report = renew(directory, old.number, old.db, prepare, unreadable, patient=True)
        assert rows(new.db) == template.rows
        assert report.intact
        for generation in (old, new):
            generation.close(failed=True)


def test_a_failed_database_is_closed_without_another_write(state: Path) -> None:
    with own(state) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        generation.db.execute("DELETE FROM settled")
        before = {path.name: path.read_bytes() for path in state.glob("spool-1.db*") if path.suffix != ".db-shm"}
        generation.close(failed=True)

    assert {path.name: path.read_bytes() for path in state.glob("spool-1.db*") if path.suffix != ".db-shm"} == before
    assert (state / "spool-1.db-wal").stat().st_size > 0


FRAME = PAGE + 24


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory as a killed process leaves it: everything stands in the WAL, in 21 commits."""
    with own(tmp_path / "owned") as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        populate(generation.db)
        for seq in range(1000, 1020):
            generation.db.execute("INSERT INTO settled VALUES (1, ?)", (seq,))
        shutil.copytree(directory.path, tmp_path / "state", ignore=shutil.ignore_patterns("*-shm"))
        generation.close(failed=False)
    return tmp_path / "state"


def flip(path: Path, at: int) -> None:
    damage(path, lambda content: content.__setitem__(at, content[at] ^ 1))


def test_a_wal_that_was_left_is_replayed(template: Template, killed: Path) -> None:
    found, report = recovered(killed)

    assert report is None
    assert len(found["settled"]) == BATCHES + 20


def test_a_torn_end_of_the_wal_is_nothing_lost(killed: Path) -> None:
    flip(killed / "spool-1.db-wal", -100)

    found, report = recovered(killed)

    assert report is None
    assert len(found["settled"]) == BATCHES + 19


@pytest.mark.parametrize("commits", [2, 10, 20])
def test_damage_in_the_middle_of_the_wal_is_reported_and_its_bytes_are_kept(killed: Path, commits: int) -> None:
    wal = killed / "spool-1.db-wal"
    flip(wal, wal.stat().st_size - commits * FRAME + 100)
    content = wal.read_bytes()

    found, report = recovered(killed)

    assert len(found["settled"]) == BATCHES + 20 - commits
    assert report is not None
    assert (report.lost["wal"], report.lost["todo"]) == (commits, 1)
    assert (killed / report.kept[0]).read_bytes() == content


def test_frames_of_an_older_wal_are_not_taken_for_lost_ones(killed: Path) -> None:
    with own(killed) as directory:
        generation = open_newest(directory, prepare, connect, locked_out=False)
        for epoch in range(300):
            generation.db.execute("INSERT INTO settled VALUES (2, ?)", (epoch,))
        generation.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        generation.db.execute("INSERT INTO settled VALUES (3, 0)")
        generation.close(failed=True)
    assert (killed / "spool-1.db-wal").stat().st_size > 200 * FRAME

    _, report = recovered(killed)

    assert report is None


@pytest.mark.parametrize("kept", [0, 2], ids=["all are gone", "some are left"])
def test_the_number_of_a_row_that_was_deleted_is_not_given_again(kept: int) -> None:
    source, target = (in_memory() for _ in range(2))
    for db in (source, target):
        prepare(db)
    for db, rows in ((source, 7), (target, kept)):
        db.executemany("INSERT INTO rest (lane, seq) VALUES (1, ?)", [(row,) for row in range(rows)])
    source.execute("DELETE FROM rest")
    repair._copy_sequences(source, target)
    target.execute("INSERT INTO rest (lane, seq) VALUES (2, 1)")

    assert target.execute("SELECT max(id) FROM rest").fetchone() == (8,)
