"""Tables of an earlier version become those of this one."""

from __future__ import annotations

import sqlite3

import pytest

from shipper.spool import drain_orders, revisions, schema
from shipper.spool.database import columns, expected_columns
from shipper.spool.drain_orders import Order
from shipper.values import Revision
from tests.databases import in_memory
from tests.spool.test_spool_revisions import new_sealer

OLD = """CREATE TABLE lane (
    id INTEGER PRIMARY KEY AUTOINCREMENT, output TEXT NOT NULL, type TEXT NOT NULL, destination TEXT NOT NULL,
    credential TEXT, settings BLOB NOT NULL, active INTEGER NOT NULL, reached INTEGER NOT NULL DEFAULT 1)"""
IDS = ("k1", None, "[k2]", 'a"b', "é", "7")


@pytest.fixture
def old() -> sqlite3.Connection:
    db = in_memory()
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
    new = in_memory()
    schema.prepare(new)
    for row in old.execute("SELECT * FROM lane WHERE credential IS NULL OR credential = 'k1'").fetchall():
        new.execute("INSERT INTO lane VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '[]', 0)", row)
    schema.prepare(new)

    assert [row.key.credentials for row in revisions.lanes(new, new_sealer())] == [("k1",), ()]


def test_an_order_of_an_earlier_version_is_for_all_of_its_drain() -> None:
    db = in_memory()
    db.execute(
        "CREATE TABLE standing_order (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, lane INTEGER NOT NULL,"
        " target INTEGER, epoch INTEGER, revision INTEGER, upto INTEGER NOT NULL)"
    )
    db.execute("INSERT INTO standing_order VALUES (7, 'drop', 1, NULL, 0, 2, 9)")
    schema.prepare(db)

    (order,) = drain_orders.standing(db)
    assert order == Order("drop", 1, 9, revision=Revision(0, 2), id=7)
    assert not order.is_of_batch
    assert columns(db) == expected_columns(schema.prepare)


def test_a_lane_is_found_by_its_set_of_ids_in_any_order() -> None:
    key = revisions.LaneKey("main", "fake", "there")

    assert key.with_credentials(["b", "a", "b"]) == key.with_credentials(["a", "b"])
    assert key.with_credentials(["a", "b"]).rebound("a", "c").credentials == ("b", "c")
    assert key.with_credentials(["a", "b"]).rebound("a", "b").credentials == ("b",)
