"""The store: what was answered is durable, whatever the disk, the process or a caller does."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shipper.sdk.errors import StartFailed, StateBusy, StateLocked
from shipper.spool import database, store, writer
from shipper.spool.disk import Disk
from shipper.spool.store import Damaged, StateKey, Store, StoreFailed, open_store
from tests.disks import fill, small_disk
from tests.limits import descriptors_at_most

K1 = StateKey("k1", b"1" * 32)
K2 = StateKey("k2", b"2" * 32)


def prepare(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS batch (seq INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL)")


opened = partial(open_store, keys=[K1], prepare=prepare)


def insert(body: bytes) -> Callable[[sqlite3.Connection], int]:
    def run(db: sqlite3.Connection) -> int:
        return int(db.execute("INSERT INTO batch (body) VALUES (?) RETURNING seq", (body,)).fetchone()[0])

    return run


def bodies(db: sqlite3.Connection) -> list[bytes]:
    return [body for (body,) in db.execute("SELECT body FROM batch ORDER BY seq")]


class Gate:
    """An operation that keeps the writer busy until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._open = threading.Event()

    def __call__(self, db: sqlite3.Connection) -> None:
        self.entered.set()
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


async def a_busy_writer(store: Store) -> Gate:
    gate = Gate()
    store.post(gate)
    await trio.to_thread.run_sync(gate.entered.wait)
    return gate


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - the disk tells nobody
            await trio.sleep(0.01)


# -- operations --------------------------------------------------------------------------------------------------------


async def test_what_was_done_is_read_and_is_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        assert await store.do(insert(b"a")) == 1
        assert await store.append(insert(b"b")) == 2
        assert await store.read(bodies) == [b"a", b"b"]

    async with opened(tmp_path / "state") as store:
        assert await store.read(bodies) == [b"a", b"b"]
        assert await store.do(insert(b"c")) == 3


async def test_what_was_posted_is_committed_before_the_store_closes(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        for number in range(100):
            store.post(insert(b"%d" % number))

    async with opened(tmp_path / "state") as store:
        assert await store.read(bodies) == [b"%d" % number for number in range(100)]


async def test_an_idle_writer_commits_what_is_posted_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        store.post(insert(b"a"))

        with trio.fail_after(60):
            while not await store.read(bodies):
                pass


async def test_an_operation_that_raises_takes_only_itself_back(tmp_path: Path) -> None:
    def fail(db: sqlite3.Connection) -> None:
        insert(b"lost")(db)
        raise KeyError("reason")

    async def failing() -> None:
        with pytest.raises(KeyError, match="reason"):
            await store.do(fail)

    async with opened(tmp_path / "state") as store:
        gate = await a_busy_writer(store)
        async with trio.open_nursery() as nursery:
            for body in (b"a", b"b"):
                nursery.start_soon(store.do, insert(body))
            nursery.start_soon(failing)
            gate.open()

        assert sorted(await store.read(bodies)) == [b"a", b"b"]


async def test_an_error_of_a_statement_goes_to_its_caller(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await store.do(lambda db: db.execute("INSERT INTO nowhere VALUES (1)"))
        with pytest.raises(sqlite3.IntegrityError):
            await store.do(lambda db: db.execute("INSERT INTO batch VALUES (1, NULL)"))

        assert store.problem is None
        assert await store.do(insert(b"a")) == 1


async def test_all_that_waits_is_one_transaction(tmp_path: Path) -> None:
    commits = 0

    class Counting(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            nonlocal commits
            commits += sql == "COMMIT"
            return super().execute(sql, *args)

    async with opened(tmp_path / "state", disk=Disk(partial(database.connect, kind=Counting))) as store:
        gate = await a_busy_writer(store)
        commits = 0
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(store.do, insert(b"x"))
            await trio.testing.wait_all_tasks_blocked()
            gate.open()

        assert commits == 2


async def test_urgent_operations_go_first(tmp_path: Path) -> None:
    order: list[str] = []

    async def note(name: str, urgent: bool) -> None:
        await store.do(lambda db: order.append(name), urgent=urgent)

    async with opened(tmp_path / "state") as store:
        gate = await a_busy_writer(store)
        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(note, name, name == "c")
                await trio.testing.wait_all_tasks_blocked()
            gate.open()

    assert order == ["c", "a", "b"]


async def test_an_operation_handed_over_is_done_though_its_caller_is_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await store.do(insert(b"a")) == 1
            await trio.lowlevel.checkpoint()

        assert scope.cancelled_caught
        assert await store.read(bodies) == [b"a"]


async def test_an_append_that_still_waits_is_withdrawn_by_a_cancel(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        gate = await a_busy_writer(store)
        with trio.move_on_after(0.05) as scope:
            await store.append(insert(b"a"))
        gate.open()

        assert scope.cancelled_caught
        await store.do(insert(b"b"))
        assert await store.read(bodies) == [b"b"]


async def test_a_caller_that_is_cancelled_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PATIENCE_SECONDS", 0.05)
    async with opened(tmp_path / "state") as opened_store:
        gate = await a_busy_writer(opened_store)
        with trio.fail_after(60), trio.CancelScope() as scope:
            scope.cancel()
            await opened_store.do(insert(b"a"))
        gate.open()

        assert scope.cancelled_caught
        await until(lambda: True)
        await opened_store.do(insert(b"b"))
        assert await opened_store.read(bodies) == [b"a", b"b"]


async def test_patience_that_ends_after_the_answer_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PATIENCE_SECONDS", 0.3)
    async with opened(tmp_path / "state") as opened_store:
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await opened_store.do(insert(b"a")) == 1
        await trio.sleep(0.4)

        assert await opened_store.read(bodies) == [b"a"]


async def test_a_posted_operation_that_raises_ends_the_store(tmp_path: Path) -> None:
    problems: list[str | None] = []

    def bug(db: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with opened(tmp_path / "state") as store:
            store.on_problem(problems.append)
            store.post(bug)
            await trio.sleep_forever()

    assert problems == ["failed: ZeroDivisionError"]


async def test_a_closed_store_refuses_work(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        pass

    with pytest.raises(StoreFailed):
        await store.do(insert(b"a"))
    with pytest.raises(StoreFailed):
        store.post(insert(b"a"))


# -- starting ----------------------------------------------------------------------------------------------------------


async def test_a_directory_in_use_is_busy(tmp_path: Path) -> None:
    async with opened(tmp_path / "state"):
        with pytest.raises(StateBusy, match=str(os.getpid())):
            async with opened(tmp_path / "state"):
                pass


async def test_a_locked_directory_is_not_touched(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        await store.do(insert(b"a"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}

    with pytest.raises(StateLocked):
        async with open_store(tmp_path / "state", [K2], prepare=prepare):
            pass

    assert {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()} == before


async def test_the_database_is_as_the_design_says(tmp_path: Path) -> None:
    wanted = {"page_size": 16384, "auto_vacuum": 2, "journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0}
    wanted |= {"mmap_size": 0, "cell_size_check": 1, "journal_size_limit": 4 * 2**20, "cache_spill": 0}

    def pragmas(db: sqlite3.Connection) -> dict[str, Any]:
        return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted if name != "mmap_size"}

    async with opened(tmp_path / "state") as store:
        found = await store.do(pragmas)

    assert found == {name: value for name, value in wanted.items() if name in found}


async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await store.read(insert(b"a"))


async def test_nothing_is_left_open_or_in_the_wal_when_a_store_was_closed(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        await store.do(insert(b"a"))
        await store.read(bodies)

    names = {path.name for path in (tmp_path / "state").iterdir()}
    assert names == {"lock", "keyring", "keyring.copy", "ballast", "spool-1.db"}


async def test_a_database_that_was_removed_is_reported_as_lost(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        await store.do(insert(b"a"))
    (tmp_path / "state" / "spool-1.db").unlink()

    async with opened(tmp_path / "state") as store:
        assert store.report is not None
        assert store.report.lost["batch"] == 1
        await store.do(store.report.forget)

    async with opened(tmp_path / "state") as store:
        assert store.report is None


async def test_a_database_without_its_keys_is_kept_aside(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        await store.do(insert(b"canary"))
    for name in ("keyring", "keyring.copy"):
        (tmp_path / "state" / name).unlink()

    async with opened(tmp_path / "state") as store:
        assert store.report is not None
        assert await store.read(bodies) == []
        assert b"canary" in (tmp_path / "state" / "quarantine-1.db").read_bytes()


async def test_data_keys_of_old_starts_go_unless_a_row_needs_them(tmp_path: Path) -> None:
    sealed = []
    for number in range(80):
        async with opened(tmp_path / "state") as store:
            if number % 30 == 0:
                sealed.append(store.sealer.seal("batch", number, 0, 0, b"event"))
                await store.do(insert(sealed[-1]))

    async with opened(tmp_path / "state") as store:
        assert [store.sealer.open("batch", 30 * n, 0, 0, body) for n, body in enumerate(sealed)] == [b"event"] * 3
    assert (tmp_path / "state" / "keyring").read_bytes().count(b'"data"') < 40


async def test_no_plaintext_and_no_key_is_on_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        for row in range(1, 50):
            await store.do(insert(store.sealer.seal("batch", row, 0, 0, b"the canary sings" * 100)))
        await store.do(lambda db: db.execute("DELETE FROM batch WHERE seq % 2"))
        everything = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())

    assert b"canary" not in everything
    assert K1.key not in everything
    assert K1.key.hex().encode() not in everything


# -- upkeep ------------------------------------------------------------------------------------------------------------


async def test_the_wal_stays_bounded_under_load(tmp_path: Path) -> None:
    body = os.urandom(2**20)
    async with opened(tmp_path / "state") as store:
        largest = 0
        for _ in range(100):
            await store.do(insert(body))
            largest = max(largest, (tmp_path / "state" / "spool-1.db-wal").stat().st_size)

    assert largest < 20 * 2**20


async def test_an_idle_store_gives_unused_pages_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "IDLE_SECONDS", 0.05)
    body = os.urandom(2**20)
    async with opened(tmp_path / "state") as store:
        for _ in range(30):
            await store.do(insert(body))
        assert store.disk_bytes() > 30 * 2**20

        await store.do(lambda db: db.execute("DELETE FROM batch"))

        await until(lambda: store.disk_bytes() < 14 * 2**20)


# -- a failing disk ----------------------------------------------------------------------------------------------------


class Fragile(sqlite3.Connection):
    """Fails for once at a chosen statement; the statement may have been carried out, as a COMMIT that raised may."""

    steps = -1
    after = False

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        Fragile.steps -= threading.current_thread().name == "spool writer"
        if Fragile.steps != 0:
            return super().execute(sql, *args)
        if Fragile.after and sql != "COMMIT":
            super().execute(sql, *args)
        raise self.failure()

    @classmethod
    def failure(cls) -> sqlite3.Error:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        return error


@pytest.fixture
def fragile() -> Iterator[database.Connect]:
    yield partial(database.connect, kind=Fragile)
    Fragile.steps, Fragile.after = -1, False


@pytest.mark.parametrize("after", [False, True])
async def test_a_failure_at_any_statement_of_a_group_loses_and_doubles_nothing(
    tmp_path: Path, fragile: database.Connect, after: bool
) -> None:
    for step in range(1, 11):  # to the COMMIT of both
        directory = tmp_path / str(step)
        async with opened(directory, disk=Disk(fragile)) as store:
            await store.do(insert(b"before"))
            gate = await a_busy_writer(store)
            async with trio.open_nursery() as nursery:
                for body in (b"a", b"b"):
                    nursery.start_soon(store.do, insert(body))
                    await trio.testing.wait_all_tasks_blocked()
                Fragile.steps, Fragile.after = step, after
                gate.open()

            assert await store.read(bodies) == [b"before", b"a", b"b"]
            assert store.problem is None
            Fragile.steps = -1
        async with opened(directory) as store:
            assert await store.read(bodies) == [b"before", b"a", b"b"]


async def test_an_operation_that_raises_leaves_nothing_behind_alone_or_beside_others(tmp_path: Path) -> None:
    def broken(db: sqlite3.Connection) -> None:
        insert(b"half")(db)
        raise ValueError("no")

    async with opened(tmp_path / "state") as store:
        with pytest.raises(ValueError, match="no"):
            await store.do(broken)
        gate = await a_busy_writer(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.do, insert(b"a"))
            nursery.start_soon(_refused, store, broken)
            await trio.testing.wait_all_tasks_blocked()
            gate.open()

        assert await store.read(bodies) == [b"a"]


async def _refused(store: Store, operation: Callable[[sqlite3.Connection], None]) -> None:
    with pytest.raises(ValueError, match="no"):
        await store.do(operation)


async def test_a_patient_operation_is_durable_soon_without_any_other(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        with trio.fail_after(60):
            assert await store.do(insert(b"a"), patience=0.005) == 1


async def test_what_is_patient_is_committed_when_somebody_waits_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store, trio.open_nursery() as nursery:
        nursery.start_soon(partial(store.do, insert(b"a"), patience=3600.0))
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert await store.read(lambda db: db.execute("SELECT count(*) FROM batch").fetchone()) == (0,)
        store.hurry()


async def test_a_failed_commit_is_answered_in_a_new_generation_only(tmp_path: Path, fragile: database.Connect) -> None:
    problems: list[str | None] = []
    async with opened(tmp_path / "state", disk=Disk(fragile)) as store:
        store.on_problem(problems.append)
        before = await store.do(insert(b"a"))
        Fragile.steps = 3  # BEGIN, INSERT, COMMIT

        assert await store.do(insert(b"b")) == before + 1
        assert store.directory.generations() == [2]
        assert await store.read(bodies) == [b"a", b"b"]

    assert problems == ["a commit failed: SQLITE_IOERR_FSYNC, copying to a new generation", None]


async def test_a_failed_checkpoint_is_a_failed_commit(
    tmp_path: Path, fragile: database.Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "state", disk=Disk(fragile)) as store:
        await store.do(insert(b"a"))
        Fragile.steps = 1  # what the idle writer does next

        await until(lambda: store.directory.generations() == [2])
        await until(lambda: store.problem is None)
        assert await store.do(insert(b"b")) == 2
        assert await store.read(bodies) == [b"a", b"b"]


async def test_numbers_that_were_given_are_not_given_again_in_a_new_generation(
    tmp_path: Path, fragile: database.Connect
) -> None:
    async with opened(tmp_path / "state", disk=Disk(fragile)) as store:
        await store.do(insert(b"a"))
        await store.do(insert(b"b"))
        await store.do(lambda db: db.execute("DELETE FROM batch"))
        Fragile.steps = 3

        assert await store.do(insert(b"c")) == 3


async def test_a_copy_that_fails_is_tried_again_and_everything_waits(
    tmp_path: Path, fragile: database.Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OSError(5, "Input/output error"), Fragile.failure()])
    renew = writer.renew

    def failing(*args: Any, **options: Any) -> Any:
        for failure in failures:
            raise failure
        return renew(*args, **options)

    monkeypatch.setattr(writer, "renew", failing)
    problems: list[str | None] = []
    async with opened(tmp_path / "state", disk=Disk(fragile)) as store:
        store.on_problem(problems.append)
        Fragile.steps = 3
        with trio.fail_after(60):
            assert await store.do(insert(b"a")) == 1

        assert await store.read(bodies) == [b"a"]
    assert problems[1] == (
        "a commit failed: SQLITE_IOERR_FSYNC, and a copy to a new generation failed: Input/output error"
    )
    assert problems[-1] is None


def never(*args: Any, **options: Any) -> Any:
    raise OSError(5, "Input/output error")


async def test_closing_a_failed_store_ends_with_an_error_and_writes_nothing_more(
    tmp_path: Path, fragile: database.Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "renew", never)
    failures: list[BaseException] = []

    async def asks(store: Store) -> None:
        try:
            await store.do(insert(b"b"))
        except StoreFailed as error:
            failures.append(error)

    async def fails(nursery: trio.Nursery) -> None:
        async with opened(tmp_path / "state", disk=Disk(fragile)) as store:
            await store.do(insert(b"a"))
            wal = (tmp_path / "state" / "spool-1.db-wal").read_bytes()
            Fragile.steps = 3
            nursery.start_soon(asks, store)
            await until(lambda: store.problem is not None)
            written.append(wal)

    written: list[bytes] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            with pytest.raises(StoreFailed, match="not committed"):
                await fails(nursery)

    (wal,) = written
    assert len(failures) == 1
    assert (tmp_path / "state" / "spool-1.db-wal").read_bytes()[: len(wal)] == wal
    async with opened(tmp_path / "state") as store:
        assert (await store.read(bodies))[0] == b"a"


async def test_closing_does_not_wait_for_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_CLOSE_SECONDS", 0.1)
    with trio.fail_after(60):
        with pytest.raises(StoreFailed, match="does not answer"):
            async with opened(tmp_path / "state") as opened_store:
                gate = await a_busy_writer(opened_store)

        with pytest.raises(StateBusy):
            async with opened(tmp_path / "state"):
                pass
    gate.open()


LIMITED = """
import resource, signal, sqlite3, sys, pathlib, trio
sys.path.insert(0, sys.argv[1])
from test_spool_store import opened, insert, bodies
UPDATE = "UPDATE batch SET body = zeroblob(150000) WHERE seq = ?"
async def main():
    async with opened(pathlib.Path(sys.argv[2])) as store:
        limit = 3 * 2**20
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for number in range(16):
            await store.do(insert(bytes([number]) * 150_000))
        for number in range(16):
            await store.do(lambda db: db.execute(UPDATE, (number + 1,)))
        generations = store.directory.generations()
    print(generations[0] > 1)
trio.run(main)
"""


def test_a_limit_on_file_sizes_fails_commits_but_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(Path(__file__).parent), str(tmp_path / "state")]

    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (ran.stdout, ran.stderr) == ("True\n", "")
    assert trio.run(read_all, tmp_path / "state") == [bytes(150_000)] * 16


async def read_all(directory: Path) -> list[bytes]:
    async with opened(directory) as store:
        return await store.read(bodies)


# -- a process that is killed ------------------------------------------------------------------------------------------


KILLED = """
import sys, pathlib, trio
sys.path.insert(0, sys.argv[1])
from test_spool_store import opened, insert, bodies
async def ask(store, name, lock=trio.Lock()):
    for number in range(10**6):
        seq = await store.append(lambda db: insert(store.sealer.seal("batch", 0, 0, 0, b"event" * 2000))(db))
        sys.stdout.write(f"{seq}\\n"); sys.stdout.flush()
async def main():
    async with opened(pathlib.Path(sys.argv[2])) as store, trio.open_nursery() as nursery:
        for name in range(8):
            nursery.start_soon(ask, store, name)
trio.run(main)
"""


async def test_everything_acknowledged_is_there_after_kill_9_and_no_nonce_was_used_twice(tmp_path: Path) -> None:
    acknowledged: set[int] = set()
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path / "state")]
    for cycle in range(3):
        with subprocess.Popen(  # noqa: ASYNC220 - it is this process that waits
            command, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(10 + 74 * cycle):
                acknowledged.add(int(process.stdout.readline()))
            process.send_signal(signal.SIGKILL)
            acknowledged.update(int(line) for line in process.stdout.read().split("\n")[:-1])

        async with opened(tmp_path / "state") as store:
            stored = dict(await store.read(lambda db: db.execute("SELECT seq, body FROM batch").fetchall()))
            assert store.report is None
            assert acknowledged <= stored.keys()
            assert {store.sealer.open("batch", 0, 0, 0, body) for body in stored.values()} == {b"event" * 2000}
            assert len({body[:20] for body in stored.values()}) == len(stored)


async def test_a_nonce_is_not_used_again_after_its_transaction_was_rolled_back(tmp_path: Path) -> None:
    sealed: list[bytes] = []

    def fail(db: sqlite3.Connection) -> None:
        sealed.append(store.sealer.seal("batch", 1, 0, 0, b"event"))
        raise ValueError

    async with opened(tmp_path / "state") as store:
        for _ in range(3):
            with pytest.raises(ValueError):
                await store.do(fail)

    assert len({value[:20] for value in sealed}) == 3


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, "24m") as disk:
        yield disk


def exchange(db: sqlite3.Connection, seq: int) -> None:
    db.execute("DELETE FROM batch WHERE seq = ?", (seq,))
    db.execute("INSERT INTO batch (body) VALUES (zeroblob(100000))")


@pytest.mark.root
async def test_on_a_full_disk_intake_waits_and_everything_else_goes_on(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FULL_SECONDS", 0.1)
    async with opened(disk / "state") as store:
        for _ in range(8):
            await store.append(insert(os.urandom(100_000)))
        fill(disk / "filler")
        done: list[int] = []

        async def append(number: int) -> None:
            done.append(await store.append(insert(b"%d" % number * 1_000_000)))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for number in range(3):
                    nursery.start_soon(append, number)
                await until(lambda: store.problem == "disk full: intake waits")
                for seq in range(1, 9):
                    await store.do(partial(exchange, seq=seq))  # at once: the room between would be given back
                with trio.move_on_after(0.3) as scope:
                    await store.append(insert(b"withdrawn"))
                assert scope.cancelled_caught
                assert not done
                (disk / "filler").unlink()

        assert len(done) == 3
        await until(lambda: store.problem is None)
        assert store.directory.ballast.missing() == 0
        stored = await store.read(bodies)
        assert b"withdrawn" not in stored
        assert [len(body) for body in stored].count(1_000_000) == 3
        assert store.directory.generations() == [1]


@pytest.mark.root
async def test_a_store_opens_on_a_full_disk_and_what_is_there_can_be_settled(disk: Path) -> None:
    async with opened(disk / "state") as store:
        for _ in range(8):
            await store.append(insert(os.urandom(100_000)))
    fill(disk / "filler")

    async with opened(disk / "state") as store:
        for seq in range(1, 9):
            await store.do(lambda db, seq=seq: db.execute("DELETE FROM batch WHERE seq = ?", (seq,)))

        assert await store.read(bodies) == []


@pytest.mark.root
async def test_a_disk_too_small_for_a_new_directory_is_a_clear_error(disk: Path) -> None:
    fill(disk / "filler")
    os.truncate(disk / "filler", 20 * 2**20)

    with pytest.raises(StartFailed, match="has no room left"):
        async with opened(disk / "state"):
            pass


# -- damage ------------------------------------------------------------------------------------------------------------


async def test_damage_that_a_reader_meets_is_repaired_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        for number in range(20):
            await store.do(insert(bytes([number]) * 60_000))
    path = tmp_path / "state" / "spool-1.db"
    content = bytearray(path.read_bytes())
    damaged_page = 30 * 16384
    content[damaged_page : damaged_page + 4] = b"\xff" * 4  # the next page of a body
    path.write_bytes(content)

    async with opened(tmp_path / "state") as store:
        reports: list[Any] = []
        store.on_report(reports.append)

        assert len(await store.read(bodies)) == 19
        assert store.directory.generations() == [2]
        assert [report.lost["batch"] for report in reports] == [1]
        assert not list((tmp_path / "state").glob("quarantine-*"))

    async with opened(tmp_path / "state") as store:
        assert store.report is not None
        assert store.report.lost == {"batch": 1}


async def test_a_repair_that_is_asked_for_moves_everything(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as store:
        await store.do(insert(b"a"))

        await store.repair()

        assert store.directory.generations() == [2]
        assert await store.read(bodies) == [b"a"]
        assert store.report is None


async def test_what_no_repair_makes_readable_is_damaged(tmp_path: Path) -> None:
    class Unreadable(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            if sql == "SELECT body FROM batch ORDER BY seq":
                error = sqlite3.DatabaseError("database disk image is malformed")
                error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
                raise error
            return super().execute(sql, *args)

    async with opened(tmp_path / "state", disk=Disk(partial(database.connect, kind=Unreadable))) as store:
        with pytest.raises(Damaged):
            await store.read(bodies)

        assert store.directory.generations() == [2]
        assert await store.do(insert(b"a")) == 1


# -- without descriptors ----------------------------------------------------------------------------------------------


async def test_without_a_descriptor_what_is_stored_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with descriptors_at_most(0):
            await store.do(insert(b"a"))
            assert await store.read(bodies) == [b"a"]
            assert store.unread is None


async def test_a_query_waits_for_a_descriptor_and_that_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, trio.open_nursery() as nursery:
        await store.do(insert(b"a"))
        store._readers.move(store._readers.path)  # as for a new generation: all of them are closed
        with descriptors_at_most(0):
            nursery.start_soon(store.read, bodies)
            await until(lambda: store.unread is not None)
            assert "Too many open files" in str(store.unread)
        assert await store.read(bodies) == [b"a"]
        assert store.unread is None
