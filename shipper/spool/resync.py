"""What a relay compares with its other side, and how they agree again. Pure functions of the database.

A key is named by its owner and its point, which says nothing about it in the clear; reads are bounded, so that a caller
pages through a hundred thousand keys. What changes between two pages is seen as a difference at worst, and sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from shipper.sdk.event import Batch
from shipper.sdk.state import Change, Mark, Version, epoch_of, point_of
from shipper.spool import feeding, keyed, lifting, places, slots, waiting
from shipper.spool.queue import Moved
from shipper.spool.schema import get_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Revision

PAGE = 5000
MOST_KEYS = 1000
"""Of one call."""
_POINTS = 1 << 64


# -- reading -----------------------------------------------------------------------------------------------------------


def inputs_of(db: sqlite3.Connection, lane: int) -> list[str]:
    """The inputs of keyed state that are routed to an active lane."""
    return [input for (input,) in db.execute("SELECT input FROM fed WHERE lane = ? ORDER BY input", (lane,))]


def of_input(db: sqlite3.Connection, input: str, after: int) -> tuple[list[Mark], int | None]:
    """Keys of one input, from the one behind `after` on; and the last one, unless it is all."""
    rows = db.execute(
        "SELECT id, owner, point, place, digest, deleted FROM keyed WHERE input = ? AND id > ? ORDER BY id LIMIT ?",
        (input, after, PAGE),
    ).fetchall()
    marks = [Mark(owner, point % _POINTS, place, digest, bool(gone)) for _, owner, point, place, digest, gone in rows]
    return marks, rows[-1][0] if len(rows) == PAGE else None


Place = tuple[str, int]
"""Of a key among those of owners: its owner, and its row."""


def of_owner(db: sqlite3.Connection, owner: str, after: Place | None) -> tuple[list[Mark], Place | None]:
    """The same of an owner and all below it, by owners and rows: those of one owner lie beside each other, mostly."""
    begun, row = after or (owner, 0)
    what = "SELECT owner, id, point, place, digest, deleted FROM keyed"
    rows = db.execute(f"{what} WHERE owner = ? AND id > ? ORDER BY id LIMIT ?", (begun, row, PAGE)).fetchall()
    below, end = max(owner + "/", begun + "\0"), owner + "0"  # the character behind the slash
    query = f"{what} WHERE owner >= ? AND owner < ? ORDER BY owner, id LIMIT ?"
    rows += db.execute(query, (below, end, PAGE - len(rows))).fetchall()
    marks = [Mark(of, point % _POINTS, place, digest, bool(gone)) for of, _, point, place, digest, gone in rows]
    return marks, rows[-1][:2] if len(rows) == PAGE else None


def versions(db: sqlite3.Connection, sealer: Sealer, keys: Sequence[tuple[str, int]]) -> list[Version]:
    """The current versions of keys that are not deleted; those that cannot be read are missing."""
    return [slots.version_in(batch) for key in keys[:MOST_KEYS] for batch in _current(db, sealer, *key)]


def documents(
    db: sqlite3.Connection, sealer: Sealer, keys: Sequence[tuple[str, int]], most: int
) -> tuple[list[tuple[Version, bytes]], int]:
    """The same with their documents, and of how many keys these are; `most` bytes, unless the first has more."""
    found: list[tuple[Version, bytes]] = []
    size = 0
    for number, key in enumerate(keys[:MOST_KEYS]):
        batches = _current(db, sealer, *key)
        size += sum(len(batch.body) for batch in batches)
        if size > most and number:
            return found, number
        found += [(slots.version_in(batch), batch.body[:-1]) for batch in batches]
    return found, len(keys[:MOST_KEYS])


def _current(db: sqlite3.Connection, sealer: Sealer, owner: str, point: int) -> list[Batch]:
    """The version at a point, mostly one; unless it is deleted, or cannot be read."""
    rows = db.execute(
        "SELECT name, place, CAST(body AS BLOB) FROM keyed WHERE owner = ? AND point = ? AND NOT deleted",
        (owner, keyed.signed(point)),
    ).fetchall()
    found: list[Batch] = []
    for name, place, body in rows:
        with suppress(Damaged):
            found.append(slots.unseal(sealer, name, place, body))
    return found


def gone(db: sqlite3.Connection, lane: int, versions: Sequence[Version]) -> list[Version]:
    """Those of these versions that are in no slot of a lane."""
    return [version for version in versions[:MOST_KEYS] if _waiting(db, lane, version) != version.place]


def _waiting(db: sqlite3.Connection, lane: int, version: Version) -> int | None:
    """The place of the version of this key that waits on a lane."""
    name = slots.name_of(version.owner, version.collection, version.key)
    row = db.execute(
        "SELECT slot.place FROM slot JOIN keyed ON keyed.id = slot.keyed WHERE name = ? AND lane = ?", (name, lane)
    ).fetchone()
    return None if row is None else int(row[0])


# -- agreeing ----------------------------------------------------------------------------------------------------------


def send_again(db: sqlite3.Connection, now: float, lane: int, keys: Sequence[tuple[str, int]]) -> list[Moved]:
    """Let the current versions of keys wait on a lane that is fed with them; one that waits there keeps its turn."""
    active = get_meta(db, "active")
    if active is None:
        return []
    moved: list[Moved] = []
    for owner, point in keys[:MOST_KEYS]:
        rows = db.execute(
            "SELECT id, place, bytes FROM keyed WHERE owner = ? AND point = ?"
            " AND EXISTS (SELECT 1 FROM fed WHERE fed.input = keyed.input AND fed.lane = ?)"
            " AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.keyed = keyed.id AND slot.lane = ?)",
            (owner, keyed.signed(point), lane, lane),
        ).fetchall()
        moved += [Moved(lane, None, waiting.insert(db, now, Revision.parse(active), lane, row)) for row in rows]
    return moved


class Claim(NamedTuple):
    """Whose word counts for keys: the input that gives them, by its name.

    `source`: it has read all that there is, so what it did not give is gone. `unread`: it will have, or which one it is
    will be known. `adopt`: nobody has them but who was sent them.
    """

    input: str
    rule: Literal["source", "unread", "adopt"]


class Decision(NamedTuple):
    """What was done of versions that a destination has: lanes have other things to do, these are wanted from there, and
    some wait until an input has read its keys."""

    moved: list[Moved]
    wanted: list[Version]
    waits: bool


def decide(
    db: sqlite3.Connection,
    sealer: Sealer,
    now: float,
    lane: int,
    surplus: Sequence[tuple[Version, Claim | None]],
    since: int,
) -> Decision:
    """Have keys agree of which a destination has a version that is not here.

    One that this directory gave was deleted since, and is deleted there. What a newer copy of this directory gave, or
    another one, follows the claim. What has a newer version here is sent again, and the last word of this process,
    whose epochs are those from `since` on, is left to its answer.
    """
    active, inputs = get_meta(db, "active"), inputs_of(db, lane)
    decision = Decision([], [], waits=False)
    if active is None or not inputs:
        return decision
    at = Revision.parse(active)
    for version, claim in surplus[:MOST_KEYS]:
        here = lifting.here(db, version)
        if here is not None and here.place >= version.place:
            key = version.owner, point_of(version.collection, version.key)
            decision.moved.extend(send_again(db, now, lane, [key]))
        elif here is None and places.has_given(db, version.owner, version.place):
            input = claim.input if claim is not None and claim.input else inputs[0]
            decision.moved.extend(lifting.bury(db, sealer, now, at, input, lane, version))
        elif claim is None or (here is not None and here.is_own and epoch_of(here.place) >= since):
            continue
        elif claim.rule == "adopt":
            decision.wanted.append(version)
        elif claim.rule == "unread":
            decision = decision._replace(waits=True)
        elif here is None:
            decision.moved.extend(lifting.bury(db, sealer, now, at, claim.input, lane, version))
        else:
            decision.moved.extend(lifting.lift(db, sealer, now, at, version))
    return decision


def adopt(
    db: sqlite3.Connection, sealer: Sealer, now: float, lane: int, changes: Sequence[tuple[Change, Claim | None]]
) -> list[Moved]:
    """Take versions that the destination of a lane has, with their places; for the other lanes that have such keys."""
    active = get_meta(db, "active")
    moved: list[Moved] = []
    for change, claim in changes[:MOST_KEYS]:
        if active is not None and claim is not None and claim.rule == "adopt":
            lanes = [each for each in feeding.lanes_of(db, claim.input) if each != lane]
            arrival = keyed.Arrival(Revision.parse(active), claim.input, lanes, ())
            moved += keyed.adopt(db, sealer, now, arrival, change)
    return moved
