"""Requeues dead letters by an order: they enter as new batches of the lane that their output has now.

A requeue is durable before it runs, runs in bounded steps, and resumes after a crash. A step is one transaction: it
deletes letters and puts their events into the queue, under the active revision and with their former ids, so that a
destination that has them answers "duplicate". They enter above every barrier, and the next one counts them as accepted;
the barrier that counted them as dead letters keeps its sum.

Of keyed state the current version of the key is sent, which may be a newer one than was refused.

A letter that was written after the order was given is not requeued: an event that is refused again would loop for ever.
A damaged letter stays. The order ends early where the queue is full, or where the active revision does not have the
output.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Literal, NamedTuple

import msgspec
import orjson

from shipper.sdk.event import Batch
from shipper.spool import clock, dead_letters, queue, waiting
from shipper.spool.dead_letters import Content
from shipper.spool.queue import Arrival, Entered, Packed
from shipper.spool.schema import get_meta
from shipper.spool.seal import OVERHEAD_BYTES, Damaged, Sealer
from shipper.values import LARGEST_COUNT, Revision

LOOK = 4096
"""Letters that a step examines."""
STEP = 512
STEP_BYTES = 1 << 20
"""The size of the letters that a step requeues; a larger letter goes alone."""

_FITS = (
    "id > :after AND id <= :upto AND (:output IS NULL OR output = :output)"
    " AND (:reason IS NULL OR instr(substr(reason, instr(reason, ' ') + 1), :reason) > 0)"
    " AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))"
)


End = Literal["done", "full", "gone"]
"""Why an order ended: nothing is left, the queue is full, or the active revision does not have the output."""


class Room(NamedTuple):
    """The room in the queue: `bytes`, but at least one event if the queue `is_empty`."""

    bytes: int
    is_empty: bool


class Wanted(NamedTuple):
    """Selects letters that meet every given condition. `reason` is a part of a letter's reason, `ids` is JSON."""

    output: str | None = None
    reason: str | None = None
    ids: str | None = None
    upto: int = LARGEST_COUNT
    after: int = 0


class Requeue(NamedTuple):
    """One order. It is done up to the letter `wanted.after`; the queue may hold `max_bytes`."""

    wanted: Wanted
    max_bytes: int
    id: int = 0


class Found(NamedTuple):
    """The number of wanted letters by output, and the highest id."""

    outputs: dict[str, int]
    upto: int


class Step(msgspec.Struct):
    """The changes of a step, and the order after it; `end` is None if it continues."""

    order: Requeue
    end: End | None = None
    entered: Sequence[tuple[Revision, int, Entered]] = ()
    """Batches, each with the active revision and its lane."""
    damaged: int = 0
    """Letters that stay, since they are unreadable."""

    @property
    def requeued(self) -> int:
        """How many letters entered the queue."""
        return sum(batch.events for *_, batch in self.entered)


class _Letter(NamedTuple):
    """`lane` is the current one of its output and kind; without `content` it is damaged."""

    id: int
    lane: int | None
    content: Content | None


def find(db: sqlite3.Connection, wanted: Wanted) -> Found:
    """Counts the wanted letters."""
    query = f"SELECT output, count(*), max(id) FROM dead_letter WHERE {_FITS} GROUP BY output ORDER BY output"
    rows = db.execute(query, wanted._asdict()).fetchall()
    return Found({output: count for output, count, _ in rows}, max((last for *_, last in rows), default=0))


def lanes(db: sqlite3.Connection) -> dict[tuple[str, bool], int]:
    """Returns the lanes of the active revision, by output and whether they are of keyed state."""
    if get_meta(db, "active") is None:
        return {}
    rows = db.execute("SELECT output, pair != 0, id FROM lane WHERE active ORDER BY output").fetchall()
    return {(output, bool(state)): id for output, state, id in rows}


def outputs(db: sqlite3.Connection) -> list[str]:
    """Returns the outputs of the active revision."""
    return list(dict.fromkeys(output for output, _ in lanes(db)))


def place(db: sqlite3.Connection, order: Requeue) -> Requeue:
    """Stores an order; returns it with its id."""
    order = order._replace(max_bytes=min(order.max_bytes, clock.LARGEST))
    id = db.execute(
        "INSERT INTO requeue (after, upto, max_bytes, output, reason, ids)"
        " VALUES (:after, :upto, :max_bytes, :output, :reason, :ids)",
        {**order.wanted._asdict(), "max_bytes": order.max_bytes},
    ).lastrowid
    return order._replace(id=int(id or 0))


def standing(db: sqlite3.Connection) -> list[Requeue]:
    """Returns the orders that are not done, oldest first."""
    rows = db.execute("SELECT output, reason, ids, upto, after, max_bytes, id FROM requeue ORDER BY id").fetchall()
    return [Requeue(Wanted(*row[:5]), *row[5:]) for row in rows]


def forget(db: sqlite3.Connection, order: Requeue) -> None:
    """Deletes an order."""
    db.execute("DELETE FROM requeue WHERE id = ?", (order.id,))


def step(db: sqlite3.Connection, sealer: Sealer, origin: bytes, order: Requeue, room: Room, now: float) -> Step:
    """Carries out the next part of an order; deletes the order where it ends."""
    found, last = _next(db, sealer, order.wanted)
    if last is None:
        return _ended(db, order, "done")
    ready = list(takewhile(lambda letter: letter.content is None or letter.lane is not None, found))
    fitting, batches = _fitting(ready, room)
    if len(fitting) < len(found):
        if not fitting:
            return _ended(db, order, "full" if ready else "gone")
        last = fitting[-1].id
    sound = [letter.id for letter in fitting if letter.content is not None]
    dead_letters.remove(db, sound)
    entered = [_enter(db, sealer, origin, lane, packed, now) for lane, packed in batches]
    entered += _enter_versions(db, fitting, now)
    return Step(_moved(db, order, last), entered=entered, damaged=len(fitting) - len(sound))


def _ended(db: sqlite3.Connection, order: Requeue, end: End) -> Step:
    forget(db, order)
    return Step(order, end)


def _moved(db: sqlite3.Connection, order: Requeue, after: int) -> Requeue:
    db.execute("UPDATE requeue SET after = ? WHERE id = ?", (after, order.id))
    return order._replace(wanted=order.wanted._replace(after=after))


def _next(db: sqlite3.Connection, sealer: Sealer, wanted: Wanted) -> tuple[list[_Letter], int | None]:
    """Returns the next wanted letters for a step, and the id up to which all were examined; None: that is the end."""
    query = "SELECT max(id) FROM (SELECT id FROM dead_letter WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)"
    (last,) = db.execute(query, (wanted.after, wanted.upto, LOOK)).fetchone()
    if last is None:
        return [], None
    query = f"SELECT id, bytes FROM dead_letter WHERE {_FITS} ORDER BY id LIMIT {STEP + 1}"
    rows = db.execute(query, wanted._replace(upto=last)._asdict()).fetchall()
    count = max(1, sum(size <= STEP_BYTES for size in accumulate(size for _, size in rows[:STEP])))
    ids = [id for id, _ in rows[:count]]
    return _opened(db, sealer, ids), last if count >= len(rows) else ids[-1]


def _opened(db: sqlite3.Connection, sealer: Sealer, ids: Sequence[int]) -> list[_Letter]:
    """Returns letters by their ids. Texts are read as bytes: a flipped bit may have made them invalid."""
    active = {(output.encode(), state): lane for (output, state), lane in lanes(db).items()}
    rows = db.execute(
        "SELECT id, lane, seq, item, CAST(output AS BLOB), CAST(reason AS BLOB), CAST(body AS BLOB) FROM dead_letter"
        " WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (orjson.dumps(ids).decode(),),
    ).fetchall()
    found = []
    for id, lane, seq, item, output, noted, body in rows:
        content = _content(sealer, (lane, seq, item), noted, body)
        is_version = content is not None and content.version is not None
        found.append(_Letter(id, active.get((output, is_version)), content))
    return found


def _content(sealer: Sealer, place: tuple[int, int, int], noted: bytes, body: bytes) -> Content | None:
    try:
        revision = Revision.parse(noted.partition(b" ")[0].decode())
        return dead_letters.content(sealer, place, revision, body)
    except (Damaged, ValueError):
        return None


def _fitting(ready: Sequence[_Letter], room: Room) -> tuple[Sequence[_Letter], list[tuple[int, Packed]]]:
    """Returns the first of these letters, about as many as there is room for, and their batches, each with its lane."""
    while ready:
        batches = _packed(ready)
        size = sum(OVERHEAD_BYTES + len(packed.body) for _, packed in batches)
        if size <= room.bytes or (room.is_empty and len(ready) == 1):
            return ready, batches
        ready = ready[: len(ready) // 2]
    return (), []


def _packed(ready: Sequence[_Letter]) -> list[tuple[int, Packed]]:
    """Returns one batch for each lane and index."""
    ways: dict[tuple[int, str | None], list[Content]] = {}
    for letter in ready:
        if letter.content is not None and letter.content.version is None and letter.lane is not None:
            ways.setdefault((letter.lane, letter.content.index_name), []).append(letter.content)
    return [(lane, _batch(contents, index)) for (lane, index), contents in ways.items()]


def _batch(contents: Sequence[Content], index: str | None) -> Packed:
    documents, ids = [each.document for each in contents], [each.id for each in contents]
    return Packed(len(contents), Batch.documents(documents, ids=ids, route=index).pack())


def _enter(
    db: sqlite3.Connection, sealer: Sealer, origin: bytes, lane: int, packed: Packed, now: float
) -> tuple[Revision, int, Entered]:
    at = Revision.parse(get_meta(db, "active"))
    (entered,) = queue.enter(db, sealer, origin, now, Arrival(at, "", [lane], [packed]))
    return at, lane, entered


def _enter_versions(
    db: sqlite3.Connection, letters: Sequence[_Letter], now: float
) -> list[tuple[Revision, int, Entered]]:
    found = []
    for _, lane, content in letters:
        if lane is not None and content is not None and content.version is not None:
            at = Revision.parse(get_meta(db, "active"))
            entry = waiting.again(db, now, at, lane, content.version)
            if entry is not None:
                found.append((at, lane, Entered(entry.seq, entry.events, entry.room)))
    return found
