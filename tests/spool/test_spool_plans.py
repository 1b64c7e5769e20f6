"""No statement on the path of events walks through a whole table: what a batch costs does not grow with the queue."""

from __future__ import annotations

import re
import sqlite3

from shipper.sdk.event import Batch
from shipper.sdk.state import Change
from shipper.spool import dead_letters, drain_orders, keyed, lifting, places, queue, requeue, revisions, schema
from shipper.spool.database import with_damage
from shipper.spool.drain_orders import Order
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.queue import Arrival, Packed, Settlement
from shipper.spool.requeue import Requeue, Room, Wanted
from shipper.spool.revisions import LaneKey, Text
from shipper.values import Counts, Revision
from tests.databases import in_memory
from tests.spool.test_spool_revisions import new_sealer

GROWING = ("todo", "batch", "rest", "cursor", "dead_letter", "keyed", "slot")
WHOLE_QUEUE = ("sum(count)", "max(seq)", "min(at)")
"""Statements that are run once for a revision or a repair, or over a bounded table, may look at more."""


def traced(db: sqlite3.Connection) -> list[str]:
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    return statements


def test_what_is_done_for_each_batch_searches_and_never_scans() -> None:
    db = in_memory()
    with_damage(schema.prepare)(db)
    sealer, at = new_sealer(), Revision(0, 1)
    revisions.receive(db, sealer, Text(at, "sha", "meaning", "live", [], ""), {})
    places.begin(db, 0.0)
    cut = revisions.cut(db, sealer, at, [(LaneKey(name, "fake", "x"), LaneSettings({})) for name in ("one", "two")])
    lanes = [lane.id for lane in cut.lanes]
    batch = Batch.events([{"n": n} for n in range(4)])
    statements = traced(db)

    arrival = Arrival(at, "in", lanes, [Packed(4, batch.pack())], {"a": b"1", "b": None})
    entered = [queue.enter(db, sealer, b"o" * 16, 0.0, arrival)[0].seq for _ in range(4)]
    entry, *_ = queue.window(db, lanes[0], 0, 10)
    loaded = queue.load(db, sealer, lanes[0], entry)
    letter = dead_letters.Letter(0, "id", b"{}", "one", "why")
    limits = dead_letters.Limits()
    part = Settlement(Counts(delivered=2, dead_letter=1), [letter], loaded.pick([3]))
    queue.settle(db, sealer, lanes[0], entered[0], part, limits, 0.0)
    queue.load(db, sealer, lanes[0], queue.window(db, lanes[0], 0, 1)[0])
    for lane in lanes:
        queue.settle(db, sealer, lane, entered[1], Settlement(Counts(delivered=4)), limits, 0.0)
    queue.recount(db, lanes[1], entry, 4)
    order = drain_orders.place(db, Order("drop", lanes[1], entered[-1], revision=at))
    drain_orders.step(db, sealer, order, limits, 0.0)
    (holder,) = drain_orders.holders(db, "one", entered[2])
    drain_orders.step(
        db, sealer, drain_orders.place(db, Order("drop", holder, entered[2], first=entered[2])), limits, 0.0
    )
    drain_orders.first_batches(db)
    requeued = requeue.step(db, sealer, b"o" * 16, requeue.place(db, Requeue(Wanted(), 1)), Room(1 << 20, False), 0.0)
    for document in (b"{}", b'{"n":1}', None):
        changes = [Change("things", "a", document), Change("things", "b", document, "berlin", len(document or b"") + 1)]
        keyed.keep(db, sealer, 0.0, keyed.Arrival(at, "in", lanes, changes))
    *_, slot = queue.window(db, lanes[0], 0, 10)
    queue.load(db, sealer, lanes[0], slot)
    fenced = Settlement(Counts(superseded=1), place=1, fence=(9, b""))
    lifting.reissue(db, sealer, 0.0, lanes[0], slot.seq, fenced, 0)
    queue.settle(db, sealer, lanes[0], slot.seq, Settlement(Counts(delivered=1)), limits, 0.0)
    db.set_trace_callback(None)

    scans = []
    for statement in statements:
        if any(word in statement for word in WHOLE_QUEUE) or not re.match("SELECT|UPDATE|DELETE|INSERT", statement):
            continue
        for *_, step in db.execute(f"EXPLAIN QUERY PLAN {statement}"):
            if re.match(rf"SCAN ({'|'.join(GROWING)})\b(?!.*INDEX)", step):
                scans.append((step, statement))
    assert len(statements) > 30
    assert requeued.requeued == 1
    assert scans == []
