"""Disks of many sizes that fill up to the last block: what waits is settled, and with room the store goes on."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from shipper.sdk.errors import Backpressure
from shipper.spool import database
from shipper.spool.directory import Ballast
from shipper.spool.store import Store
from shipper.spool.upkeep import GROWTH_BYTES, Upkeep
from tests.disks import fill, mortal_disk, small_disk
from tests.fakes import PATIENCE
from tests.spool.test_spool_store import insert, opened, prepare

MIB = 1 << 20
ROW_BYTES = 150_000


@contextmanager
def disk(kind: str, tmp_path: Path, mib: int) -> Iterator[Path]:
    at = tmp_path / "disk"
    at.mkdir()
    if kind == "tmpfs":
        with small_disk(at, f"{mib}m"):
            yield at
    else:
        with mortal_disk(tmp_path / "image", at, mib * MIB):
            yield at


def settle(seq: int) -> Callable[[sqlite3.Connection], None]:
    def run(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM batch WHERE seq = ?", (seq,))

    return run


async def append_until_full(store: Store, rows: int) -> list[int]:
    """Of so many rows in a transaction, as intake has them while the destination is away."""
    seqs: list[int] = []

    def enter(db: sqlite3.Connection) -> list[int]:
        return [insert(os.urandom(ROW_BYTES))(db) for _ in range(rows)]

    while True:
        try:
            seqs += await store.append(enter, wait=False)
        except Backpressure:
            return seqs


@pytest.mark.root
@pytest.mark.parametrize(
    ("kind", "mib", "rows"),
    [("tmpfs", 29, 1), ("tmpfs", 48, 40), ("ext4", 29, 40), ("ext4", 32, 1), ("ext4", 64, 40), ("ext4", 96, 1)],
)
async def test_what_waits_on_a_full_disk_can_be_settled(tmp_path: Path, kind: str, mib: int, rows: int) -> None:
    """Also where somebody else takes the last blocks, and whatever the WAL still owes the database."""
    with disk(kind, tmp_path, mib) as at:
        await fill_and_settle(at, rows)


@pytest.mark.root
async def test_what_waits_can_be_settled_by_the_room_of_the_wal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ballast, "give", lambda self: False)
    with disk("tmpfs", tmp_path, 32) as at:
        await fill_and_settle(at, 1)


async def fill_and_settle(at: Path, rows: int) -> None:
    async with opened(at / "state") as store:
        seqs = await append_until_full(store, rows)
        fill(at / "others")
        with trio.fail_after(PATIENCE):
            for seq in seqs:
                await store.do(settle(seq))
            assert await store.read(lambda db: db.execute("SELECT count(*) FROM batch").fetchone()) == (0,)
            (at / "others").unlink()
            await store.append(insert(bytes(ROW_BYTES)))
    assert seqs


# -- room in the database's file ---------------------------------------------------------------------------------------


@contextmanager
def keeper(tmp_path: Path) -> Iterator[tuple[sqlite3.Connection, Upkeep, Path]]:
    path = tmp_path / "spool-1.db"
    path.touch()
    database.complete(database.create(path, prepare))
    db = database.open_writer(path, prepare)
    upkeep = Upkeep(db, path)
    try:
        yield db, upkeep, path
    finally:
        db.close()
        upkeep.close()


def test_a_transaction_has_room_in_the_file_before_it_is_committed(tmp_path: Path) -> None:
    with keeper(tmp_path) as (db, upkeep, path):
        db.execute("BEGIN IMMEDIATE")
        insert(bytes(5 * MIB))(db)
        assert upkeep.reserve()
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        assert path.stat().st_size == pages * database.PAGE_BYTES + GROWTH_BYTES
        db.execute("COMMIT")
        assert upkeep.checkpoint(cut=True)

        assert path.stat().st_size == pages * database.PAGE_BYTES
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_with_room_to_grow_is_opened_again(tmp_path: Path) -> None:
    with keeper(tmp_path) as (db, upkeep, _path):
        db.execute("BEGIN IMMEDIATE")
        insert(bytes(5 * MIB))(db)
        assert upkeep.reserve()
        db.execute("ROLLBACK")
    with keeper_again(tmp_path) as db:
        assert db.execute("SELECT count(*) FROM batch").fetchone() == (0,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@contextmanager
def keeper_again(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = database.open_writer(tmp_path / "spool-1.db", prepare)
    try:
        yield db
    finally:
        db.close()


@pytest.mark.parametrize("error", [28, 122])  # ENOSPC, EDQUOT
def test_without_room_the_file_is_as_it_was(tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    with keeper(tmp_path) as (db, upkeep, path):
        before = path.stat().st_size
        db.execute("BEGIN IMMEDIATE")
        insert(bytes(5 * MIB))(db)
        monkeypatch.setattr(os, "posix_fallocate", no_room)

        assert not upkeep.reserve()
        assert path.stat().st_size == before


def test_where_no_room_can_be_reserved_at_all_commits_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    with keeper(tmp_path) as (db, upkeep, _):
        db.execute("BEGIN IMMEDIATE")
        insert(bytes(5 * MIB))(db)
        monkeypatch.setattr(os, "posix_fallocate", unknown)

        assert upkeep.reserve()
