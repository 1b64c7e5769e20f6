"""Transactions of batches: they enter, are read by a lane, and are settled. Pure functions of the database.

Each runs inside one transaction of the store and may be replayed, so none keeps state outside of it; they return the
changes, from which `Spool` keeps its counters.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from shipper.sdk.answers import Outcome
from shipper.sdk.errors import Outdated, ShipperError
from shipper.sdk.event import Batch
from shipper.spool import awaited, dead_letters, slots
from shipper.spool.awaited import Answered, Awaited
from shipper.spool.schema import BARRIER, BATCH, REST, SLOT, get_meta, next_seq, next_seqs
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Confirmed, Counts, Revision


class NotActive(ShipperError):
    """The revision of a batch that enters is not active any more; nothing was stored."""


class Packed(NamedTuple):
    """A batch of `events` events, ready to be sealed; for `lanes`, or (None) for the lanes of its arrival."""

    events: int
    body: bytes
    lanes: tuple[int, ...] | None = None
    source: int = 0
    """Which of the batches of an input it was made of, by number; of use where that one is awaited."""
    is_anew: bool = False
    """Whether its events have other identities than those that the input gave."""


class Entered(NamedTuple):
    """A stored batch: its place, and the bytes of its body on disk."""

    seq: int
    events: int
    size: int
    at: float = 0.0

    def entry(self, revision: Revision, *, is_awaited: bool = False) -> Entry:
        """Returns its entry in each of its lanes."""
        return Entry(self.seq, BATCH, revision, self.events, self.size, self.at, is_awaited=is_awaited)


class Entry(NamedTuple):
    """A batch, the rest of one, or a barrier, that a lane has to settle."""

    seq: int
    kind: int
    revision: Revision
    events: int
    size: int
    at: float
    place: int | None = None
    """Of a slot that was loaded: that of its version."""
    is_awaited: bool = False
    """Of what a window has: whether an input waits for its final answers."""

    @property
    def is_barrier(self) -> bool:
        return self.kind == BARRIER

    @property
    def room(self) -> int:
        """The bytes that count against the queue's limit. Keyed state has room of its own."""
        return 0 if self.kind == SLOT else self.size


class Settlement(msgspec.Struct, frozen=True):
    """The final answers to all or some events of a batch on a lane."""

    counts: Counts
    """Counts of events with a final answer; `accepted` is not used."""
    letters: Sequence[dead_letters.Letter] = ()
    rest: Batch | None = None
    """The events without a final answer; None: all are settled."""
    place: int | None = None
    """Of a slot: the place of the version that was answered; None: of any version that waits there."""
    answers: Mapping[int, Outcome] | None = None
    """By item, the final answers of events that were not simply delivered; None: all events of the entry have the one
    that is counted."""
    fence: tuple[int, bytes] | None = None
    """Of a slot: the place and the digest of the version that the destination has instead."""
    confirmed: Confirmed = Confirmed.UNKNOWN
    """What the answers of the destination are worth."""

    @property
    def is_version(self) -> bool:
        """Whether it is of a slot that was loaded."""
        return self.place is not None


class Settled(NamedTuple):
    """The changes of a settlement: the entry before and after, and the other lanes that hold the batch whole."""

    entry: Entry
    others: frozenset[int]
    left: Entry | None
    letters_dropped: int
    again: int
    """By how much the number of events that several parts of the batch, whole or rests, count again has grown."""
    is_renewed: bool = False
    """Of a slot: another version, which was not sent yet, waits there by now. Nothing was stored."""
    answered: Answered | None = None
    """The awaited batch that has all its answers now."""


class Moved(NamedTuple):
    """A change of a lane's entries: one went, or one came, or both."""

    lane: int
    gone: Entry | None
    come: Entry | None


class Arrival(msgspec.Struct, frozen=True):
    """Batches and positions of an input that enter in one transaction."""

    revision: Revision
    input: str
    lanes: Sequence[int]
    batches: Sequence[Packed]
    positions: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    expect: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    """Positions that must be stored like this before; None: that key has none."""
    awaited: Sequence[Awaited | None] = ()
    """By the number of the input's batch: that its final answers are to be kept."""
    forgotten: Collection[str] = ()
    """Keys of batches that are awaited no longer."""

    def lanes_of(self, packed: Packed) -> Sequence[int]:
        """Returns the lanes of one of its batches."""
        return self.lanes if packed.lanes is None else packed.lanes


def enter(db: sqlite3.Connection, sealer: Sealer, origin: bytes, now: float, arrival: Arrival) -> list[Entered]:
    """Stores an input's batches, their entries in every lane, and its positions.

    Raises NotActive, and Outdated if other positions are stored than the arrival expects.
    """
    if get_meta(db, "active") != str(arrival.revision):
        raise NotActive
    require_positions(db, arrival.input, arrival.expect)
    epoch, number = arrival.revision
    awaited.forget(db, arrival.input, arrival.forgotten)
    rows = _await_all(db, arrival)
    entered, entries = list[Entered](), list[tuple[object, ...]]()
    seqs = next_seqs(db, len(arrival.batches)) if arrival.batches else range(0)
    texts = {lanes: json.dumps(lanes) for lanes in {tuple(arrival.lanes_of(packed)) for packed in arrival.batches}}

    def batches() -> Iterator[tuple[object, ...]]:
        """Seals one at a time: all of them are twice the memory."""
        for seq, packed in zip(seqs, arrival.batches, strict=True):
            lanes = tuple(arrival.lanes_of(packed))
            sealed = sealer.seal("batch", seq, epoch, number, packed.body)
            size = len(sealed)
            reference = rows.get(packed.source, 0) * (-1 if packed.is_anew else 1)
            entered.append(Entered(seq, packed.events, size, now))
            entries.extend([(lane, seq, BATCH, epoch, number, packed.events, size, now, reference) for lane in lanes])
            yield seq, epoch, number, packed.events, size, now, origin, texts[lanes], sealed

    db.executemany("INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", batches())
    db.executemany("INSERT INTO todo VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", entries)
    set_positions(db, arrival.input, arrival.positions)
    return entered


def _await_all(db: sqlite3.Connection, arrival: Arrival) -> dict[int, int]:
    """Makes the rows of awaited batches; returns their ids, by number."""
    made: dict[int, int] = {}
    if any(arrival.awaited):
        entries = Counter[int]()
        for packed in arrival.batches:
            entries[packed.source] += len(arrival.lanes_of(packed))
        for number, one in enumerate(arrival.awaited):
            if one is not None:
                made[number] = awaited.add(db, arrival.input, one, entries[number])
    return made


def require_positions(db: sqlite3.Connection, input: str, expect: Mapping[str, bytes | None]) -> None:
    """Raises Outdated unless these positions are stored; None: that key has none."""
    for key, expected in expect.items():
        if position(db, input, key) != expected:
            raise Outdated(key)


def set_positions(db: sqlite3.Connection, input: str, positions: Mapping[str, bytes | None]) -> None:
    """Stores positions of an input; None removes one."""
    for key, position in positions.items():
        if position is None:
            db.execute("DELETE FROM cursor WHERE input = ? AND key = ?", (input, key))
        else:
            db.execute("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?)", (input, key, position))


def positions(db: sqlite3.Connection, input: str, prefix: str = "") -> dict[str, bytes]:
    """Returns the stored positions of an input whose keys have this prefix; at most one row more is read."""
    query = "SELECT key, position FROM cursor WHERE input = ? AND key >= ? ORDER BY key"
    with closing(db.execute(query, (input, prefix))) as rows:
        return dict(takewhile(lambda row: row[0].startswith(prefix), rows))


def position(db: sqlite3.Connection, input: str, key: str) -> bytes | None:
    """Returns one stored position of an input."""
    row = db.execute("SELECT position FROM cursor WHERE input = ? AND key = ?", (input, key)).fetchone()
    return None if row is None else row[0]


def window(db: sqlite3.Connection, lane: int, after: int, limit: int = 64) -> list[Entry]:
    """Returns the next entries of a lane, in order."""
    rows = db.execute(
        "SELECT seq, kind, epoch, revision, count, bytes, at, awaited FROM todo"
        " WHERE lane = ? AND seq > ? ORDER BY seq LIMIT ?",
        (lane, after, limit),
    ).fetchall()
    return [entry_of(row) for row in rows]


_BYTES = "CAST(origin AS BLOB), CAST(body AS BLOB)"
"""Cast, since a flipped bit may make a text of a blob, and Python would fail to decode it before the seal is
checked."""


def load(db: sqlite3.Connection, sealer: Sealer, lane: int, entry: Entry, limit: int | None = None) -> Batch:
    """Returns the events of an entry; raises Damaged if the stored bytes are unreadable.

    None of a slot that was settled, or superseded, since. Raises Oversized if they take more than `limit` bytes.
    """
    if entry.kind == SLOT:
        return slots.load(db, sealer, lane, entry.seq, limit)
    epoch, number = entry.revision
    if entry.kind == REST:
        row = db.execute(f"SELECT id, {_BYTES} FROM rest WHERE lane = ? AND seq = ?", (lane, entry.seq)).fetchone()
        kind = "rest"
    else:
        row = db.execute(f"SELECT seq, {_BYTES} FROM batch WHERE seq = ?", (entry.seq,)).fetchone()
        kind = "batch"
    if row is None:
        raise Damaged(f"{kind} {entry.seq} is missing")
    packed = sealer.open(kind, row[0], epoch, number, row[2])
    try:
        return Batch.unpack(packed, origin=row[1], seq=entry.seq, limit=limit)
    except ValueError as error:
        raise Damaged(str(error)) from None


def recount(db: sqlite3.Connection, lane: int, entry: Entry, events: int) -> None:
    """Corrects the damaged count of an entry, and the sum of its barrier, to the number of events in the sealed
    batch."""
    db.execute("UPDATE todo SET count = ? WHERE lane = ? AND seq = ?", (events, lane, entry.seq))
    db.execute(
        "UPDATE barrier SET accepted = accepted + ? WHERE lane = ? AND seq ="
        " (SELECT seq FROM barrier WHERE lane = ? AND seq > ? ORDER BY seq LIMIT 1)",
        (events - entry.events, lane, lane, entry.seq),
    )


def settle(
    db: sqlite3.Connection,
    sealer: Sealer,
    lane: int,
    seq: int,
    settlement: Settlement,
    limits: dead_letters.Limits,
    now: float,
) -> Settled | None:
    """Stores answers: counts, dead letters, and the rest. Returns None if the entry was settled before.

    Raises dead_letters.Full where dead letters have no room and must not replace older ones.
    """
    row = db.execute(
        "SELECT seq, kind, epoch, revision, count, bytes, at, awaited FROM todo WHERE lane = ? AND seq = ?", (lane, seq)
    ).fetchone()
    if row is None:
        return None
    *columns, reference = row
    entry = entry_of(columns)
    if entry.kind == SLOT and slots.is_renewed(db, lane, seq, settlement.place):
        return Settled(entry, frozenset(), entry, 0, 0, is_renewed=True)
    left_count = settlement.rest.count if settlement.rest is not None else 0
    if settlement.counts.answered + left_count != entry.events:
        raise AssertionError(f"lane {lane}: {entry.events} != {settlement.counts.answered} + {left_count}")
    dropped = dead_letters.add(db, sealer, lane, entry.revision, seq, settlement.letters, limits, now)
    count_answers(db, lane, seq, settlement.counts, settlement.confirmed)
    _note_confirmed(db, lane, entry, settlement.confirmed)
    answered = _fold(db, sealer, lane, entry, reference, settlement) if reference else None
    if entry.kind == SLOT:
        remove_slot(db, lane, seq)
        return Settled(entry, frozenset(), None, dropped, 0, answered=answered)
    sharers = _sharers(db, lane, seq)
    others = frozenset(id for id, kind in sharers.items() if kind == BATCH)
    again = _more_again(db, sealer, lane, entry, settlement.rest, sharers) if sharers else 0
    left = None
    if settlement.rest is None:
        db.execute("DELETE FROM todo WHERE lane = ? AND seq = ?", (lane, seq))
        if entry.kind == REST:
            db.execute("DELETE FROM rest WHERE lane = ? AND seq = ?", (lane, seq))
    else:
        left = _write_rest(db, sealer, lane, entry, settlement.rest)
    if entry.kind == BATCH and not others:
        db.execute("DELETE FROM batch WHERE seq = ?", (seq,))
    return Settled(entry, others, left, dropped, again, answered=answered)


def _fold(
    db: sqlite3.Connection, sealer: Sealer, lane: int, entry: Entry, reference: int, settlement: Settlement
) -> Answered | None:
    def own_items() -> frozenset[int] | None:
        try:
            return _numbers(load(db, sealer, lane, entry))
        except Damaged:
            return None

    if entry.kind == SLOT:  # of one event, whatever it was sent with
        return awaited.fold(db, reference, settlement.counts, None, lambda: None, is_last=True)
    is_last = settlement.rest is None
    return awaited.fold(db, reference, settlement.counts, settlement.answers, own_items, is_last=is_last)


def remove_slot(db: sqlite3.Connection, lane: int, seq: int) -> None:
    """Take a slot from a lane."""
    db.execute("DELETE FROM todo WHERE lane = ? AND seq = ?", (lane, seq))
    slots.remove(db, lane, seq)


def _more_again(
    db: sqlite3.Connection, sealer: Sealer, lane: int, entry: Entry, rest: Batch | None, sharers: Mapping[int, int]
) -> int:
    """Returns `Settled.again`. Reads rests only where several lanes have one and none holds the batch whole."""
    left = 0 if rest is None else rest.count
    if BATCH in sharers.values():
        return left - (0 if entry.kind == BATCH else entry.events)
    mine = items(db, sealer, lane, entry) if entry.kind == REST else frozenset(range(entry.events))
    elsewhere = frozenset[int]().union(*(items(db, sealer, id, entry._replace(kind=REST)) for id in sharers))
    return left - entry.events + len(mine - _numbers(rest) - elsewhere)


def items(db: sqlite3.Connection, sealer: Sealer, lane: int, entry: Entry) -> frozenset[int]:
    """Returns the indexes in its batch of the events of an entry; none if it is damaged."""
    try:
        return _numbers(load(db, sealer, lane, entry))
    except Damaged:
        return frozenset()


def _numbers(batch: Batch | None) -> frozenset[int]:
    return frozenset() if batch is None else frozenset(range(batch.count) if batch.items is None else batch.items)


def _write_rest(db: sqlite3.Connection, sealer: Sealer, lane: int, entry: Entry, rest: Batch) -> Entry:
    db.execute("DELETE FROM rest WHERE lane = ? AND seq = ?", (lane, entry.seq))
    id = next_seq(db)
    sealed = sealer.seal("rest", id, *entry.revision, rest.pack())
    db.execute("INSERT INTO rest VALUES (?, ?, ?, ?, ?)", (id, lane, entry.seq, rest.origin, sealed))
    db.execute(
        "UPDATE todo SET kind = ?, count = ?, bytes = ? WHERE lane = ? AND seq = ?",
        (REST, rest.count, len(sealed), lane, entry.seq),
    )
    return entry._replace(kind=REST, events=rest.count, size=len(sealed))


def _note_confirmed(db: sqlite3.Connection, lane: int, entry: Entry, confirmed: Confirmed) -> None:
    """Keeps what the last answer of a lane's destination is worth, if it has changed."""
    if confirmed is not Confirmed.UNKNOWN:
        column = "confirmed_versions" if entry.kind == SLOT else "confirmed"
        db.execute(f"UPDATE lane SET {column} = ? WHERE id = ? AND {column} != ?", (confirmed, lane, confirmed))


def count_answers(
    db: sqlite3.Connection, lane: int, seq: int, counts: Counts, confirmed: Confirmed = Confirmed.UNKNOWN
) -> None:
    """Adds counts to the oldest open barrier above `seq` on the lane, which keeps the weakest confirmation."""
    db.execute(
        "UPDATE barrier SET delivered = delivered + ?, duplicate = duplicate + ?, dead_letter = dead_letter + ?,"
        " dropped = dropped + ?, damaged = damaged + ?, superseded = superseded + ?,"
        " confirmed = max(confirmed, ?) WHERE lane = ? AND seq ="
        " (SELECT seq FROM barrier WHERE lane = ? AND seq > ? ORDER BY seq LIMIT 1)",
        (
            counts.delivered,
            counts.duplicate,
            counts.dead_letter,
            counts.dropped,
            counts.damaged,
            counts.superseded,
            confirmed,
            lane,
            lane,
            seq,
        ),
    )


def holders(db: sqlite3.Connection, lane: int, seq: int) -> frozenset[int]:
    """Returns the other lanes that hold this batch whole."""
    return frozenset(id for id, kind in _sharers(db, lane, seq).items() if kind == BATCH)


def _sharers(db: sqlite3.Connection, lane: int, seq: int) -> dict[int, int]:
    """Returns the other lanes that hold this batch, each with the kind of its entry: whole or a rest.

    The CROSS JOIN fixes the order of the join: there are a few lanes and perhaps millions of entries, and without
    statistics the planner took the entries first, 20 ms for each settled batch.
    """
    rows = db.execute(
        "SELECT todo.lane, kind FROM lane CROSS JOIN todo ON todo.lane = lane.id AND todo.seq = ? WHERE lane.id != ?",
        (seq, lane),
    )
    return dict(rows.fetchall())


def entry_of(row: Sequence[Any]) -> Entry:
    seq, kind, epoch, number, count, size, at, *awaited = row
    return Entry(seq, kind, Revision(epoch, number), count, size, at, is_awaited=any(awaited))
