"""The dead-letter store: events that a destination refused for ever, with the reason, sealed and bounded.

A letter is written in the transaction that settles its event, under the key (lane, seq, item), so a replay writes it
once. Where the store is full, the policy decides: the oldest letters are dropped and counted, or the new one is refused
and its event stays queued.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from shipper.sdk.errors import ShipperError
from shipper.sdk.state import Version
from shipper.spool.schema import get_meta, set_meta
from shipper.spool.seal import OVERHEAD_BYTES, Damaged, Sealer
from shipper.values import DeadLetterFigures, DeadLetterReason, Revision

PAGE_BYTES = 4 << 20
"""The size of letters that are opened at once; a page of a few hundred could be a few hundred MiB."""
COUNTED_LETTERS = 1000
"""The newest letters, whose reasons are counted: many reasons differ in each letter."""
MOST_REASONS = 8
LONGEST_REASON = 300
"""In characters."""


class Full(ShipperError):
    """The store is full, and by the policy events stay queued then.

    `fits` are the letters that still have room: by entry, their indexes among its letters.
    """

    def __init__(self, fits: Mapping[int, Collection[int]] | None = None) -> None:
        super().__init__("the dead-letter store is full")
        self.fits = fits or {}


class Letter(NamedTuple):
    """A rejected event: the item's number in its batch, its id, the event as JSON, the output's name and the reason.

    `index_name` is the index that the event's client named, where that is no data stream.
    """

    item: int
    id: str
    document: bytes
    output: str
    reason: str
    index_name: str | None = None
    version: Version | None = None
    """Of keyed state."""


class Content(NamedTuple):
    """The sealed part of a letter: the event's id, the index that its client named, and the event as JSON; of keyed
    state also its version."""

    id: str
    index_name: str | None
    document: bytes
    version: Version | None = None


class Limits(NamedTuple):
    """The size of the store, and the action when it is full."""

    max_bytes: int = 256 << 20
    when_full: Literal["drop_oldest", "hold"] = "drop_oldest"


def add(
    db: sqlite3.Connection,
    sealer: Sealer,
    lane: int,
    revision: Revision,
    seq: int,
    letters: Sequence[Letter],
    limits: Limits,
    now: float,
) -> int:
    """Stores letters; returns how many old ones were dropped for them. Raises Full."""
    if not letters:
        return 0
    held = held_bytes(db)
    for letter in letters:
        row = f"{lane}:{seq}:{letter.item}"
        body = sealer.seal("dead_letter", row, *revision, _plain(letter))
        cursor = db.execute(
            "INSERT OR IGNORE INTO dead_letter (lane, seq, item, output, at, reason, bytes, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (lane, seq, letter.item, letter.output, now, f"{revision} {letter.reason}", len(body), body),
        )
        held += len(body) * cursor.rowcount
    if held > limits.max_bytes and limits.when_full == "hold":
        raise Full
    dropped = 0
    while held > limits.max_bytes:
        oldest = db.execute("SELECT id, bytes FROM dead_letter ORDER BY id LIMIT 1").fetchone()
        if oldest is None:  # a repair lost rows that were counted
            held = 0
            break
        db.execute("DELETE FROM dead_letter WHERE id = ?", (oldest[0],))
        held -= oldest[1]
        dropped += 1
    set_meta(db, "dead_letter_bytes", held)
    return dropped


def fitting(db: sqlite3.Connection, letters: Sequence[Letter], limits: Limits) -> int:
    """Returns how many of these, from the first on, `add` stores without raising Full."""
    if limits.when_full == "drop_oldest":
        return len(letters)
    room = limits.max_bytes - held_bytes(db)
    return sum(size <= room for size in accumulate(OVERHEAD_BYTES + len(_plain(letter)) for letter in letters))


def check_room(db: sqlite3.Connection, wanted: Mapping[int, Sequence[Letter]], limits: Limits) -> None:
    """Raises Full unless `add` can store all these letters, by entry; `Full.fits` are those that it can store."""
    if limits.when_full == "drop_oldest":
        return
    room = limits.max_bytes - held_bytes(db)
    fits: dict[int, list[int]] = {seq: [] for seq in wanted}
    for seq, letters in wanted.items():
        for number, letter in enumerate(letters):
            size = OVERHEAD_BYTES + len(_plain(letter))
            if size <= room:
                fits[seq].append(number)
                room -= size
    if any(len(fits[seq]) < len(letters) for seq, letters in wanted.items()):
        raise Full(fits)


def _plain(letter: Letter) -> bytes:
    head: list[Any] = [letter.id] if letter.index_name is None else [letter.id, letter.index_name]
    if letter.version is not None:
        head = [letter.id, letter.index_name, letter.version]
    return msgspec.json.encode(head) + b"\n" + letter.document


def content(sealer: Sealer, place: tuple[int, int, int], revision: Revision, body: bytes) -> Content:
    """Returns the opened body of the letter at (lane, seq, item); raises Damaged."""
    head, _, document = sealer.open("dead_letter", ":".join(map(str, place)), *revision, body).partition(b"\n")
    id, index_name, version = [*orjson.loads(head), None, None][:3]
    return Content(id, index_name, document, None if version is None else msgspec.convert(version, Version))


def held_bytes(db: sqlite3.Connection) -> int:
    """Returns the bytes that count against `Limits.max_bytes`."""
    return int(get_meta(db, "dead_letter_bytes") or 0)


def figures(db: sqlite3.Connection, now: float) -> DeadLetterFigures:
    """Returns the number of letters, their bytes, and the age of the oldest in seconds."""
    count, held, oldest = db.execute("SELECT count(*), total(bytes), min(at) FROM dead_letter").fetchone()
    return DeadLetterFigures(count, int(held), round(max(0.0, now - oldest), 3) if count else 0.0)


def reasons(db: sqlite3.Connection, now: float) -> list[DeadLetterReason]:
    """Returns the reasons of the newest letters by output, the most frequent first; a few, whatever is stored."""
    rows = db.execute(
        "SELECT output, substr(reason, instr(reason, ' ') + 1, ?) AS why, count(*) AS letters, max(at) FROM"
        " (SELECT output, reason, at FROM dead_letter ORDER BY id DESC LIMIT ?)"
        " GROUP BY output, why ORDER BY letters DESC, output, why LIMIT ?",
        (LONGEST_REASON, COUNTED_LETTERS, MOST_REASONS),
    ).fetchall()
    return [DeadLetterReason(output, reason, count, round(max(0.0, now - at), 3)) for output, reason, count, at in rows]


def page(db: sqlite3.Connection, sealer: Sealer, after: int, limit: int) -> list[dict[str, Any]]:
    """Returns opened letters above the id `after`, oldest first; a damaged one has an error in place of its event.

    At most `limit`, and fewer where they are large; none only at the end.
    The event is the stored JSON text, since parsing and writing a number of 20 digits would change it.
    """
    rows = db.execute(
        "SELECT id, lane, seq, item, output, at, reason, body FROM dead_letter WHERE id > ? ORDER BY id LIMIT ?",
        (after, limit),
    )
    opened, size = [], 0
    for row in rows:
        opened.append(_opened(sealer, row))
        size += len(row[-1])
        if size >= PAGE_BYTES:
            break
    rows.close()
    return opened


def _opened(sealer: Sealer, row: tuple[int, int, int, int, str, float, str, bytes]) -> dict[str, Any]:
    id, lane, seq, item, output, at, noted, body = row
    code, _, reason = noted.partition(" ")
    revision = Revision.parse(code)
    letter: dict[str, Any] = {"id": id, "output": output, "at": at, "revision": list(revision), "reason": reason}
    try:
        opened = content(sealer, (lane, seq, item), revision, body)
    except Damaged:
        return {**letter, "damaged": True}
    named = {} if opened.index_name is None else {"index": opened.index_name}
    return {
        **letter,
        "event_id": opened.id,
        **named,
        **_state(opened.version),
        "event": orjson.Fragment(opened.document),
    }


def _state(version: Version | None) -> dict[str, Any]:
    if version is None:
        return {}
    owner, collection, key, place, _, deleted = version
    named = {"owner": owner, "collection": collection, "key": key, "place": place, "deleted": deleted}
    return {"state": named}


def delete(db: sqlite3.Connection, upto: int) -> int:
    """Deletes the letters up to and including this id; returns how many there were."""
    return _delete(db, "id <= ?", upto)


def remove(db: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Deletes the letters with these ids."""
    _delete(db, "id IN (SELECT value FROM json_each(?))", orjson.dumps(ids).decode())


def _delete(db: sqlite3.Connection, where: str, value: int | str) -> int:
    (freed,) = db.execute(f"SELECT total(bytes) FROM dead_letter WHERE {where}", (value,)).fetchone()
    set_meta(db, "dead_letter_bytes", max(0, held_bytes(db) - int(freed)))
    return db.execute(f"DELETE FROM dead_letter WHERE {where}", (value,)).rowcount
