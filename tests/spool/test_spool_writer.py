"""The writer beside a disk, a quota and another process that stand in its way: what waits, and what is said."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from shipper.sdk.errors import Backpressure
from shipper.spool import database, writer
from shipper.spool.directory import Ballast
from shipper.spool.disk import Disk as RealDisk
from shipper.spool.store import Store, StoreFailed, open_store
from shipper.spool.upkeep import Upkeep
from tests.spool.test_spool_store import K1, bodies, insert, never, prepare, until

INTAKE_WAITS = "disk full: intake waits"
NOTHING_FITS = "disk full: nothing can be stored"
LOCKED = "another process keeps the database locked"


class Disk:
    """Notes what the writer says to its database, and answers some of it with an error."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.on: Callable[[str], object] = lambda statement: None

    def connect(self, path: Path, readonly: bool) -> sqlite3.Connection:
        disk = self

        class Watched(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                disk.hear(sql)
                return super().execute(sql, *args)

        return database.connect(path, readonly, Watched)

    def hear(self, statement: str) -> None:
        if threading.current_thread().name == "spool writer":
            self.said.append(statement)
            self.on(statement)

    def fails(self, code: str, *, times: int | None = None, at: str = "COMMIT") -> None:
        """Answer a statement with an error of SQLite, for ever or a number of times."""
        left = iter(range(times)) if times is not None else iter(int, 1)

        def fail(statement: str) -> None:
            if statement == at and next(left, None) is not None:
                error = sqlite3.OperationalError(code)
                error.sqlite_errorname = code
                error.sqlite_errorcode = getattr(sqlite3, code)
                raise error

        self.on = fail

    def works(self) -> None:
        self.on = lambda statement: None


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long."""
    monkeypatch.setattr(writer, "FULL_SECONDS", 0.02)
    monkeypatch.setattr(writer, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(writer, "backoff", lambda first, longest: iter(lambda: 0.01, None))


def refuses(number: int, *, times: int | None = None) -> Callable[..., None]:
    """A call to the file system that fails, for ever or a number of times; then it does nothing."""
    left = iter(range(times)) if times is not None else iter(int, 1)

    def refuse(*args: object) -> None:
        if next(left, None) is not None:
            raise OSError(number, os.strerror(number))

    return refuse


def opened(path: Path, disk: Disk) -> Any:
    return open_store(path / "state", [K1], prepare=prepare, disk=RealDisk(disk.connect))


async def refused(ask: Callable[[], Any], failures: list[StoreFailed]) -> None:
    with pytest.raises(StoreFailed) as failure:
        await ask()
    failures.append(failure.value)


async def closed_while(
    path: Path, disk: Disk, ask: Callable[[Store], Any], begin: Callable[[], object], problem: str
) -> tuple[str, list[StoreFailed]]:
    """What a store says that is closed while `problem` keeps `ask` waiting, and what `ask` is told."""
    failures: list[StoreFailed] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            with pytest.raises(StoreFailed) as failure:  # noqa: PT012 - it is the end of the block that raises
                async with opened(path, disk) as store:
                    begin()
                    nursery.start_soon(refused, lambda: ask(store), failures)
                    await until(lambda: store.problem == problem)
    disk.works()
    return str(failure.value), failures


# -- another process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def intruder(tmp_path: Path) -> Iterator[Callable[[], sqlite3.Connection]]:
    """Somebody who looks into the database with a tool, and keeps it locked."""
    connections = []

    def lock() -> sqlite3.Connection:
        db = database.connect(tmp_path / "state" / "spool-1.db", False)
        connections.append(db)
        db.execute("BEGIN IMMEDIATE")
        return db

    yield lock
    for db in connections:
        db.close()


async def test_a_database_that_another_process_locks_is_waited_for(
    tmp_path: Path, disk: Disk, intruder: Callable[[], sqlite3.Connection]
) -> None:
    async with opened(tmp_path, disk) as store, trio.open_nursery() as nursery:
        locking = intruder()
        nursery.start_soon(store.do, insert(b"a"))
        await until(lambda: store.problem == LOCKED)
        assert store.code == "store_locked"
        locking.execute("ROLLBACK")
        await until(lambda: store.problem is None)

        assert await store.read(bodies) == [b"a"]
        assert store.directory.generations() == [1]


async def test_closing_does_not_wait_for_another_process(
    tmp_path: Path, disk: Disk, intruder: Callable[[], sqlite3.Connection]
) -> None:
    told, failures = await closed_while(tmp_path, disk, lambda store: store.do(insert(b"a")), intruder, LOCKED)

    assert told == f"1 operations were not committed: {LOCKED}"
    assert len(failures) == 1


async def test_who_does_not_wait_is_turned_away_while_another_process_locks_the_database(
    tmp_path: Path, disk: Disk, intruder: Callable[[], sqlite3.Connection]
) -> None:
    async with opened(tmp_path, disk) as store:
        locking = intruder()
        with trio.fail_after(60):
            for _ in range(2):
                with pytest.raises(Backpressure, match=LOCKED):
                    await store.append(insert(b"a"), wait=False)
        locking.execute("ROLLBACK")
        await until(lambda: store.problem is None)
        await store.append(insert(b"b"), wait=False)

        assert await store.read(bodies) == [b"b"]


# -- a full disk -------------------------------------------------------------------------------------------------------


async def test_what_still_waits_for_room_when_the_store_closes_is_refused(tmp_path: Path, disk: Disk) -> None:
    told, failures = await closed_while(
        tmp_path, disk, lambda store: store.append(insert(b"a")), lambda: disk.fails("SQLITE_FULL"), INTAKE_WAITS
    )

    assert told == "1 operations were not committed: the disk is full"
    assert len(failures) == 1
    async with opened(tmp_path, disk) as store:
        assert await store.read(bodies) == []


async def test_on_a_full_disk_who_does_not_wait_is_told_at_once_and_never_stored(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first finds the disk full, the next ones know."""
    monkeypatch.setattr(writer, "FULL_SECONDS", 0.02)
    room = threading.Event()
    with monkeypatch.context() as full:
        full.setattr(Ballast, "restore", lambda self: room.is_set())
        async with opened(tmp_path, disk) as store, trio.open_nursery() as nursery:
            disk.fails("SQLITE_FULL")
            with trio.fail_after(60):
                for _ in range(3):
                    with pytest.raises(Backpressure, match=INTAKE_WAITS):
                        await store.append(insert(b"a"), wait=False)
                    await until(lambda: store.problem == INTAKE_WAITS)
                    assert store.code == "disk_full"
                nursery.start_soon(store.append, insert(b"b"))
            disk.works()
            room.set()
            await until(lambda: store.problem is None)
            await store.append(insert(b"c"), wait=False)

            assert await store.read(bodies) == [b"b", b"c"]


async def test_what_does_not_wait_and_is_still_in_line_is_told_of_a_problem(tmp_path: Path, disk: Disk) -> None:
    """While the writer is held up by what came before."""
    held_up, go_on = threading.Event(), threading.Event()

    def hold(statement: str) -> None:
        if statement == "COMMIT":
            held_up.set()
            go_on.wait(30)
            disk.works()

    async with opened(tmp_path, disk) as store, trio.open_nursery() as nursery:
        disk.on = hold
        nursery.start_soon(store.append, insert(b"a"))
        await trio.to_thread.run_sync(held_up.wait)
        with trio.fail_after(60):
            async with trio.open_nursery() as impatient:

                async def told() -> None:
                    with pytest.raises(Backpressure, match="no disk"):
                        await store.append(insert(b"b"), wait=False)

                impatient.start_soon(told)
                await trio.testing.wait_all_tasks_blocked()
                store._set_problem("no disk")
        go_on.set()
        await store.do(insert(b"c"))

        assert await store.read(bodies) == [b"a", b"c"]


async def test_a_group_whose_pages_find_no_room_is_rolled_back_and_goes_again(
    tmp_path: Path, disk: Disk, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_room = iter([False])
    monkeypatch.setattr(Upkeep, "reserve", lambda self: next(has_room, True))
    async with opened(tmp_path, disk) as store:
        await store.append(insert(b"a"))

        assert [said for said in disk.said if said in ("ROLLBACK", "COMMIT")][:2] == ["ROLLBACK", "COMMIT"]
        assert await store.read(bodies) == [b"a"]


@pytest.mark.parametrize("ballast", ["given up", "not to be had"])
async def test_what_needs_no_room_waits_too_when_there_is_none_at_all(
    tmp_path: Path, disk: Disk, soon: None, monkeypatch: pytest.MonkeyPatch, ballast: str
) -> None:
    monkeypatch.setattr(Ballast, "give", refuses(errno.EIO) if ballast == "not to be had" else lambda self: False)
    async with opened(tmp_path, disk) as store, trio.open_nursery() as nursery:
        disk.fails("SQLITE_FULL")
        nursery.start_soon(store.do, insert(b"a"))
        await until(lambda: store.problem == NOTHING_FITS)
        assert store.is_failing()
        disk.works()
        await until(lambda: store.problem is None)

        assert await store.read(bodies) == [b"a"]
        assert store.directory.generations() == [1]


async def test_closing_a_store_that_can_commit_nothing_tells_those_who_wait(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ballast, "give", lambda self: False)
    told, failures = await closed_while(
        tmp_path, disk, lambda store: store.do(insert(b"a")), lambda: disk.fails("SQLITE_FULL"), NOTHING_FITS
    )

    assert told == "1 operations were not committed: the disk is full"
    assert len(failures) == 1


async def test_while_nobody_can_tell_whether_there_is_room_intake_waits(
    tmp_path: Path, disk: Disk, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def restore(self: Ballast) -> bool:
        looked.set()
        raise OSError(errno.EIO, "Input/output error")

    async with opened(tmp_path, disk) as store, trio.open_nursery() as nursery:
        with monkeypatch.context() as broken:
            broken.setattr(Ballast, "restore", restore)
            disk.fails("SQLITE_FULL", times=1)
            nursery.start_soon(store.append, insert(b"a"))
            await trio.to_thread.run_sync(looked.wait)
            await store.do(insert(b"b"))

            assert store.problem == INTAKE_WAITS
        await until(lambda: store.problem is None)

        assert await store.read(bodies) == [b"b", b"a"]


# -- a quota -----------------------------------------------------------------------------------------------------------


async def test_an_exhausted_quota_is_a_full_disk_and_no_failed_one(
    tmp_path: Path, disk: Disk, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, disk) as store, trio.open_nursery() as nursery:
        with monkeypatch.context() as quota:
            quota.setattr(os, "posix_fallocate", refuses(errno.EDQUOT))
            disk.fails("SQLITE_IOERR")
            nursery.start_soon(store.append, insert(b"a"))
            await until(lambda: store.problem == INTAKE_WAITS)
            assert not store.is_failing()
            disk.works()
        await until(lambda: store.problem is None)

        assert await store.read(bodies) == [b"a"]
        assert store.directory.generations() == [1]


async def test_a_disk_that_cannot_even_be_asked_for_room_has_failed(
    tmp_path: Path, disk: Disk, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, disk) as store:
        monkeypatch.setattr(os, "posix_fallocate", refuses(errno.EIO, times=1))
        disk.fails("SQLITE_IOERR", times=1)

        assert await store.append(insert(b"a")) == 1
        assert store.directory.generations() == [2]


# -- a failed disk -----------------------------------------------------------------------------------------------------


async def test_a_copy_that_finds_no_room_gets_that_of_the_ballast(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, full = writer.renew, refuses(errno.ENOSPC, times=2)

    def renewed(*args: Any, **options: Any) -> Any:
        full()
        return renew(*args, **options)

    monkeypatch.setattr(writer, "renew", renewed)
    async with opened(tmp_path, disk) as store:
        disk.fails("SQLITE_IOERR", times=1)

        assert await store.do(insert(b"a")) == 1
        assert store.directory.generations() == [2]
        assert store.directory.ballast.missing() == 2 * Ballast.STEP


async def test_a_bug_in_the_writer_ends_the_store_with_it(tmp_path: Path, disk: Disk) -> None:
    def bug(statement: str) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with opened(tmp_path, disk) as store:
            disk.on = bug
            with pytest.raises(StoreFailed):
                await store.do(insert(b"a"))


async def test_closing_while_a_copy_fails_does_not_wait_for_the_next_attempt(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "renew", never)
    told, failures = await closed_while(
        tmp_path,
        disk,
        lambda store: store.do(insert(b"a")),
        lambda: disk.fails("SQLITE_IOERR", times=1),
        "a commit failed: SQLITE_IOERR, and a copy to a new generation failed: Input/output error",
    )

    assert told == "1 operations were not committed: a commit failed: SQLITE_IOERR"
    assert len(failures) == 1


# -- upkeep ------------------------------------------------------------------------------------------------------------


async def test_an_idle_writer_lets_what_arrives_go_before_its_upkeep(tmp_path: Path, disk: Disk, soon: None) -> None:
    async with opened(tmp_path, disk) as store:
        arrived = threading.Event()

        def arrive(statement: str) -> None:
            if statement == "PRAGMA freelist_count" and not arrived.is_set():
                disk.said.clear()
                store.post(insert(b"a"))
                arrived.set()

        disk.on = arrive
        await trio.to_thread.run_sync(arrived.wait)
        await store.do(insert(b"b"))

        assert disk.said[0] == "BEGIN IMMEDIATE"


async def test_upkeep_that_finds_no_room_waits_for_it(tmp_path: Path, disk: Disk, soon: None) -> None:
    async with opened(tmp_path, disk) as store:
        disk.fails("SQLITE_FULL", times=1, at="PRAGMA freelist_count")
        await store.do(insert(b"a"))
        await until(lambda: disk.said[-1] == "PRAGMA wal_checkpoint(TRUNCATE)")

        assert (store.problem, store.directory.generations()) == (None, [1])
