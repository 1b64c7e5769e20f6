"""Transactions of keyed state: versions are admitted, and fed to new destinations. Pure functions of the database.

A key has one current version, and on each lane that it is to go to at most one slot, so what is stored grows with keys
and with unsettled destinations, never with updates. What a newer version does to a slot that waits:

- of another destination, that is to have the old version (a retired lane): the slot keeps it, as a copy;
- of the same destination under another credential: it is superseded, since the new version is durable for that
  destination, on a lane that is in use;
- of the same lane, not handed out yet and below no barrier: it takes the new version in its place and its turn;
- of the same lane otherwise: it is superseded, and a new slot stands at the end. So the new version waits neither for
  an answer for the old one, nor below a barrier that does not count it.

What another input says of a key is a new version, also if it is the same: the lanes of that one may not have it.

A hot key thus goes once round with all others, however often it changes: its slot has its turn as long as it waits, and
comes last once it was handed out. The answer for a version whose slot is gone counts no more.

Places are given by a counter that begins at each start with a new epoch (`begin`): above those that are stored, the
clock in seconds, and those that destinations have reported. A database that went back gives other places than before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shipper.sdk.state import (
    LARGEST_PLACE,
    Change,
    Kept,
    Quota,
    Version,
    digest_of,
    digest_of_names,
    epoch_of,
    place_of,
    point_of,
)
from shipper.spool import holdings, keyed_answers, queue, slots
from shipper.spool.queue import Entry, Moved, NotActive, Settled, Settlement
from shipper.spool.schema import SLOT, get_meta, next_seq, set_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Counts, Revision, StateFigures

NAME_BYTES = 16
_LARGEST_SEQUENCE = 2**31 - 1
_LARGEST_EPOCH = epoch_of(LARGEST_PLACE)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Changes that enter together, in one transaction.

    `fronts`: by lane, the newest entry that was handed out; of a lane that is not there, all may have been.
    """

    revision: Revision
    input: str
    lanes: Sequence[int]
    changes: Sequence[Change]
    positions: Mapping[str, bytes | None] = field(default_factory=dict)
    expect: Mapping[str, bytes | None] = field(default_factory=dict)
    fronts: Mapping[int, int] = field(default_factory=dict)
    quota: Quota | None = None
    """Of each owner of these changes, with all owners below it (`owner/…`)."""
    awaited: bool = False
    """Whether the final answers for these versions are to be kept: see `keyed_answers`."""


class Admitted(NamedTuple):
    """The answers for changes, and what lanes have to do since."""

    kept: tuple[Kept, ...]
    moved: list[Moved]


class _Key(NamedTuple):
    """A key as it is stored."""

    id: int
    input: str
    place: int
    digest: bytes
    deleted: bool
    size: int


class _Slot(NamedTuple):
    """A slot of a key, with its lane's destination; `is_copy`: its version is not the current one."""

    lane: int
    seq: int
    is_copy: bool
    destination: tuple[str, str, str]


def signed(point: int) -> int:
    """A point as a column holds it."""
    return point - (1 << 64) if point >> 63 else point


def name_of(owner: str, collection: str, key: str) -> bytes:
    """The digest that names a key; as long as the origin of a batch, since it is that of its versions' ids."""
    return digest_of_names(owner, collection, key)[:NAME_BYTES]


# -- places ------------------------------------------------------------------------------------------------------------


def begin(db: sqlite3.Connection, now: float) -> int:
    """Begin a new epoch of places; returns it."""
    (highest,) = db.execute("SELECT coalesce(max(place), 0) FROM keyed WHERE owner = ''").fetchone()
    epoch = max(int(get_meta(db, "place_epoch") or 0), int(now), epoch_of(highest)) + 1
    return _set_epoch(db, epoch)


def has_given(db: sqlite3.Connection, owner: str, place: int) -> bool:
    """Whether this directory has given the place to a key of the owner; not a newer copy of it, or another one.

    Another shipper that started in the same second has the same epoch: so it is also asked who writes the owner's keys.
    """
    epoch, sequence = epoch_of(place), place - place_of(epoch_of(place), 0)
    if epoch == int(get_meta(db, "place_epoch") or 0):
        last = int(get_meta(db, "place_sequence") or 0)
    else:
        (last,) = db.execute("SELECT last FROM place_epoch WHERE epoch = ?", (epoch,)).fetchone() or (-1,)
    return sequence <= last and (not owner or _gives(db, owner))


def _gives(db: sqlite3.Connection, owner: str) -> bool:
    """Whether places of an owner's keys are given here: those of a program at a door, and not of a shipper's."""
    return db.execute("SELECT 1 FROM keyed WHERE owner = ? AND own LIMIT 1", (owner,)).fetchone() is not None


def raise_above(db: sqlite3.Connection, place: int) -> bool:
    """Have all places that are given from now on be above this one; False if there are none."""
    if epoch_of(place) >= _LARGEST_EPOCH:
        return False
    if place >= place_of(int(get_meta(db, "place_epoch") or 0), int(get_meta(db, "place_sequence") or 0)):
        _set_epoch(db, epoch_of(place) + 1)
    return True


def _set_epoch(db: sqlite3.Connection, epoch: int) -> int:
    epoch = min(epoch, _LARGEST_EPOCH)
    ended = int(get_meta(db, "place_epoch") or 0), min(int(get_meta(db, "place_sequence") or 0), _LARGEST_SEQUENCE)
    db.execute("UPDATE place_epoch SET last = ? WHERE epoch = ?", ended[::-1])
    set_meta(db, "place_epoch", epoch)
    set_meta(db, "place_sequence", 0)
    db.execute("INSERT OR IGNORE INTO place_epoch (epoch) VALUES (?)", (epoch,))
    return epoch


def _next_place(db: sqlite3.Connection, above: int) -> int:
    raise_above(db, above)
    row = db.execute("UPDATE meta SET value = value + 1 WHERE key = 'place_sequence' RETURNING value").fetchone()
    if row[0] > _LARGEST_SEQUENCE:
        _set_epoch(db, int(get_meta(db, "place_epoch")) + 1)
        return _next_place(db, above)
    return place_of(int(get_meta(db, "place_epoch")), row[0])


# -- admission ---------------------------------------------------------------------------------------------------------


def keep(db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival) -> Admitted:
    """Admit changes, and store the input's positions. Raises NotActive or Outdated, and has stored nothing then."""
    if get_meta(db, "active") != str(arrival.revision):
        raise NotActive
    queue.require_positions(db, arrival.input, arrival.expect)
    moved: list[Moved] = []
    kept = tuple([_keep(db, sealer, now, arrival, change, moved) for change in arrival.changes])
    queue.set_positions(db, arrival.input, arrival.positions)
    return Admitted(kept, moved)


def _keep(
    db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, change: Change, moved: list[Moved]
) -> Kept:
    name = name_of(change.owner, change.collection, change.key)
    row = db.execute("SELECT id, input, place, digest, deleted, bytes FROM keyed WHERE name = ?", (name,)).fetchone()
    has = None if row is None else _Key(*row)
    known = _known(has, change)
    is_from_another = has is not None and known is not None and not known.fenced and has.input != arrival.input
    if known is not None and not is_from_another:
        is_here = has is not None and change.place is not None and not known.fenced
        return _again(db, now, arrival, has, change, known, moved) if has is not None and is_here else known
    place = change.place if change.place is not None else _next_place(db, 0 if has is None else has.place)
    version = slots.version_of(change, place)
    new = _Admission(name, has, version, change.document, change.place is None)
    if not _has_room(db, arrival.quota, new):
        return Kept(place, version.digest, False, False, is_full=True)
    _admit(db, sealer, now, arrival, new, moved)
    kept = Kept(place, version.digest, known is None or change.place is None, False)
    return keyed_answers.with_answers(db, arrival.input, version, kept) if arrival.awaited else kept


def _again(
    db: sqlite3.Connection, now: float, arrival: Arrival, has: _Key, change: Change, known: Kept, moved: list[Moved]
) -> Kept:
    """The answer for a version that came again. Where its answers are lost, as by damage, it is sent once more."""
    if arrival.awaited and not keyed_answers.is_awaited(db, has.input, change, has.place):
        reference = keyed_answers.add(db, has.input, change, has.place, len(arrival.lanes))
        there = {slot.lane: slot for slot in _slots(db, has.id)}
        for lane in arrival.lanes:
            slot = there.get(lane)
            if slot is None or slot.is_copy:
                waits = has.id, has.place, has.size
                moved.append(_put(db, now, arrival, lane, slot, waits, reference))
            else:
                db.execute("UPDATE todo SET awaited = ? WHERE lane = ? AND seq = ?", (reference, lane, slot.seq))
    return keyed_answers.with_answers(db, has.input, change, known)


def _known(has: _Key | None, change: Change) -> Kept | None:
    """The answer for a change that is no new version; None: it is one.

    The deletion of a key that is not here is one where a program wants it: a destination may have the key, though this
    directory has lost it. An input of own keys knows what it has given.
    """
    digest = digest_of(change.document)
    if has is None:
        is_nothing = change.place is None and change.document is None and not change.owner
        return Kept(0, digest, False, False) if is_nothing else None
    is_same = has.digest == digest and bool(has.deleted) == (change.document is None)
    if change.place is None:
        return Kept(has.place, digest, False, False) if is_same else None
    if change.place > has.place:
        return None
    return Kept(has.place, has.digest, False, change.place < has.place or not is_same)


class _Admission(NamedTuple):
    """A new version of a key, and what the key `has` so far."""

    name: bytes
    has: _Key | None
    version: Version
    document: bytes | None
    is_own: bool = True
    """Whether its place was given here."""


def _has_room(db: sqlite3.Connection, quota: Quota | None, new: _Admission) -> bool:
    """Whether an owner may have this too; the deletion of a key that is there always."""
    if quota is None:
        return True
    before = None if new.has is None else _held(new.has)
    size = None if new.document is None else len(new.document)
    return holdings.has_room(db, quota, new.version.owner, before, size)


def _held(has: _Key | None) -> Quota:
    """What a key counts for, as it is so far."""
    return Quota(0, 0) if has is None or has.deleted else Quota(1, has.size)


def _admit(
    db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, new: _Admission, moved: list[Moved]
) -> None:
    there = [] if new.has is None else _slots(db, new.has.id)
    mine = {slot.lane: slot for slot in there if slot.lane in arrival.lanes}
    others = [slot for slot in there if slot.lane not in arrival.lanes]
    places = _destinations(db, arrival.lanes) if others else frozenset()
    elsewhere = [slot for slot in others if slot.destination not in places]
    _keep_old(db, [slot for slot in elsewhere if not slot.is_copy])
    reference = _await(db, arrival, new)
    id, size = _store(db, sealer, arrival.input, new)
    for slot in others:
        if slot.destination in places:
            moved.append(Moved(slot.lane, _supersede(db, slot.lane, slot.seq), None))
    for lane in arrival.lanes:
        moved.append(_put(db, now, arrival, lane, mine.get(lane), (id, new.version.place, size), reference))
    holdings.settled(db, id)


def _await(db: sqlite3.Connection, arrival: Arrival, new: _Admission) -> int:
    """Have the answers for a new version kept, and not those for the one before; what its entries name for that."""
    if new.has is not None:
        keyed_answers.forget(db, new.has.input, new.version, new.has.place)
    if not arrival.awaited:
        return 0
    return keyed_answers.add(db, arrival.input, new.version, new.version.place, len(arrival.lanes))


def _slots(db: sqlite3.Connection, id: int) -> list[_Slot]:
    rows = db.execute(
        "SELECT slot.lane, seq, body IS NOT NULL, output, type, destination FROM slot JOIN lane ON lane.id = slot.lane"
        " WHERE keyed = ?",
        (id,),
    ).fetchall()
    return [_Slot(lane, seq, bool(is_copy), (output, type, to)) for lane, seq, is_copy, output, type, to in rows]


def _destinations(db: sqlite3.Connection, lanes: Collection[int]) -> frozenset[tuple[str, str, str]]:
    """Where lanes go, whichever credential they have."""
    rows = [db.execute("SELECT output, type, destination FROM lane WHERE id = ?", (id,)).fetchone() for id in lanes]
    return frozenset(tuple(row) for row in rows if row is not None)


def _keep_old(db: sqlite3.Connection, those: Sequence[_Slot]) -> None:
    """Give slots the current version as a copy of their own."""
    for slot in those:
        db.execute(
            "UPDATE slot SET body = (SELECT body FROM keyed WHERE id = slot.keyed) WHERE lane = ? AND seq = ?",
            (slot.lane, slot.seq),
        )


def _store(db: sqlite3.Connection, sealer: Sealer, input: str, new: _Admission) -> tuple[int, int]:
    """Make it the current version; the id of its key, and what its body takes, in bytes."""
    version = new.version
    sealed = slots.seal(sealer, new.name, version, new.document)
    values = (version.place, version.digest, version.deleted, new.is_own, len(sealed), sealed)
    held = Quota(0, 0) if version.deleted else Quota(1, len(sealed))
    holdings.note(db, version.owner, _held(new.has), held, known=new.has is None)
    if new.has is not None:
        db.execute(
            "UPDATE keyed SET place = ?, digest = ?, deleted = ?, own = iif(own = 1, 1, 2) * ?, bytes = ?, body = ?,"
            " settled = NULL WHERE id = ?",
            (*values, new.has.id),
        )
        if new.has.input != input:
            db.execute("UPDATE keyed SET input = ? WHERE id = ?", (input, new.has.id))
        return new.has.id, len(sealed)
    point = signed(point_of(version.collection, version.key))
    row = db.execute(
        "INSERT INTO keyed (name, owner, collection, point, input, place, digest, deleted, own, bytes, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        (new.name, version.owner, version.collection, point, input, *values),
    ).fetchone()
    return int(row[0]), len(sealed)


def _supersede(db: sqlite3.Connection, lane: int, seq: int) -> Entry:
    """Take a slot away, since a newer version is durable for its destination; the key stays, whatever it has."""
    entry = _entry(db, lane, seq)
    queue.count_answers(db, lane, seq, Counts(superseded=1))
    db.execute("DELETE FROM todo WHERE lane = ? AND seq = ?", (lane, seq))
    db.execute("DELETE FROM slot WHERE lane = ? AND seq = ?", (lane, seq))
    return entry


def _entry(db: sqlite3.Connection, lane: int, seq: int) -> Entry:
    row = db.execute(
        "SELECT seq, kind, epoch, revision, count, bytes, at FROM todo WHERE lane = ? AND seq = ?", (lane, seq)
    ).fetchone()
    return queue.entry_of(row)


def _put(
    db: sqlite3.Connection,
    now: float,
    arrival: Arrival,
    lane: int,
    slot: _Slot | None,
    new: tuple[int, int, int],
    reference: int,
) -> Moved:
    """Let the new version (key, place, size) wait on a lane, in the slot that is there if that keeps its turn.

    `reference` is the id of its row of answers, or 0.
    """
    _, place, size = new
    if slot is None:
        return Moved(lane, None, _insert(db, now, arrival.revision, lane, new, reference))
    if slot.seq <= arrival.fronts.get(lane, slot.seq) or _is_below_barrier(db, lane, slot.seq):
        return Moved(lane, _supersede(db, lane, slot.seq), _insert(db, now, arrival.revision, lane, new, reference))
    gone = _entry(db, lane, slot.seq)
    db.execute("UPDATE slot SET place = ?, body = NULL WHERE lane = ? AND seq = ?", (place, lane, slot.seq))
    db.execute(
        "UPDATE todo SET epoch = ?, revision = ?, bytes = ?, awaited = ? WHERE lane = ? AND seq = ?",
        (*arrival.revision, size, reference, lane, slot.seq),
    )
    return Moved(lane, gone, gone._replace(revision=arrival.revision, size=size))


def _is_below_barrier(db: sqlite3.Connection, lane: int, seq: int) -> bool:
    return db.execute("SELECT 1 FROM barrier WHERE lane = ? AND seq > ?", (lane, seq)).fetchone() is not None


def _insert(
    db: sqlite3.Connection, now: float, revision: Revision, lane: int, new: tuple[int, int, int], reference: int = 0
) -> Entry:
    id, place, size = new
    seq = next_seq(db)
    db.execute("INSERT INTO slot VALUES (?, ?, ?, ?, NULL)", (lane, seq, id, place))
    db.execute(
        "INSERT INTO todo VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?)", (lane, seq, SLOT, *revision, size, now, reference)
    )
    return Entry(seq, SLOT, revision, 1, size, now)


# -- after a fence -----------------------------------------------------------------------------------------------------


def reissue(
    db: sqlite3.Connection, sealer: Sealer, now: float, lane: int, seq: int, settlement: Settlement, since: int
) -> list[Moved]:
    """Give the version that a settlement is about a place above the destination's fence, if it is to be had there.

    That is the last word of this process, whose epochs are those from `since` on, about an own key; and the destination
    is one of the active revision. It goes to all that its input feeds, and supersedes what is in the slot. Of any other
    version the destination has a newer one. What is said of own keys later is above the fence in any case.
    """
    if settlement.fence is None:
        return []
    fence, _ = settlement.fence
    row = db.execute(
        "SELECT name, keyed.id, input, keyed.place, digest, deleted, keyed.bytes, keyed.body FROM slot"
        " JOIN keyed ON keyed.id = slot.keyed WHERE lane = ? AND seq = ? AND slot.place = ?"
        " AND keyed.place = slot.place AND own",
        (lane, seq, settlement.place),
    ).fetchone()
    active = get_meta(db, "active")
    if row is None or active is None:
        return []
    name, has, body = row[0], _Key(*row[1:-1]), row[-1]
    lanes = lanes_of(db, has.input)
    is_active = not _destinations(db, [lane]).isdisjoint(_destinations(db, lanes))
    if not raise_above(db, max(fence, has.place)) or epoch_of(has.place) < since or not is_active:
        return []
    return _give_again(db, sealer, now, Arrival(Revision.parse(active), has.input, lanes, ()), (name, has, body), fence)


def lanes_of(db: sqlite3.Connection, input: str) -> list[int]:
    """The active lanes that an input is routed to."""
    return [lane for (lane,) in db.execute("SELECT lane FROM fed WHERE input = ? AND lane ORDER BY lane", (input,))]


def _give_again(
    db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, stored: tuple[bytes, _Key, bytes], above: int
) -> list[Moved]:
    """Give the current version of a key (its name, what it has, and its body) another place, above this one."""
    name, has, body = stored
    try:
        batch = slots.unseal(sealer, name, has.place, body)
    except Damaged:
        return []
    version = slots.version_in(batch)
    again = version._replace(place=_next_place(db, max(above, has.place)))
    document, moved = None if version.deleted else batch.body[:-1], list[Moved]()
    _admit(db, sealer, now, arrival, _Admission(name, has, again, document), moved)
    return moved


# -- the cut -----------------------------------------------------------------------------------------------------------


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
    gone = version._replace(place=_next_place(db, version.place), digest=digest_of(None), deleted=True)
    _admit(db, sealer, now, arrival, _Admission(name, _Key(id, *row[1:-1]), gone, None), moved)


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
    has = {(place, input) for lane, input in known for place in _destinations(db, [lane])}
    wanted = sorted({(lanes[output], route.input) for route in routes for output in route.outputs})
    given = []
    for lane, input in wanted:
        (place,) = _destinations(db, [lane])
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
    return [_supersede(db, lane, seq) for (seq,) in rows]


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


# -- figures -----------------------------------------------------------------------------------------------------------


def figures(db: sqlite3.Connection) -> StateFigures:
    """Counted over indexes: some milliseconds for 100,000 keys."""
    return StateFigures(*db.execute("SELECT (SELECT count(*) FROM keyed), (SELECT count(*) FROM slot)").fetchone())


# -- orders ------------------------------------------------------------------------------------------------------------


def make_way(db: sqlite3.Connection, source: int, target: int, seq: int) -> tuple[Counts | None, Settled | None]:
    """Before an order moves a slot to another lane: the final answer that it gets instead, and what gave way to it.

    No version passes a newer one: where the target has one to do, or was fed with one, the slot is superseded. Where
    the same version waits at the target, the slot that is moved takes its place: the barrier that moves with it has to
    wait for the answer.
    """
    row = db.execute(
        "SELECT keyed, slot.place, keyed.place, input FROM slot JOIN keyed ON keyed.id = slot.keyed"
        " WHERE lane = ? AND seq = ?",
        (source, seq),
    ).fetchone()
    if row is None:
        return None, None  # it is damaged, which shows where it is sent
    id, place, current, input = row
    there = db.execute("SELECT seq, place FROM slot WHERE keyed = ? AND lane = ?", (id, target)).fetchone()
    if there is not None and there[1] <= place:
        if there[1] == place:
            keyed_answers.give_way(db, (target, there[0]), (source, seq))
        return None, Settled(_supersede(db, target, there[0]), frozenset(), None, 0, 0)
    if there is not None:
        return Counts(superseded=1), None
    is_same = not _destinations(db, [source]).isdisjoint(_destinations(db, [target]))
    is_fed = db.execute("SELECT 1 FROM fed WHERE lane = ? AND input = ?", (target, input)).fetchone() is not None
    if not is_fed or is_same:
        return None, None
    return Counts(superseded=1) if current > place else Counts(duplicate=1), None


# -- dead letters ------------------------------------------------------------------------------------------------------


def again(db: sqlite3.Connection, now: float, at: Revision, lane: int, version: Version) -> Entry | None:
    """Let the current version of a key wait on a lane, instead of one that was refused there.

    None where a version waits there already, or the key is forgotten, since it is deleted.
    """
    name = name_of(version.owner, version.collection, version.key)
    row = db.execute("SELECT id, place, bytes FROM keyed WHERE name = ?", (name,)).fetchone()
    if row is None or db.execute("SELECT 1 FROM slot WHERE keyed = ? AND lane = ?", (row[0], lane)).fetchone():
        return None
    return _insert(db, now, at, lane, row)


# -- at a resync -------------------------------------------------------------------------------------------------------


class Here(NamedTuple):
    """What is here of a key, deleted or not."""

    input: str
    place: int
    is_own: bool


def here(db: sqlite3.Connection, version: Version) -> Here | None:
    """What is here of the key of a version."""
    name = name_of(version.owner, version.collection, version.key)
    row = db.execute("SELECT input, place, own FROM keyed WHERE name = ?", (name,)).fetchone()
    return None if row is None else Here(row[0], row[1], bool(row[2]))


def lift(db: sqlite3.Connection, sealer: Sealer, now: float, at: Revision, version: Version) -> list[Moved]:
    """Give the current version of the key of a version a place above that."""
    name = name_of(version.owner, version.collection, version.key)
    row = db.execute(
        "SELECT id, input, place, digest, deleted, bytes, body FROM keyed WHERE name = ?", (name,)
    ).fetchone()
    if row is None or not raise_above(db, version.place):
        return []
    has = _Key(*row[:-1])
    arrival = Arrival(at, has.input, lanes_of(db, has.input), ())
    return _give_again(db, sealer, now, arrival, (name, has, row[-1]), version.place)


def adopt(db: sqlite3.Connection, sealer: Sealer, now: float, arrival: Arrival, change: Change) -> list[Moved]:
    """Take a version that a destination has under its place, unless a newer one is here."""
    moved: list[Moved] = []
    _keep(db, sealer, now, arrival, change, moved)
    return moved


def wait(db: sqlite3.Connection, now: float, at: Revision, lane: int, key: tuple[int, int, int]) -> Entry:
    """Let the current version of a key (id, place, size) wait on a lane where it has no slot."""
    return _insert(db, now, at, lane, key)


def bury(
    db: sqlite3.Connection, sealer: Sealer, now: float, at: Revision, input: str, lane: int, version: Version
) -> list[Moved]:
    """Delete a key that is not here at a destination that has this version of it."""
    if not raise_above(db, version.place):
        return []
    change = Change(version.collection, version.key, None, version.owner)
    deletion = slots.version_of(change, _next_place(db, version.place))
    name = name_of(deletion.owner, deletion.collection, deletion.key)
    moved: list[Moved] = []
    _admit(db, sealer, now, Arrival(at, input, [lane], ()), _Admission(name, None, deletion, None), moved)
    return moved


# -- after damage ------------------------------------------------------------------------------------------------------


def restore(db: sqlite3.Connection, at: Revision) -> None:
    """Slots whose entries were lost are to be settled again; those of lanes that are lost are gone with them."""
    db.execute("DELETE FROM slot WHERE lane NOT IN (SELECT id FROM lane)")
    db.execute(
        "INSERT OR IGNORE INTO todo SELECT lane, seq, ?, ?, ?, 1, bytes,"
        " coalesce((SELECT max(at) FROM todo WHERE kind = ?), 0.0), 0 FROM slot JOIN keyed ON keyed.id = slot.keyed",
        (SLOT, *at, SLOT),
    )
