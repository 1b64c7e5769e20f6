from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shipper.spool.database import connect


@pytest.mark.parametrize("name", [b"d\xff", "dé".encode(), b"a b?c#d%41"])
def test_a_database_is_opened_whatever_its_path_is(tmp_path: Path, name: bytes) -> None:
    directory = tmp_path / os.fsdecode(name)
    directory.mkdir()
    with closing(sqlite3.connect(os.fsencode(directory / "spool.db"))) as db:
        db.execute("create table t(x)")

    with closing(connect(directory / "spool.db", readonly=True)) as db:
        assert db.execute("select name from sqlite_schema").fetchall() == [("t",)]
