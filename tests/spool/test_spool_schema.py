"""Tables of an earlier version become those of this one."""

from __future__ import annotations

import sqlite3

import pytest

from shipper.spool import revisions, schema
from shipper.spool.database import columns, expected_columns
from tests.spool.test_spool_revisions import new_sealer

OLD = """CREATE TABLE lane (
    id INTEGER PRIMARY KEY AUTOINCREMENT, output TEXT NOT NULL, type TEXT NOT NULL, destination TEXT NOT NULL,
    credential TEXT, settings BLOB NOT NULL, active INTEGER NOT NULL, reached INTEGER NOT NULL DEFAULT 1)"""
IDS = ("k1", None, "[k2]", 'a"b', "é", "7")


@pytest.fixture
def old() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute(OLD)
    for id in IDS:
        db.execute("INSERT INTO lane VALUES (NULL, 'main', 'fake', 'there', ?, x'', 0, 1)", (id,))
    return db


def test_the_credential_of_a_lane_becomes_a_set(old: sqlite3.Connection) -> None:
    schema.prepare(old)
    schema.prepare(old)

    found = [row.key.credentials for row in revisions.lanes(old, new_sealer())]
    assert found == [() if id is None else (id,) for id in IDS]
    assert columns(old) == expected_columns(schema.prepare)


def test_rows_that_a_repair_copied_as_they_were_become_sets_too(old: sqlite3.Connection) -> None:
    new = sqlite3.connect(":memory:", isolation_level=None)
    schema.prepare(new)
    for row in old.execute("SELECT * FROM lane WHERE credential IS NULL OR credential = 'k1'").fetchall():
        new.execute("INSERT INTO lane VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    schema.prepare(new)

    assert [row.key.credentials for row in revisions.lanes(new, new_sealer())] == [("k1",), ()]


def test_a_lane_is_found_by_its_set_of_ids_in_any_order() -> None:
    key = revisions.LaneKey("main", "fake", "there")

    assert key.with_credentials(["b", "a", "b"]) == key.with_credentials(["a", "b"])
    assert key.with_credentials(["a", "b"]).rebound("a", "c").credentials == ("b", "c")
    assert key.with_credentials(["a", "b"]).rebound("a", "b").credentials == ("b",)
