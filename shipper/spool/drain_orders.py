"""Orders that end a drain which cannot end by itself: its events move to another lane, are dead-lettered or dropped.

An order is durable before it runs, runs in bounded steps, and resumes after a crash. It touches only entries below the
barrier that was the last one of its lane when the order was given (`upto`); an order that names a batch touches only
that batch, whether a barrier is above it or not. A rebind (to another credential) and a forward (to the current lane of
the output, see `forward`) move events together with the barriers above them: first every barrier is copied, empty, into
the target lane, so that a moved event is always below a barrier; then the events move; at last the emptied barriers of
the source settle. In the target the clock of a barrier starts at zero. Moved entries keep their places, below the
target's own later ones, so a target that is retired meanwhile drains them in order.

An order obeys the policy of the dead-letter store: old letters are dropped and counted, or, under `hold`, the order
ends when the store is full. The events that did not fit wait below their barrier as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from shipper.sdk.answers import Outcome
from shipper.sdk.errors import ShipperError
from shipper.sdk.event import Batch
from shipper.spool import credentials, dead_letters, doubt, queue, requests, waiting
from shipper.spool.queue import Entry, Settled, Settlement
from shipper.spool.revisions import LaneRow, adopt_rebound
from shipper.spool.schema import BARRIER, BATCH, SLOT
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Counts, Revision

STEP = 32
LETTERS_STEP = 4
"""Entries whose events one transaction rewrites; it is in memory until it is committed."""
GIVEN_UP = "given up by an order, or at the deadline of its drain"

Name = Literal["rebind", "forward", "dead_letter", "drop"]
MOVES: tuple[Name, ...] = ("rebind", "forward")
"""Orders that have a target lane."""


class Released(ShipperError):
    """The credential for the events is not in use any more."""


class Gone(ShipperError):
    """The lane has ended: nothing waits there any more."""


class InDoubt(ShipperError):
    """Damage left a queue of one of the lanes unknown: a barrier that moved there would wait for an order."""


class Order(NamedTuple):
    """One order for one lane, for its entries from `first` to `upto`; for a batch both are its place.

    `revision` says under which revision the events entered (None: any).
    """

    name: Name
    lane: int
    upto: int
    target: int | None = None
    revision: Revision | None = None
    id: int = 0
    first: int = 0

    @property
    def is_of_batch(self) -> bool:
        """Whether it is for one batch, and not for all of a drain."""
        return self.first > 0


class Step(msgspec.Struct):
    """The changes of a step."""

    done: bool
    full: bool = False
    """Done because the dead-letter store is full; the other events stay."""
    settled: list[tuple[int, Settled]] = msgspec.field(default_factory=list)
    moved: list[tuple[Entry, frozenset[int]]] = msgspec.field(default_factory=list)
    """Entries that moved to the target lane, each with the other lanes that hold its batch whole."""
    damaged: int = 0
    """How many events were found damaged."""

    @property
    def ended(self) -> int:
        """How many events were dead-lettered, dropped or found damaged."""
        return sum(change.entry.events - (change.left.events if change.left else 0) for _, change in self.settled)

    @property
    def letters_dropped(self) -> int:
        """How many old letters were dropped."""
        return sum(change.letters_dropped for _, change in self.settled)


def place_rebind(
    db: sqlite3.Connection, sealer: Sealer, source: int, upto: int, old: str, new: str
) -> tuple[Order, LaneRow]:
    """Stores an order that moves a lane's events to the lane of the same destination with `new` in place of `old`.

    That lane is made if absent. Raises Gone, Released or InDoubt: the lane, the credential and the barriers are checked
    in this transaction, since each may change at any moment before it.
    """
    if db.execute("SELECT 1 FROM lane WHERE id = ?", (source,)).fetchone() is None:
        raise Gone
    if not credentials.may_be_bound(db, new):
        raise Released
    doubt.act(db)
    target = adopt_rebound(db, sealer, source, old, new)
    if target.settings is None or doubt.lanes(db) & {source, target.id}:
        raise InDoubt
    return place(db, Order("rebind", source, upto, target=target.id)), target


def place(db: sqlite3.Connection, order: Order) -> Order:
    """Stores an order; returns it with its id. One with a target copies its barriers at once."""
    epoch, number = order.revision if order.revision is not None else (None, None)
    id = db.execute(
        "INSERT INTO standing_order (name, lane, target, epoch, revision, upto, first) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (order.name, order.lane, order.target, epoch, number, order.upto, order.first),
    ).lastrowid
    if order.name in MOVES:
        _mirror_barriers(db, order)
    return order._replace(id=int(id or 0))


def _mirror_barriers(db: sqlite3.Connection, order: Order) -> None:
    db.execute(
        "INSERT OR IGNORE INTO barrier (lane, seq, epoch, revision, accepted)"
        " SELECT ?, seq, epoch, revision, 0 FROM barrier WHERE lane = ? AND seq <= ?",
        (order.target, order.lane, order.upto),
    )
    db.execute(
        "INSERT OR IGNORE INTO todo SELECT ?, seq, kind, epoch, revision, 0, 0, 0, 0 FROM todo"
        " WHERE lane = ? AND seq <= ? AND kind = ?",
        (order.target, order.lane, order.upto, BARRIER),
    )


def standing(db: sqlite3.Connection) -> list[Order]:
    """Returns the orders that are not done, oldest first."""
    rows = db.execute("SELECT name, lane, upto, target, epoch, revision, id, first FROM standing_order ORDER BY id")
    return [
        Order(name, lane, upto, target, None if epoch is None else Revision(epoch, number), id, first)
        for name, lane, upto, target, epoch, number, id, first in rows.fetchall()
    ]


def holders(db: sqlite3.Connection, output: str, batch: int) -> list[int]:
    """The lanes of an output on which events of a batch wait."""
    rows = db.execute(
        "SELECT lane.id FROM lane CROSS JOIN todo ON todo.lane = lane.id AND todo.seq = ?"
        " WHERE lane.output = ? AND kind != ? ORDER BY lane.id",
        (batch, output, BARRIER),
    )
    return [lane for (lane,) in rows.fetchall()]


def first_batches(db: sqlite3.Connection) -> list[tuple[str, int]]:
    """By output, the batch that has waited longest on each of its lanes."""
    rows = db.execute(
        "SELECT output, (SELECT seq FROM todo WHERE todo.lane = lane.id AND kind != ? ORDER BY seq LIMIT 1) AS first"
        " FROM lane WHERE first IS NOT NULL ORDER BY output, lane.id",
        (BARRIER,),
    )
    return rows.fetchall()


def step(
    db: sqlite3.Connection,
    sealer: Sealer,
    order: Order,
    limits: dead_letters.Limits,
    now: float,
    *,
    repaired: bool = False,
) -> Step:
    """Carries out the next part of an order; forgets the order when nothing is left.

    Raises Damaged for unreadable bytes, unless the database was `repaired`: then their events count as damaged.
    """
    epoch, number = order.revision if order.revision is not None else (None, None)
    most = LETTERS_STEP if order.name == "dead_letter" else STEP
    rows = db.execute(
        "SELECT seq, kind, epoch, revision, count, bytes, at FROM todo WHERE lane = ? AND seq BETWEEN ? AND ?"
        " AND kind != ? AND (? IS NULL OR (epoch, revision) = (?, ?)) ORDER BY seq LIMIT ?",
        (order.lane, order.first, order.upto, BARRIER, epoch, epoch, number, most),
    ).fetchall()
    entries = [queue.entry_of(row) for row in rows]
    if not entries:
        _forget(db, order)
        if not (order.name in MOVES or order.is_of_batch):
            doubt.ordered(db, order.lane)
        return Step(done=True)
    if order.name in MOVES:
        return _move_all(db, sealer, order, entries, limits, now)
    return _end_all(db, sealer, order, entries, limits, now, repaired)


def _forget(db: sqlite3.Connection, order: Order) -> None:
    db.execute("DELETE FROM standing_order WHERE id = ?", (order.id,))
    requests.follow(db, order.lane, order.target)


def _move_all(
    db: sqlite3.Connection,
    sealer: Sealer,
    order: Order,
    entries: Sequence[Entry],
    limits: dead_letters.Limits,
    now: float,
) -> Step:
    """Moves entries to the target lane, except those that it has: a restore after damage left them in both."""
    if order.name == "rebind":
        _pass_on_reached(db, order)
    step = Step(done=False)
    assert order.target is not None
    for entry in entries:
        answer, gave_way = _answer_instead(db, order, order.target, entry)
        if gave_way is not None:
            step.settled.append((order.target, gave_way))
        if answer is None:
            step.moved.append((entry, _move(db, order, entry)))
        elif change := queue.settle(  # pragma: no branch - the entry was read in this transaction
            db, sealer, order.lane, entry.seq, Settlement(answer), limits, now
        ):
            step.settled.append((order.lane, change))
    return step


def _answer_instead(
    db: sqlite3.Connection, order: Order, target: int, entry: Entry
) -> tuple[Counts | None, Settled | None]:
    """The final answer of an entry that is not to move, and what gave way at the target to one that is."""
    if db.execute("SELECT 1 FROM todo WHERE lane = ? AND seq = ?", (target, entry.seq)).fetchone() is not None:
        return Counts(duplicate=entry.events), None
    return waiting.make_way(db, order.lane, target, entry.seq) if entry.kind == SLOT else (None, None)


def _pass_on_reached(db: sqlite3.Connection, order: Order) -> None:
    """Marks the target as reached if the source is: it is the same destination, which may have the events already."""
    db.execute(
        "UPDATE lane SET reached = 1 WHERE id = ? AND NOT reached AND EXISTS"
        " (SELECT 1 FROM lane AS other WHERE other.id = ? AND other.reached)",
        (order.target, order.lane),
    )


def _move(db: sqlite3.Connection, order: Order, entry: Entry) -> frozenset[int]:
    """Moves an entry to the target lane, and its count from barrier to barrier."""
    others = queue.holders(db, order.lane, entry.seq) if entry.kind == BATCH else frozenset()
    key = (order.target, order.lane, entry.seq)
    db.execute("UPDATE todo SET lane = ? WHERE lane = ? AND seq = ?", key)
    db.execute("UPDATE rest SET lane = ? WHERE lane = ? AND seq = ?", key)
    db.execute("UPDATE slot SET lane = ? WHERE lane = ? AND seq = ?", key)
    for lane, change in ((order.lane, -entry.events), (order.target, entry.events)):
        db.execute(
            "UPDATE barrier SET accepted = accepted + ? WHERE lane = ? AND seq ="
            " (SELECT seq FROM barrier WHERE lane = ? AND seq > ? ORDER BY seq LIMIT 1)",
            (change, lane, lane, entry.seq),
        )
    return others


def _end_all(
    db: sqlite3.Connection,
    sealer: Sealer,
    order: Order,
    entries: Sequence[Entry],
    limits: dead_letters.Limits,
    now: float,
    repaired: bool,
) -> Step:
    """Dead-letters or drops entries, as far as the dead-letter store has room."""
    step = Step(done=False)
    for entry in entries:
        change = _end(db, sealer, order, entry, limits, now, repaired, step)
        if change is not None:
            step.settled.append((order.lane, change))
        if change is None or change.left is not None:
            _forget(db, order)
            step.done = step.full = True
            break
    return step


def _end(
    db: sqlite3.Connection,
    sealer: Sealer,
    order: Order,
    entry: Entry,
    limits: dead_letters.Limits,
    now: float,
    repaired: bool,
    step: Step,
) -> Settled | None:
    """Ends the unsettled events of an entry; unreadable ones count as damaged, in the step too. Returns None if no
    event of it fits."""
    (output,) = db.execute("SELECT output FROM lane WHERE id = ?", (order.lane,)).fetchone()
    settlement = Settlement(Counts(dropped=entry.events))
    if order.name == "dead_letter":
        try:
            batch = queue.load(db, sealer, order.lane, entry)
            settlement = _dead_lettered(db, batch, output, limits)
            if settlement.rest is batch:
                return None
            if batch.count != entry.events:
                queue.recount(db, order.lane, entry, batch.count)
        except Damaged:
            if not repaired:
                raise
            settlement = Settlement(Counts(damaged=entry.events))
            step.damaged += entry.events
    change = queue.settle(db, sealer, order.lane, entry.seq, settlement, limits, now)
    assert change is not None
    return change._replace(entry=entry)  # with its former count, which may have been corrected above


def _dead_lettered(db: sqlite3.Connection, batch: Batch, output: str, limits: dead_letters.Limits) -> Settlement:
    """Returns letters for the first events of a batch, as many as fit; the others are its rest."""
    written = letters_of(batch, dict.fromkeys(range(batch.count), GIVEN_UP), output)
    fitting = dead_letters.fitting(db, written, limits)
    if fitting == batch.count:
        return Settlement(Counts(dead_letter=fitting), letters=written, answers=_answers(written))
    rest = batch.pick(range(fitting, batch.count)) if fitting else batch
    fit = written[:fitting]
    return Settlement(Counts(dead_letter=fitting), letters=fit, rest=rest, answers=_answers(fit))


def _answers(letters: Sequence[dead_letters.Letter]) -> dict[int, Outcome]:
    return {letter.item: Outcome.DEAD_LETTER for letter in letters}


def letters_of(batch: Batch, reasons: dict[int, str], output: str) -> list[dead_letters.Letter]:
    """Returns letters for the events at these positions."""
    if not reasons:
        return []
    picked = batch.pick(sorted(reasons))
    documents = picked.json_lines().split(b"\n")
    ids = picked.id_texts()
    items = range(picked.count) if picked.items is None else picked.items
    versions = picked.versions or [None] * picked.count
    return [
        dead_letters.Letter(item, id, document, output, reasons[position], route, version)
        for position, item, id, document, route, version in zip(
            sorted(reasons), items, ids, documents, picked.each_route(), versions, strict=False
        )
    ]
