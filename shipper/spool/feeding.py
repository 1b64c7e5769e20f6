"""What the cut of a revision does to keyed state: lanes are fed, keys of removed inputs are deleted.

A lane that goes where none went until now gets the current version of each key of the inputs that are routed to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shipper.sdk.state import digest_of
from shipper.spool import keyed, places, slots, waiting
from shipper.spool.keyed import Admission, Arrival, Key
from shipper.spool.queue import Entry, Moved
from shipper.spool.schema import SLOT, get_meta, set_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Revision


class Route(NamedTuple):
    """An input of keyed state of a revision, and its outputs; `retracts`: its keys are deleted once it is removed."""

    input: str
    outputs: Sequence[str]
    retracts: bool = False


class Fed(NamedTuple):
    """What a lane got: so many slots, in place of those that were superseded."""

    lane: int
    events: int
    gone: Sequence[Entry]


def lanes_of(db: sqlite3.Connection, input: str) -> list[int]:
    """The active lanes that an input is routed to."""
    return [lane for (lane,) in db.execute("SELECT lane FROM fed WHERE input = ? AND lane ORDER BY lane", (input,))]


def retract(
    db: sqlite3.Connection, sealer: Sealer, now: float, before: Revision, routes: Sequence[Route]
) -> list[Moved]:
    """Delete the keys of inputs that a revision has no more, if they wanted that, on the lanes that they fed so far.

    It is done before the barriers of the cut are put, which count that, and takes some 0.1 ms a key.
    """
    rows = db.execute("SELECT input, lane FROM fed WHERE retracts ORDER BY input, lane").fetchall()
    moved: list[Moved] = []
    for input in dict.fromkeys(input for input, _ in rows if input not in {route.input for route in routes}):
        arrival = Arrival(before, input, [lane for name, lane in rows if name == input and lane], ())
        ids = db.execute("SELECT id FROM keyed WHERE input = ? AND owner = '' AND NOT deleted", (input,)).fetchall()
        for (id,) in ids:
            _retract(db, sealer, now, arrival, id, moved)
    return moved


def _retract(db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, id: int, moved: list[Moved]) -> None:
    row = db.execute(
        "SELECT name, input, place, digest, deleted, bytes, body FROM keyed WHERE id = ?", (id,)
    ).fetchone()
    name, body = row[0], row[-1]
    try:
        version = slots.version_in(slots.unseal(sealer, name, row[2], body))
    except Damaged:
        return
    gone = version._replace(place=places.next_place(db, version.place), digest=digest_of(None), deleted=True)
    keyed.admit(db, sealer, now, arrival, Admission(name, Key(id, *row[1:-1]), gone, None), moved)


def feed(
    db: sqlite3.Connection,
    now: float,
    at: Revision,
    routes: Sequence[Route],
    lanes: Mapping[str, int],
    before: Collection[int],
) -> list[Fed]:
    """Give lanes the current version of each key of the inputs that are routed to them since; in the cut.

    `lanes` are those of the revision, by output, `before` those that were active until now. Not fed is a lane that goes
    where another one went until now: what that one still has to do, it does. A lane that is active again counts as new.
    Keys that are deleted are fed as long as they are known: a destination to which the policy returns may have them.
    """
    known = [(lane, input) for lane, input in db.execute("SELECT lane, input FROM fed").fetchall() if lane in before]
    has = {(place, input) for lane, input in known for place in waiting.destinations(db, [lane])}
    wanted = sorted({(lanes[output], route.input) for route in routes for output in route.outputs})
    given = []
    for lane, input in wanted:
        (place,) = waiting.destinations(db, [lane])
        if (place, input) not in has:
            gone = _supersede_copies(db, lane, input)
            given.append(Fed(lane, _feed(db, now, at, lane, input), gone))
    db.execute("DELETE FROM fed")
    retracts = {route.input: route.retracts for route in routes}
    unrouted = [(0, route.input) for route in routes if not route.outputs]
    db.executemany("INSERT INTO fed VALUES (?, ?, ?)", [(*pair, retracts[pair[1]]) for pair in wanted + unrouted])
    return given


def _supersede_copies(db: sqlite3.Connection, lane: int, input: str) -> list[Entry]:
    """Take away the old versions of a lane that is active again."""
    rows = db.execute(
        "SELECT seq FROM slot JOIN keyed ON keyed.id = slot.keyed"
        " WHERE lane = ? AND input = ? AND slot.body IS NOT NULL",
        (lane, input),
    ).fetchall()
    return [waiting.supersede(db, lane, seq) for (seq,) in rows]


def _feed(db: sqlite3.Connection, now: float, at: Revision, lane: int, input: str) -> int:
    """As rows at once: there may be a hundred thousand keys."""
    seq = int(get_meta(db, "seq"))
    count = db.execute(
        "INSERT INTO slot SELECT ?, ? + row_number() OVER (ORDER BY id), id, place, NULL FROM keyed WHERE input = ?"
        " AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.keyed = keyed.id AND slot.lane = ?)",
        (lane, seq, input, lane),
    ).rowcount
    db.execute(
        "INSERT INTO todo SELECT lane, seq, ?, ?, ?, 1, bytes, ?, 0 FROM slot JOIN keyed ON keyed.id = slot.keyed"
        " WHERE lane = ? AND seq > ?",
        (SLOT, *at, now, lane, seq),
    )
    set_meta(db, "seq", seq + count)
    return count
