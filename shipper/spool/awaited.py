"""Batches whose final answers their input waits for, in rows: the input answers for them to a peer of its own.

Versions of keyed state are awaited in the same way, each as a batch of one event: see `keyed_answers`.

A row is made in the transaction that stores the batch, and belongs to a key of the input's choice. It counts the open
entries of lanes, which name it (`todo.awaited`), and holds one byte for each event: the worst answer that any lane had
for it. Each settlement of such an entry folds its answers in, in the same transaction, whoever settles: a destination,
an order, or damage. What moves to another lane stays open until that one settles it. When no entry is open the row is
complete, and stays until its input forgets it.

What processors dropped is delivered, as the policy wants. Events to which a processor has given new identities cannot
be told apart, so each event of the input's batch has the worst answer of all of them. A dead letter that is requeued
changes no answer.

A row that does not agree with the entries, after damage, is deleted (`reconcile`): who asks for it learns that it is
unknown, and hands the events over once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import orjson

from shipper.sdk.answers import Outcome, Ranked
from shipper.spool.schema import next_seq
from shipper.values import Counts


class Awaited(NamedTuple):
    """A batch of an input whose answers it waits for: its key, and the items of its events (None: 0, 1, …)."""

    key: str
    events: int
    items: Sequence[int] | None = None


class Answered(NamedTuple):
    """A row that is complete."""

    input: str
    key: str


def add(db: sqlite3.Connection, input: str, awaited: Awaited, entries: int) -> int:
    """Makes the row of a batch that becomes so many entries of lanes; returns its id, which is never given again."""
    id = next_seq(db)
    counts_from_0 = awaited.items is None or list(awaited.items) == list(range(awaited.events))
    items = None if counts_from_0 else msgspec.msgpack.encode(list(awaited.items or ()))
    answers = bytes(awaited.events)
    db.execute(
        "INSERT OR REPLACE INTO awaited VALUES (?, ?, ?, ?, ?, ?)", (id, input, awaited.key, entries, answers, items)
    )
    return id


def forget(db: sqlite3.Connection, input: str, keys: Collection[str]) -> None:
    """Deletes rows, complete or not."""
    db.executemany("DELETE FROM awaited WHERE input = ? AND key = ?", [(input, key) for key in keys])


def answers(db: sqlite3.Connection, input: str, keys: Collection[str]) -> dict[str, bytes | None]:
    """Returns the answers of each row that is there, in the order of its events; None: it is not complete."""
    rows = db.execute(
        "SELECT key, open, answers FROM awaited WHERE input = ? AND key IN (SELECT value FROM json_each(?))",
        (input, orjson.dumps(list(keys)).decode()),
    )
    return {key: None if open else answers for key, open, answers in rows.fetchall()}


def fold(
    db: sqlite3.Connection,
    reference: int,
    counts: Counts,
    others: Mapping[int, Outcome] | None,
    items: Callable[[], Collection[int] | None],
    *,
    is_last: bool,
) -> Answered | None:
    """Folds the answers of a settlement in; returns the row if it is complete now.

    `reference` is that of the entry. `others` are the answers by item, but for what was delivered; None: all have the
    one that is counted, and are those of the entry, which `items` returns (None: they are unknown). `is_last`: nothing
    of the entry is left.
    """
    id = abs(reference)
    if counts.answered > counts.delivered:
        row = db.execute("SELECT answers, items FROM awaited WHERE id = ?", (id,)).fetchone()
        if row is None:
            return None
        given = _given(counts, others, items)
        folded = _folded(row[0], row[1], given if reference > 0 else {None: max(given.values(), default=0)})
        db.execute("UPDATE awaited SET answers = ? WHERE id = ?", (folded, id))
    if not is_last:
        return None
    row = db.execute("UPDATE awaited SET open = open - 1 WHERE id = ? RETURNING open, input, key", (id,)).fetchone()
    return Answered(*row[1:]) if row is not None and row[0] == 0 else None


def _given(
    counts: Counts, others: Mapping[int, Outcome] | None, items: Callable[[], Collection[int] | None]
) -> Mapping[int | None, int]:
    """Ranks by item; of None: of all."""
    if others is not None:
        return {item: Ranked.of(outcome) for item, outcome in others.items()}
    worst = max(rank for rank in Ranked if getattr(counts, rank.name.lower()))
    known = items()
    return {None: worst} if known is None else dict.fromkeys(known, worst)


def _folded(before: bytes, packed: bytes | None, given: Mapping[int | None, int]) -> bytes:
    folded = bytearray(before)
    of_all = given.get(None, 0)
    places = range(len(before)) if packed is None else msgspec.msgpack.decode(packed, type=list[int])
    for at, item in enumerate(places):
        folded[at] = max(folded[at], of_all, given.get(item, 0))
    return bytes(folded)


def reconcile(db: sqlite3.Connection) -> int:
    """Deletes rows that do not agree with the entries that name them; returns how many."""
    return db.execute(
        "DELETE FROM awaited WHERE id IN (SELECT id FROM awaited LEFT JOIN (SELECT abs(awaited) AS id, count(*) AS"
        " entries FROM todo WHERE awaited != 0 GROUP BY 1) USING (id) WHERE open != coalesce(entries, 0))"
    ).rowcount
