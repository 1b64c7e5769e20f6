"""Readers of a spool that cannot be opened at once."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
import trio

from shipper.process.environment import REAL
from shipper.sdk import descriptors
from shipper.spool import database
from shipper.spool.readers import Readers, Unreadable
from tests.spool.test_spool_store import prepare


def one(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT 1").fetchone()[0])


def refusal(code: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(code)
    error.sqlite_errorname, error.sqlite_errorcode = code, getattr(sqlite3, code)
    return error


class Opening:
    """Readers whose first attempt to open a connection fails."""

    def __init__(self, path: Path, error: sqlite3.Error) -> None:
        self.path, self.told = path, list[str | None]()
        path.touch()
        database.create(path, prepare).close()
        self._errors = [error]
        self.readers = Readers(path, self._connect, REAL)

    def _connect(self, path: Path, readonly: bool) -> sqlite3.Connection:
        self.told.append(self.readers.problem)
        if self._errors:
            self.meanwhile()
            raise self._errors.pop()
        return database.connect(path, readonly)

    def meanwhile(self) -> None:
        """What happens while the first connection is being opened."""


async def test_a_query_that_finds_no_descriptor_says_so_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "none_is_left", lambda: True)
    opening = Opening(tmp_path / "spool-1.db", refusal("SQLITE_CANTOPEN"))
    with trio.fail_after(60):
        assert await opening.readers.read(one) == 1
    opening.readers.close()

    assert ["the limit is" in (problem or "") for problem in opening.told] == [False, True]
    assert opening.readers.problem is None


async def test_a_database_that_was_replaced_meanwhile_is_opened_as_the_new_one(tmp_path: Path) -> None:
    opening = Opening(tmp_path / "spool-1.db", refusal("SQLITE_IOERR"))
    after = Opening(tmp_path / "spool-2.db", refusal("SQLITE_IOERR")).path
    opening.meanwhile = lambda: opening.readers.move(after)  # type: ignore[method-assign]
    with trio.fail_after(60):
        assert await opening.readers.read(one) == 1
    opening.readers.close()


async def test_a_database_that_cannot_be_opened_is_unreadable(tmp_path: Path) -> None:
    opening = Opening(tmp_path / "spool-1.db", refusal("SQLITE_IOERR"))

    with pytest.raises(Unreadable, match="SQLITE_IOERR"):
        await opening.readers.read(one)


async def test_a_query_that_finds_no_descriptor_waits_for_another_one_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "none_is_left", lambda: True)
    opening = Opening(tmp_path / "spool-1.db", refusal("SQLITE_CANTOPEN"))
    (refused,), opening._errors = opening._errors, []
    begun, go_on = threading.Event(), threading.Event()

    def first(db: sqlite3.Connection) -> bool:
        begun.set()
        return go_on.wait(30)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(opening.readers.read, first)
        await trio.to_thread.run_sync(begun.wait)
        opening._errors = [refused] * 1000
        nursery.start_soon(opening.readers.read, one)
        with trio.fail_after(60):
            while len(opening.told) < 3:  # noqa: ASYNC110 - a thread tries again
                await trio.sleep(0.01)
        go_on.set()
    opening.readers.close()

    assert {*opening.told} == {None}
