"""Forwarding: the entries of a retired lane move to the lane that its output has now.

Whether and where to is decided in the transaction that stores the order: before it, a cut may change either lane. Later
the target may be retired too; it drains the moved entries all the same.

Without an order, entries are forwarded only under two durable conditions. The lane was never *reached* (`contact`): no
request to its hosts has begun (an unknown name, a closed port, an untrusted certificate), so nothing of it can be in
flight. And its output kept its credentials.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from shipper.sdk.codes import Code
from shipper.sdk.errors import ShipperError
from shipper.spool import doubt, limits, requeue
from shipper.spool.drain_orders import Order, place
from shipper.spool.schema import BARRIER, get_meta
from shipper.values import Revision

_DAMAGED = "is damaged: only `drop` or `dead_letter` end its drain"


class NotForwarded(ShipperError):
    """The entries stay where they are; the text is the reason."""

    code = Code.NOT_FORWARDED


class Ended(NotForwarded):
    """The drain has ended: nothing waits any more."""


def never_reached(db: sqlite3.Connection) -> list[int]:
    """Returns the lanes to forward without an order, if the active revision allows that; oldest first."""
    if limits.load(db).never_reached != "forward":
        return []
    rows = db.execute(
        "SELECT old.id FROM lane AS old JOIN lane AS new ON new.active AND new.output = old.output"
        " AND new.credentials = old.credentials AND (new.pair != 0) = (old.pair != 0)"
        " WHERE NOT old.active AND NOT old.reached"
        " AND EXISTS (SELECT 1 FROM todo WHERE lane = old.id AND kind != ?) ORDER BY old.id",
        (BARRIER,),
    )
    return [id for (id,) in rows.fetchall()]


def target(db: sqlite3.Connection, lane: int, closed: Collection[int] = ()) -> int:
    """Returns the current lane of the output and kind of a lane; raises NotForwarded. `closed` lanes cannot deliver."""
    row = db.execute("SELECT output, pair != 0 FROM lane WHERE id = ?", (lane,)).fetchone()
    if row is None:
        raise Ended("its drain has ended meanwhile")
    output, state = row
    active, doubtful = requeue.lanes(db), doubt.lanes(db)
    to = active.get((output, bool(state)))
    if lane in doubtful:
        raise NotForwarded(f"output {output} {_DAMAGED}", code=Code.DAMAGED)
    if get_meta(db, "active") is None:
        raise NotForwarded(f"no revision is active, so output {output} goes nowhere yet: send a policy first")
    if to is None and (output, not state) in active:
        raise NotForwarded(f"output {output} takes no {'keyed state' if state else 'log events'} any more")
    if to is None:
        names = ", ".join(dict.fromkeys(name for name, _ in active)) or "none"
        raise NotForwarded(f"the active revision has no output {output}; its outputs are: {names}")
    if to == lane:
        raise NotForwarded(f"it waits where output {output} goes now")
    if to in doubtful:
        raise NotForwarded(f"where output {output} goes now {_DAMAGED}", code=Code.DAMAGED)
    if to in closed:
        raise NotForwarded(f"where output {output} goes now cannot be opened")
    return to


def place_forward(
    db: sqlite3.Connection,
    lane: int,
    *,
    upto: int | None = None,
    revision: Revision | None = None,
    closed: Collection[int] = (),
    unasked: bool = False,
) -> Order:
    """Stores an order that moves the entries of a lane to the current lane of its output.

    It is for entries below the barrier at `upto` (None: the last one) that entered under `revision` (None: any). If
    `unasked`, the lane must be one of `never_reached`. Raises NotForwarded.
    """
    doubt.act(db)
    to = target(db, lane, closed)
    if unasked and lane not in never_reached(db):
        raise NotForwarded("a request has begun meanwhile, or a newer revision wants it otherwise")
    (last,) = db.execute("SELECT max(seq) FROM barrier WHERE lane = ?", (lane,)).fetchone()
    if last is None:
        raise Ended("its drain has ended meanwhile")
    return place(db, Order("forward", lane, last if upto is None else min(upto, last), to, revision))
