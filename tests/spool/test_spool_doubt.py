"""After damage: what is lost with every trace of it still holds back `drained`, until an order ends it."""

from __future__ import annotations

from itertools import combinations

from shipper.spool import doubt, drain_orders, revisions
from shipper.spool.drain_orders import Order
from shipper.spool.report import Report
from shipper.values import Revision
from tests.spool.test_spool_revisions import LIMITS, Spool

TABLES = ("lane", "barrier", "todo", "batch", "credential")


def lose(spool: Spool, *tables: str) -> None:
    """All rows of these tables, and what a repair would note of it."""
    for table in tables:
        spool.db.execute(f"DELETE FROM {table}")
    Report(lost=dict.fromkeys(tables, 1)).store(spool.db)  # type: ignore[arg-type]


def draining() -> Spool:
    """An event waits below the barrier of revision 2."""
    spool = Spool()
    lanes = spool.activate(1, main="k1")
    spool.drained()
    spool.enter(1, lanes.values())
    spool.activate(2, main="k2")
    return spool


def test_whatever_tables_are_lost_an_open_barrier_is_not_drained_before_an_order() -> None:
    for count in range(1, len(TABLES) + 1):
        for tables in combinations(TABLES, count):
            if {"batch"} == {*tables} or {"credential"} == {*tables} or {"batch", "credential"} == {*tables}:
                continue  # then it is known what is missing: the event settles as damaged
            spool = draining()
            lose(spool, *tables)

            assert spool.drained() is None, tables
            assert doubt.lanes(spool.db), tables


def test_an_order_ends_what_was_lost_without_a_trace() -> None:
    spool = draining()
    lose(spool, *TABLES)
    assert spool.drained() is None
    (lane,) = doubt.lanes(spool.db)
    (upto,) = spool.db.execute("SELECT max(seq) FROM barrier WHERE lane = ?", (lane,)).fetchone()
    order = drain_orders.place(spool.db, Order("drop", lane, upto, revision=Revision(0, 2)))
    while not drain_orders.step(spool.db, spool.sealer, order, LIMITS, 1.0).done:
        pass
    revisions.settle_reached(spool.db, lane)
    ack = spool.drained()

    assert ack is not None
    assert ack.revision == 2
    assert doubt.lanes(spool.db) == set()


def test_a_lane_that_was_lost_keeps_its_events_for_an_order() -> None:
    spool = draining()
    (old,) = spool.db.execute("SELECT id FROM lane WHERE NOT active").fetchone()
    lose(spool, "lane")
    spool.drained()
    rows = {row.id: row for row in revisions.lanes(spool.db, spool.sealer)}

    assert rows[old].settings is None
    assert not rows[old].active
    assert [entry.events for entry in spool.entries(old)] == [1, 0]


def test_what_was_drained_before_stays_so_when_lanes_are_lost() -> None:
    spool = Spool()
    spool.activate(1, main="k1")
    spool.drained()
    lose(spool, "lane")
    spool.drained()

    assert revisions.lanes(spool.db, spool.sealer) == []


def test_a_batch_whose_lanes_cannot_be_read_holds_back_the_barrier_all_the_same() -> None:
    spool = draining()
    spool.db.execute("UPDATE batch SET lanes = '[1,'")
    lose(spool, "todo")

    assert spool.drained() is None
    assert doubt.lanes(spool.db)
