"""Upkeep: the WAL stays small while pages are given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from shipper.spool import database, upkeep
from shipper.spool.upkeep import Upkeep
from tests.databases import in_memory
from tests.spool.test_spool_store import insert, prepare

PORTION = upkeep.VACUUM_PAGES * database.PAGE_BYTES


def test_giving_pages_back_does_not_grow_the_wal_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages at the end of the file move into the gap before them, by way of the WAL."""
    monkeypatch.setattr(upkeep, "CHECKPOINT_BYTES", PORTION // 2)
    path, wal = tmp_path / "spool-1.db", tmp_path / "spool-1.db-wal"
    path.touch()
    database.create(path, prepare).close()
    db = database.open_writer(path, prepare)
    keeper = Upkeep(db, path)
    for _ in range(2):
        insert(bytes(6 * PORTION))(db)
    db.execute("DELETE FROM batch WHERE seq = 1")
    assert keeper.checkpoint(cut=True)

    sizes = []
    while keeper.vacuum():
        sizes.append(wal.stat().st_size)
    db.close()

    assert len(sizes) >= 5
    assert max(sizes) < 2 * PORTION
    assert path.stat().st_size < 8 * PORTION


def test_a_wal_that_somebody_removed_is_an_empty_one(tmp_path: Path) -> None:
    assert not Upkeep(in_memory(), tmp_path / "spool-1.db").is_due()


def test_without_the_file_no_room_is_reserved_and_commits_go_on(tmp_path: Path) -> None:
    keeper = Upkeep(in_memory(), tmp_path / "spool-1.db")

    assert keeper.reserve()
    keeper.close()
