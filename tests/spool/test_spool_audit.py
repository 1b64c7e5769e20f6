"""A flipped bit in what stands in the clear: the row is taken out and reported, or the true value is found again."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from shipper.spool import doubt, drain_orders, queue, requeue, revisions
from shipper.spool.audit import audit
from shipper.spool.report import Report
from shipper.spool.requeue import Requeue, Wanted
from shipper.values import LARGEST_COUNT, Revision
from tests.spool.test_spool_doubt import draining
from tests.spool.test_spool_revisions import Spool, settings_of


def audited(spool: Spool) -> dict[str, int]:
    """What was reported as lost."""
    audit(spool.db, spool.sealer)
    report = Report.load(spool.db)
    return {} if report is None else dict(report.lost)


def content(db: sqlite3.Connection) -> list[Any]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]
    return [db.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


def test_of_a_sound_spool_nothing_is_taken() -> None:
    spool = draining()
    before = content(spool.db)

    assert audited(spool) == {}
    assert content(spool.db) == before


@pytest.mark.parametrize("epoch", [2**62, LARGEST_COUNT])
def test_the_largest_numbers_that_a_message_may_carry_are_sound(epoch: int) -> None:
    spool = Spool()
    for number, credential in ((LARGEST_COUNT - 1, "k1"), (LARGEST_COUNT, "k2")):
        at, wanted = Revision(epoch, number), revisions.LaneKey("main", "fake", "there", (credential,))
        text = revisions.Text(at, "sha", "meaning", "barrier", [credential], "")
        revisions.receive(spool.db, spool.sealer, text, {credential: b"mark"})
        lanes = [
            row.id
            for row in revisions.cut(spool.db, spool.sealer, at, [(wanted, settings_of("main", credential))]).lanes
        ]
        queue.enter(spool.db, spool.sealer, bytes(16), 1.0, queue.Arrival(at, "in", lanes, [queue.Packed(1, b"")]))
        spool.drained()
    drain_orders.place(spool.db, drain_orders.Order("drop", 1, 9, revision=at))
    before = content(spool.db)

    assert spool.db.execute("SELECT count(*) FROM barrier").fetchone() == (1,)
    assert audited(spool) == {}
    assert content(spool.db) == before


def test_a_value_that_cannot_be_true_is_taken_out_and_holds_the_barrier() -> None:
    for table, column, value in [
        ("revision", "stage", "actire"),
        ("revision", "change", b"live"),
        ("revision", "credentials", '["k2'),
        ("revision", "credentials", "[1]"),
        ("revision", "drained", b"{}"),
        ("revision", "drained", 5),
        ("revision", "drained", b'{"x":' + b"[" * 100_000),
        ("revision", "epoch", -1),
        ("revision", "number", 258),
        ("lane", "output", b"\xff"),
        ("lane", "active", 3),
        ("barrier", "accepted", -60),
        ("barrier", "seq", "x"),
        ("barrier", "epoch", 256),
        ("credential", "state", "offerad"),
        ("credential", "fingerprint", "text"),
        ("todo", "revision", -3),
        ("todo", "count", 2**62 * -1),
        ("todo", "kind", 7),
        ("todo", "at", "now"),
        ("meta", "value", "\x11"),
        ("meta", "value", b"2"),
        ("meta", "value", f"{2**63}"),
    ]:
        spool = draining()
        where = {"revision": "number = 2", "meta": "key = 'active'", "todo": "kind = 0", "lane": "NOT active"}.get(
            table, "1"
        )
        spool.db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))

        assert table in audited(spool)
        assert spool.drained() is None
        revisions.stages(spool.db)
        revisions.lanes(spool.db, spool.sealer)
        if table != "credential":
            assert doubt.lanes(spool.db)


def test_an_order_to_requeue_that_cannot_be_true_is_forgotten() -> None:
    """Its letters stay; whoever gave it sees that, and gives it again."""
    for column, value in [("after", -1), ("upto", 2**62), ("max_bytes", "x"), ("reason", b"\xff"), ("ids", '[1,"2"]')]:
        spool = Spool()
        sound = requeue.place(spool.db, Requeue(Wanted("main", "mapping", "[1,2]", 9), 2**70))
        assert audited(spool) == {}
        assert requeue.standing(spool.db) == [sound]
        spool.db.execute(f"UPDATE requeue SET {column} = ?", (value,))

        assert audited(spool) == {"requeue": 1}
        assert requeue.standing(spool.db) == []


def test_the_items_of_a_batch_that_is_waited_for_are_believed_if_they_are_numbers() -> None:
    spool = Spool()
    rows = [("a", b"\x92\x01\x02"), ("b", b"\xff")]
    spool.db.executemany("INSERT INTO awaited (input, key, open, answers, items) VALUES ('in', ?, 0, x'', ?)", rows)

    assert audited(spool) == {"awaited": 1}


def test_bytes_that_are_no_text_are_taken_out_too() -> None:
    spool = draining()
    spool.db.execute("UPDATE revision SET meaning = CAST(x'ff' AS TEXT) WHERE number = 2")

    assert audited(spool) == {"revision": 1}
    assert [known.at for known in revisions.known(spool.db)] == [Revision(0, 1)]


@pytest.mark.parametrize(("key", "value"), [("active", "6"), ("active", "3:2"), ("drained", "3"), ("drained", "2")])
def test_a_stage_that_no_revision_has_is_not_believed(key: str, value: str) -> None:
    spool = draining()
    spool.db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
    audited(spool)
    stages = revisions.stages(spool.db)

    assert stages.active == Revision(0, 2)
    assert stages.drained in (None, Revision(0, 1))
    ack = spool.drained()
    assert ack is None or ack.revision == 1


def test_a_lane_gets_back_the_credential_that_its_settings_name() -> None:
    spool = Spool()
    wanted = [(revisions.LaneKey("main", "fake", "there", ("k1",)), settings_of("main", "k1"))]
    spool.receive(1, main="k1")
    revisions.cut(spool.db, spool.sealer, Revision(0, 1), wanted)
    spool.db.execute("UPDATE lane SET credentials = '[\"k9\"]'")
    audited(spool)

    assert [row.key.credentials for row in revisions.lanes(spool.db, spool.sealer)] == [("k1",)]


def test_events_on_a_lane_that_never_was_bring_one_that_an_order_can_end() -> None:
    spool = draining()
    spool.db.execute("UPDATE todo SET lane = 77 WHERE kind = 0")

    assert audited(spool) == {"lane": 1}
    spool.drained()
    assert 77 in doubt.lanes(spool.db)
