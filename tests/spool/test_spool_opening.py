"""Opening what there is, on a disk that fails or is full; nothing is lost by that, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shipper.sdk.errors import StartFailed
from shipper.spool import opening
from shipper.spool.database import connect
from shipper.spool.directory import Ballast, StateDirectory
from shipper.spool.disk import Disk
from shipper.spool.store import open_store
from tests.spool.test_spool_salvage import failing
from tests.spool.test_spool_store import K1, bodies, insert, prepare

opened = partial(open_store, keys=[K1], prepare=prepare)


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A directory with one row, as a process left it that ended well."""
    async with opened(tmp_path / "state") as store:
        await store.do(insert(b"a"))
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_IO_PAUSE_SECONDS", 0.0)


def some(times: int, statement: str) -> Callable[[str, Any], bool]:
    """True as often as this for a statement."""
    left = iter(range(times))
    return lambda sql, values: sql == statement and next(left, None) is not None


async def refusal(state: Path, when: Callable[[str, Any], object], code: str) -> str:
    with pytest.raises(StartFailed) as failure:
        async with opened(state, disk=Disk(failing(when, code))):
            pass
    return str(failure.value)


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT report FROM damage ORDER BY rowid"])
async def test_a_disk_that_fails_to_read_for_a_moment_is_asked_again(state: Path, statement: str) -> None:
    through = failing(some(opening._IO_ATTEMPTS - 1, statement), "SQLITE_IOERR")
    async with opened(state, disk=Disk(through)) as store:
        assert (await store.read(bodies), store.report) == ([b"a"], None)
        assert store.directory.generations() == [1]


async def test_a_disk_that_fails_for_good_is_told_and_nothing_is_lost(state: Path) -> None:
    said = await refusal(state, lambda sql, values: sql == "PRAGMA query_only=ON", "SQLITE_IOERR")

    assert said == f"{state} cannot be repaired: SQLITE_IOERR"
    async with opened(state) as store:
        assert (await store.read(bodies), store.report) == ([b"a"], None)


async def test_a_first_database_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    said = await refusal(tmp_path / "state", lambda sql, values: sql == "BEGIN", "SQLITE_IOERR")

    assert said == f"no database can be made in {tmp_path / 'state'}: SQLITE_IOERR"
    assert not list((tmp_path / "state").glob("spool-*.db"))


def full(*args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_first_database_is_not_begun_where_there_is_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    said = await refusal(tmp_path / "state", lambda sql, values: False, "SQLITE_FULL")

    assert "has no room left" in said
    assert not list((tmp_path / "state").glob("spool-*"))


async def test_the_ballast_makes_room_for_opening_step_by_step(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A WAL that was left needs its index beside it."""
    monkeypatch.setattr(os, "posix_fallocate", full)
    async with opened(state, disk=Disk(failing(some(2, "BEGIN IMMEDIATE"), "SQLITE_FULL"))) as store:
        assert (await store.read(bodies), store.report) == ([b"a"], None)
        assert store.directory.ballast.missing() == 3 * Ballast.STEP


async def test_a_disk_that_stays_full_when_the_ballast_is_gone_is_told(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateDirectory, "has_room", lambda self: False)
    said = await refusal(state, lambda sql, values: sql == "BEGIN IMMEDIATE", "SQLITE_FULL")

    assert said == f"{state / 'spool-1.db'} cannot be opened: SQLITE_FULL"
    assert (state / "ballast").stat().st_size == 0


async def test_a_wal_that_was_cut_off_in_its_header_held_nothing(state: Path) -> None:
    (state / "spool-1.db-wal").write_bytes(b"\x37\x7f\x06\x82")

    async with opened(state) as store:
        assert (await store.read(bodies), store.report) == ([b"a"], None)


async def test_a_start_that_can_store_no_key_lets_go_of_the_database(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: StateDirectory, name: str, content: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    connections: list[sqlite3.Connection] = []

    def noted(path: Path, readonly: bool) -> sqlite3.Connection:
        connections.append(connect(path, readonly))
        return connections[-1]

    with monkeypatch.context() as patched:
        patched.setattr(StateDirectory, "write", fail)
        with pytest.raises(StartFailed, match="cannot be used"):
            async with opened(state, disk=Disk(noted)):
                pass

    assert connections
    for each in connections:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.execute("SELECT 1")
    async with opened(state) as store:
        assert await store.read(bodies) == [b"a"]


async def test_a_generation_has_its_wal_switched_on_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no rollback journal, which a power cut could leave with other bytes, ever stands beside a complete one."""
    headers: list[bytes] = []
    complete = StateDirectory.complete_generation

    def watched(directory: StateDirectory, generation: int) -> Path:
        part = directory.path / f"spool-{generation}.db.tmp"
        headers.append(part.read_bytes()[18:20])  # the versions that write and read it: 2 is WAL
        return complete(directory, generation)

    monkeypatch.setattr(StateDirectory, "complete_generation", watched)
    async with opened(tmp_path / "state") as store:
        await store.repair()

    assert headers == [b"\2\2", b"\2\2"]
