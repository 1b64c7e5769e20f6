"""Where a drain may go instead: what waits on a retired lane goes to the lane that its output has now.

Whether it may, and where to, is decided in the transaction that makes the order durable: before it, a cut may retire
the one or bring back the other. From then on the target may be retired too; it drains what it was given all the same.

Without an order it goes only where nobody said that he had it and nobody new is trusted. Both are durable facts: the
lane was never *reached*, which is to say that no answer of any kind came from there since it was made (a name that
nobody knows, a port that nobody listens on, a certificate that nobody trusts; but also a request that was taken and
never answered, which may be twice then); and its output kept its credentials. An output
that does not tell of answers, and a lane of a spool that did not count them, are reached from the start.
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
    """What waits stays where it is; the text says why."""

    code = Code.NOT_FORWARDED


class Ended(NotForwarded):
    """Nothing waits there any more."""


def note_reached(db: sqlite3.Connection, lane: int) -> None:
    """The destination of a lane has given an answer."""
    db.execute("UPDATE lane SET reached = 1 WHERE id = ? AND NOT reached", (lane,))


def never_reached(db: sqlite3.Connection) -> list[int]:
    """The lanes whose events go elsewhere without an order, if the active revision wants that; the oldest first."""
    if limits.load(db).never_reached != "forward":
        return []
    rows = db.execute(
        "SELECT old.id FROM lane AS old JOIN lane AS new ON new.active AND new.output = old.output"
        " AND new.credentials = old.credentials WHERE NOT old.active AND NOT old.reached"
        " AND EXISTS (SELECT 1 FROM todo WHERE lane = old.id AND kind != ?) ORDER BY old.id",
        (BARRIER,),
    )
    return [id for (id,) in rows.fetchall()]


def target(db: sqlite3.Connection, lane: int, closed: Collection[int] = ()) -> int:
    """The lane where the output of a lane goes now. Raises NotForwarded; lanes that are `closed` deliver nothing."""
    row = db.execute("SELECT output FROM lane WHERE id = ?", (lane,)).fetchone()
    if row is None:
        raise Ended("its drain has ended meanwhile")
    (output,) = row
    active, doubtful = requeue.lanes(db), doubt.lanes(db)
    if lane in doubtful:
        raise NotForwarded(f"output {output} {_DAMAGED}", code=Code.DAMAGED)
    if get_meta(db, "active") is None:
        raise NotForwarded(f"no revision is active, so output {output} goes nowhere yet: send a policy first")
    if output not in active:
        names = ", ".join(active) or "none"
        raise NotForwarded(f"the active revision has no output {output}; its outputs are: {names}")
    if active[output] == lane:
        raise NotForwarded(f"it waits where output {output} goes now")
    if active[output] in doubtful:
        raise NotForwarded(f"where output {output} goes now {_DAMAGED}", code=Code.DAMAGED)
    if active[output] in closed:
        raise NotForwarded(f"where output {output} goes now cannot be opened")
    return active[output]


def place_forward(
    db: sqlite3.Connection,
    lane: int,
    *,
    upto: int | None = None,
    revision: Revision | None = None,
    closed: Collection[int] = (),
    unasked: bool = False,
) -> Order:
    """Make durable that what waits on a lane goes to where its output goes now.

    That is what stands below the barrier at `upto` (None: the last one), and entered under `revision` (None: any).
    `unasked`: nobody ordered it, so only if the lane is one of `never_reached`. Raises NotForwarded.
    """
    doubt.act(db)
    to = target(db, lane, closed)
    if unasked and lane not in never_reached(db):
        raise NotForwarded("an answer came meanwhile, or a newer revision wants it otherwise")
    (last,) = db.execute("SELECT max(seq) FROM barrier WHERE lane = ?", (lane,)).fetchone()
    if last is None:
        raise Ended("its drain has ended meanwhile")
    return place(db, Order("forward", lane, last if upto is None else min(upto, last), to, revision))
