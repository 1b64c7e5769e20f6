"""Transactions of revisions: received, the cut, barriers, drained.

The cut of revision r puts one barrier, at one new place of the sequence, into every lane that r retires. It counts the
events on that lane between the next older open barrier and itself. It is settled when it is its lane's first row: then
every event below has its final answer, and its counts must agree. r is `drained` when no barrier of r or an older
revision is open: so it implies the older ones.

A retired lane is deleted in the transaction that settles its last barrier, which runs after its connections are closed.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from shipper.process import log
from shipper.spool import contact, credentials, doubt, feeding, lineages, requests
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.queue import Moved
from shipper.spool.schema import BARRIER, get_meta, next_seq, packed_ids, set_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import (
    LARGEST_COUNT,
    Change,
    Confirmed,
    Counts,
    CredentialUse,
    Receipt,
    Revision,
    Revisions,
    receipt_of,
)

_log = log.get(__name__)


_FIRST = Revision(0, 0)


class Text(NamedTuple):
    """A policy to store: the digest of its text, the digest of its meaning, and the ids of its credentials."""

    at: Revision
    sha256: str
    meaning: str
    change: Change
    credentials: Sequence[str]
    policy: str


class Known(NamedTuple):
    """A stored revision, without its text."""

    at: Revision
    sha256: str
    meaning: str
    change: Change
    stage: str
    credentials: tuple[str, ...]
    drained: Receipt | None


class LaneKey(NamedTuple):
    """The identity of a lane: the same key in two revisions is the same lane. `credentials` are sorted, each once.

    `state`: it is of keyed state, and not of log events.
    """

    output: str
    type: str
    destination: str
    credentials: tuple[str, ...] = ()
    state: bool = False

    def with_credentials(self, ids: Iterable[str]) -> LaneKey:
        """Returns this key with these credentials."""
        return self._replace(credentials=tuple(sorted(set(ids))))

    def rebound(self, old: str, new: str) -> LaneKey:
        """Returns this key with the credential `new` in place of `old`."""
        return self.with_credentials(new if id == old else id for id in self.credentials)

    def columns(self) -> tuple[str, str, str, str]:
        """Returns the stored columns, without `pair`."""
        return (self.output, self.type, self.destination, packed_ids(self.credentials))

    @classmethod
    def of(cls, output: str, type: str, destination: str, packed: str, pair: int = 0) -> LaneKey:
        """Returns the key of stored columns; raises ValueError."""
        return cls(output, type, destination, tuple(msgspec.json.decode(packed, type=list[str])), pair != 0)


class LaneRow(NamedTuple):
    """A stored lane; `settings` is its output's configuration, None where it is damaged."""

    id: int
    key: LaneKey
    settings: LaneSettings | None
    active: bool
    confirmed: Confirmed = Confirmed.UNKNOWN
    """What the last answer for log events was worth."""
    confirmed_versions: Confirmed = Confirmed.UNKNOWN
    """The same for versions of keys."""
    is_fed: bool = True
    """Whether anything is routed to it, as far as is known: of keyed state, an input."""


class Cut(NamedTuple):
    """The result of a cut: every lane of the revision, in the order of `wanted`, and the ids of the retired lanes."""

    seq: int
    lanes: list[LaneRow]
    retired: frozenset[int]
    fed: Sequence[feeding.Fed] = ()
    """What lanes got of keyed state."""
    retracted: Sequence[Moved] = ()
    """What lanes got to delete."""


# -- texts -------------------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """The revisions from `since` on, oldest first, and the oldest stored one."""

    known: list[Known]
    oldest: Revision | None

    def has(self, at: Revision) -> bool:
        """Whether this older revision, which was stored when `since` was active, is still stored."""
        return self.oldest is not None and at >= self.oldest


def stored(db: sqlite3.Connection, since: Revision | None) -> Stored:
    """Returns the revisions from `since` on, which was active at an earlier call; older ones can only be deleted since.

    A flood of revisions over a dead destination leaves hundreds behind: reading all at each step was quadratic.
    """
    oldest = db.execute("SELECT epoch, number FROM revision ORDER BY epoch, number LIMIT 1").fetchone()
    return Stored(known(db, since), None if oldest is None else Revision(*oldest))


def known(db: sqlite3.Connection, since: Revision | None = None) -> list[Known]:
    """Returns the stored revisions, oldest first: all, or those from `since` on."""
    return _known(db, "(epoch, number) >= (?, ?) ORDER BY epoch, number", since or _FIRST)


def _known(db: sqlite3.Connection, where: str, *ats: Revision) -> list[Known]:
    rows = db.execute(
        f"SELECT epoch, number, sha256, meaning, change, stage, credentials, drained FROM revision WHERE {where}",
        [part for at in ats for part in at],
    ).fetchall()
    return [
        Known(
            Revision(epoch, number),
            sha256,
            meaning,
            change,
            stage,
            tuple(msgspec.json.decode(ids)),
            None if drained is None else receipt_of(drained),
        )
        for epoch, number, sha256, meaning, change, stage, ids, drained in rows
    ]


def _active(db: sqlite3.Connection) -> Revision:
    """Returns the active revision, or the lowest possible one: received and skipped revisions are above it."""
    active = get_meta(db, "active")
    return Revision.parse(active) if active else _FIRST


def stages(db: sqlite3.Connection) -> Revisions:
    """Returns the newest revision of each stage."""
    row = db.execute(
        "SELECT epoch, number FROM revision WHERE stage IN ('received', 'active') ORDER BY 1 DESC, 2 DESC LIMIT 1"
    ).fetchone()
    active, drained = get_meta(db, "active"), get_meta(db, "drained")
    return Revisions(
        received=Revision(*row) if row else None,
        active=Revision.parse(active) if active else None,
        drained=Revision.parse(drained) if drained else None,
    )


def receive(
    db: sqlite3.Connection,
    sealer: Sealer,
    text: Text,
    fingerprints: Mapping[str, bytes],
    skipped: Collection[Text] = (),
) -> list[Known]:
    """Stores a valid policy, and the fingerprints of its credentials. Returns the older revisions that it superseded.

    Those are received ones, also of an earlier process, and those that it `skipped`, which were never stored. Their
    numbers are used up.
    """
    for each in (*skipped, text):
        _store(db, sealer, each)
    superseded = _known(
        db,
        "stage = 'received' AND (epoch, number) >= (?, ?) AND (epoch, number) < (?, ?) ORDER BY epoch, number",
        _active(db),
        text.at,
    )
    for old in superseded:
        db.execute("UPDATE revision SET stage = 'superseded' WHERE epoch = ? AND number = ?", old.at)
    credentials.offer(db, fingerprints)
    return superseded


def _store(db: sqlite3.Connection, sealer: Sealer, text: Text) -> None:
    sealed = sealer.seal("policy", str(text.at), *text.at, text.policy.encode())
    db.execute(
        "INSERT INTO revision (epoch, number, sha256, meaning, change, stage, credentials, policy)"
        " VALUES (?, ?, ?, ?, ?, 'received', ?, ?)"
        " ON CONFLICT (epoch, number) DO UPDATE SET change = excluded.change WHERE stage = 'received'",
        (*text.at, text.sha256, text.meaning, text.change, json.dumps(sorted(text.credentials)), sealed),
    )


def forget(db: sqlite3.Connection, at: Revision) -> None:
    """Deletes a received revision that failed to start; its number is free again."""
    db.execute("DELETE FROM revision WHERE epoch = ? AND number = ? AND stage = 'received'", at)


def policy_text(db: sqlite3.Connection, sealer: Sealer, at: Revision) -> str | None:
    """Returns the stored text of a revision, or None; raises Damaged."""
    row = db.execute("SELECT policy FROM revision WHERE epoch = ? AND number = ?", at).fetchone()
    return None if row is None else sealer.open("policy", str(at), *at, row[0]).decode()


# -- the cut -----------------------------------------------------------------------------------------------------------


def cut(
    db: sqlite3.Connection,
    sealer: Sealer,
    at: Revision,
    wanted: Sequence[tuple[LaneKey, LaneSettings]],
    contacts: Mapping[str, Sequence[str]] = MappingProxyType({}),
    state: Sequence[feeding.Route] = (),
    now: float = 0.0,
) -> Cut:
    """Makes a received revision active, with these lanes; puts a barrier into every lane that it retires.

    `state` are its inputs of keyed state: new destinations are fed with all of their current keys.
    `contacts` are digests of the hosts of each output that says when it asks them (see `contact`); the lanes of others
    count as reached at once.
    """
    doubt.act(db)
    contact.judge(db)
    retracted = feeding.retract(db, sealer, now, _active(db), state)
    seq = next_seq(db)
    before = {row[0] for row in db.execute("SELECT id FROM lane WHERE active")}
    now_active = [_adopt(db, sealer, key, settings, contacts.get(key.output, ())) for key, settings in wanted]
    retired = before - {row.id for row in now_active}
    for lane in sorted(retired):
        _put_barrier(db, lane, seq, at)
    db.execute("UPDATE revision SET stage = 'active' WHERE epoch = ? AND number = ?", at)
    db.execute(
        "DELETE FROM revision WHERE stage != 'active' AND (epoch, number) >= (?, ?) AND (epoch, number) < (?, ?)",
        (*_active(db), *at),
    )
    set_meta(db, "active", str(at))
    credentials.use(db, [id for revision in known(db, at) if revision.at == at for id in revision.credentials])
    fed = feeding.feed(db, now, at, state, {row.key.output: row.id for row in now_active if row.key.state}, before)
    now_active = [row._replace(is_fed=_is_fed(db, row.id, row.key)) for row in now_active]
    return Cut(seq, now_active, frozenset(retired), fed, retracted)


def _adopt(
    db: sqlite3.Connection, sealer: Sealer, key: LaneKey, settings: LaneSettings, contacts: Sequence[str]
) -> LaneRow:
    id = _find_lane(db, key) or _insert_lane(db, key, reached=not contacts)
    db.execute("UPDATE lane SET contacts = ?, active = 1 WHERE id = ?", (packed_ids(contacts), id))
    _keep_settings(db, sealer, id, key, settings)
    events, versions = db.execute("SELECT confirmed, confirmed_versions FROM lane WHERE id = ?", (id,)).fetchone()
    return LaneRow(id, key, settings, True, Confirmed(events), Confirmed(versions))


def adopt_rebound(db: sqlite3.Connection, sealer: Sealer, lane: int, old: str, new: str) -> LaneRow:
    """Returns the lane with the credential `new` in place of `old`; makes it, retired, if absent."""
    rows = {row.id: row for row in lanes(db, sealer)}
    like = rows[lane]
    key = like.key.rebound(old, new)
    id = _find_lane(db, key)
    if id is not None:
        return rows[id]
    reached, contacts = db.execute("SELECT reached, contacts FROM lane WHERE id = ?", (lane,)).fetchone()
    id = _insert_lane(db, key, reached=bool(reached), contacts=contacts)
    settings = None if like.settings is None else like.settings.rebound(old, new)
    if settings is not None:
        _keep_settings(db, sealer, id, key, settings)
    return LaneRow(id, key, settings, False)


def _keep_settings(db: sqlite3.Connection, sealer: Sealer, lane: int, key: LaneKey, settings: LaneSettings) -> None:
    """Seals settings under the number by which the destination knows the lane."""
    number = (key.state and _find_lane(db, key._replace(state=False))) or lane
    sealed = sealer.seal("lane", number, 0, 0, settings.packed())
    db.execute("UPDATE lane SET settings = ?, pair = ? WHERE id = ?", (sealed, number if key.state else 0, lane))


def _find_lane(db: sqlite3.Connection, key: LaneKey) -> int | None:
    row = db.execute(
        "SELECT id FROM lane WHERE output = ? AND type = ? AND destination = ? AND credentials = ? AND (pair != 0) = ?",
        (*key.columns(), key.state),
    ).fetchone()
    return None if row is None else int(row[0])


def _insert_lane(db: sqlite3.Connection, key: LaneKey, *, reached: bool, contacts: str = "[]") -> int:
    row = db.execute(
        "INSERT INTO lane (output, type, destination, credentials, settings, active, reached, contacts)"
        " VALUES (?, ?, ?, ?, x'', 0, ?, ?) RETURNING id",
        (*key.columns(), reached, contacts),
    ).fetchone()
    if key.state:
        db.execute("UPDATE lane SET pair = id WHERE id = ?", row)
    return int(row[0])


def _put_barrier(db: sqlite3.Connection, lane: int, seq: int, at: Revision) -> None:
    (older,) = db.execute("SELECT coalesce(max(seq), 0) FROM barrier WHERE lane = ?", (lane,)).fetchone()
    (accepted,) = db.execute(
        "SELECT coalesce(sum(count), 0) FROM todo WHERE lane = ? AND seq > ? AND kind != ?", (lane, older, BARRIER)
    ).fetchone()
    db.execute("UPDATE lane SET active = 0 WHERE id = ?", (lane,))
    db.execute("INSERT INTO todo VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0)", (lane, seq, BARRIER, *at))
    db.execute(
        "INSERT INTO barrier (lane, seq, epoch, revision, accepted, confirmed)"
        " SELECT id, ?, ?, ?, ?, max(confirmed, confirmed_versions) FROM lane WHERE id = ?",
        (seq, *at, accepted, lane),
    )


def lanes(db: sqlite3.Connection, sealer: Sealer) -> list[LaneRow]:
    """Returns every lane, oldest first.

    Hosts are sealed together with the ids of their credentials, so that a credential goes only where a policy sent it:
    the settings of a row that names other ids are not used.
    """
    rows = db.execute(
        "SELECT output, type, destination, credentials, pair, id, active, settings, confirmed, confirmed_versions"
        " FROM lane ORDER BY id"
    )
    found = [_lane(sealer, row[4] or row[5], LaneKey.of(*row[:5]), *row[5:]) for row in rows.fetchall()]
    return [row._replace(is_fed=_is_fed(db, row.id, row.key)) for row in found]


def _is_fed(db: sqlite3.Connection, lane: int, key: LaneKey) -> bool:
    return not key.state or db.execute("SELECT 1 FROM fed WHERE lane = ?", (lane,)).fetchone() is not None


def _lane(
    sealer: Sealer, number: int, key: LaneKey, id: int, active: int, sealed: bytes, events: int, versions: int
) -> LaneRow:
    settings = _settings(sealer, number, key, sealed)
    return LaneRow(id, key, settings, bool(active), Confirmed(events), Confirmed(versions))


def _settings(sealer: Sealer, number: int, key: LaneKey, sealed: bytes) -> LaneSettings | None:
    try:
        settings = LaneSettings.unpack(sealer.open("lane", number, 0, 0, sealed))
    except Damaged:
        return None
    return settings if settings.credentials == key.credentials else None


# -- the barrier -------------------------------------------------------------------------------------------------------


def settle_barrier(
    db: sqlite3.Connection, lane: int, seq: int, *, connected: bool = False
) -> Literal["settled", "gone", "waits", "retired"]:
    """Settles a barrier of a lane that has settled everything below; `gone`: the lane was deleted too.

    `waits`: an order moves events from or to the lane, or the barrier waits for an order after damage (see `doubt`).
    `retired`: the lane is still `connected` and not active, so it must close its connections first.

    Where the place of the barrier and its counts disagree, by damage or by a bug, no credential may be revoked: it
    waits for an order. (An exception would end the process at every start.)
    """
    doubt.act(db)
    if connected and db.execute("SELECT 1 FROM lane WHERE id = ? AND active", (lane,)).fetchone() is None:
        return "retired"
    if doubt.holds(db, lane, seq) or orders_run(db, lane):
        return "waits"
    first = db.execute("SELECT seq, kind FROM todo WHERE lane = ? ORDER BY seq LIMIT 1", (lane,)).fetchone()
    row = db.execute(
        "SELECT epoch, revision, accepted, delivered, duplicate, dead_letter, dropped, damaged, superseded, confirmed"
        " FROM barrier WHERE lane = ? AND seq = ?",
        (lane, seq),
    ).fetchone()
    if row is None:
        return "settled"
    counts = Counts(*row[2:-1])
    if first != (seq, BARRIER) or counts.accepted != counts.answered:
        _log.error(
            "a barrier waits for an order, since its counts disagree", lane=lane, first=first, counts=str(counts)
        )
        doubt.hold(db, lane, seq)
        return "waits"
    db.execute("INSERT INTO settled VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("DELETE FROM barrier WHERE lane = ? AND seq = ?", (lane, seq))
    db.execute("DELETE FROM todo WHERE lane = ? AND seq = ?", (lane, seq))
    return "gone" if drop_empty_lane(db, lane) else "settled"


def orders_run(db: sqlite3.Connection, lane: int) -> bool:
    """Whether an unfinished order moves events from or to the lane."""
    return db.execute("SELECT 1 FROM standing_order WHERE ? IN (lane, target)", (lane,)).fetchone() is not None


def settle_reached(db: sqlite3.Connection, lane: int) -> bool:
    """Settles the barriers at the head of a lane that cannot be opened; returns whether the lane is gone."""
    while first := db.execute("SELECT seq, kind FROM todo WHERE lane = ? ORDER BY seq LIMIT 1", (lane,)).fetchone():
        if first[1] != BARRIER or settle_barrier(db, lane, first[0]) != "settled":
            break
    return db.execute("SELECT 1 FROM lane WHERE id = ?", (lane,)).fetchone() is None


def drop_empty_lane(db: sqlite3.Connection, lane: int) -> bool:
    """Deletes a retired lane without entries, and its settings; returns whether it was deleted."""
    gone = db.execute(
        "DELETE FROM lane WHERE id = ? AND active = 0 AND NOT EXISTS (SELECT 1 FROM todo WHERE lane = ?)", (lane, lane)
    )
    if gone.rowcount > 0:
        lineages.forget(db, lane)
        requests.forget(db, lane)
    return gone.rowcount > 0


def drained(
    db: sqlite3.Connection,
    closing: Revision | None,
    still_used: Collection[str],
    before: credentials.Before = "listed",
    most_bytes: int = LARGEST_COUNT,
) -> Receipt | None:
    """Stores `drained` for the newest revision that is drained; returns its receipt, or None if there is nothing new.

    `closing` is the oldest revision that replaced an input which is not closed yet, `still_used` are credentials of
    such inputs. The receipt lists every id released since the last ack that was written; `before` is the state of ids
    in earlier acks. The list has at most `most_bytes` as JSON.
    """
    doubt.act(db)
    row = db.execute("SELECT epoch, revision FROM barrier ORDER BY 1, 2 LIMIT 1").fetchone()
    last = stages(db).drained
    above = [last] if last is not None else []
    below = [at for at in (None if row is None else Revision(*row), closing) if at is not None]
    candidates = _known(
        db,
        f"stage = 'active'{' AND (epoch, number) > (?, ?)' * len(above)}{' AND (epoch, number) < (?, ?)' * len(below)}"
        " ORDER BY epoch DESC, number DESC LIMIT 1",
        *above,
        *below,
    )
    if not candidates:
        return None
    (top,) = candidates
    credentials.release(db, still_used)
    used = credentials.in_use(db, still_used)
    listed = credentials.listed(db, before, {*used, *credentials.named_above(db, top.at)}, most_bytes)
    use = CredentialUse(used, listed)
    receipt = _receipt(top, use, *_sum_settled(db, top.at))
    db.execute(
        "UPDATE revision SET drained = ? WHERE epoch = ? AND number = ?", (msgspec.json.encode(receipt), *top.at)
    )
    db.execute("DELETE FROM revision WHERE (epoch, number) < (?, ?)", top.at)
    set_meta(db, "drained", str(top.at))
    return receipt


def _receipt(known: Known, use: CredentialUse, ledger: Counts, confirmed: Confirmed) -> Receipt:
    epoch, number = known.at
    return Receipt(
        epoch=epoch,
        revision=number,
        sha256=known.sha256,
        change=known.change,
        credentials=use,
        ledger=ledger,
        confirms=confirmed.word,
    )


def _sum_settled(db: sqlite3.Connection, upto: Revision) -> tuple[Counts, Confirmed]:
    row = db.execute(
        "SELECT total(accepted), total(delivered), total(duplicate), total(dead_letter), total(dropped),"
        " total(damaged), total(superseded), coalesce(max(confirmed), 0) FROM settled"
        " WHERE (epoch, revision) <= (?, ?)",
        upto,
    ).fetchone()
    db.execute("DELETE FROM settled WHERE (epoch, revision) <= (?, ?)", upto)
    *counts, confirmed = map(int, row)
    return Counts(*counts), Confirmed(confirmed)
