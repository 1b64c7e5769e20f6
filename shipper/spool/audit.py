"""Deletes impossible rows when a spool is opened, and reports them as lost.

Bodies, settings and texts are sealed, so damage shows when they are opened. Numbers, ids and words are not, and SQLite
has no checksums for its pages: a flipped bit there would end every start with an exception (`"stage": "actire"`), or be
believed (a barrier of revision 258). So the small tables are read once: each value is checked by a rule, and rows are
compared with one another. A plausible wrong value is not found; but where counts disagree, the barrier holds
(`revisions.settle_barrier`).

Rejected: a checksum for every row. Each settled batch changes rows of `todo` and `barrier`, and would pay for it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shipper.sdk.origins import ORIGIN_BYTES
from shipper.spool import awaited, requests
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.report import Report
from shipper.spool.schema import get_meta, packed_ids, set_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import LARGEST_COUNT, Confirmed, Revision, receipt_of

Rule = Callable[[Any], bool]

_LARGEST = 2**62
"""The highest plausible count; sums of a few such do not overflow in SQLite."""


def _is_revision_part(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _LARGEST


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_ids(value: Any) -> bool:
    try:
        msgspec.json.decode(value, type=list[str])
    except (msgspec.MsgspecError, TypeError, ValueError):
        return False
    return True


def _is_numbers(value: Any) -> bool:
    try:
        msgspec.json.decode(value, type=list[int])
    except (msgspec.MsgspecError, TypeError, ValueError):
        return False
    return True


def _is_items(value: Any) -> bool:
    try:
        msgspec.msgpack.decode(value, type=list[int])
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return False
    return True


def _is_parts(value: Any) -> bool:
    try:
        return all(part.seq > 0 and 0 <= part.first <= part.last for part in requests.read_parts(value))
    except (msgspec.MsgspecError, TypeError, ValueError):
        return False


def _is_receipt(value: Any) -> bool:
    try:
        return value is None or bool(receipt_of(value))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return False


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _among(*words: object) -> Rule:
    return lambda value: value in words


_is_confirmed = _among(*map(int, Confirmed))
_AT: Mapping[str, Rule] = {"epoch": _is_revision_part, "revision": _is_revision_part}
_COUNTS = dict.fromkeys(
    ("accepted", "delivered", "duplicate", "dead_letter", "dropped", "damaged", "superseded"), _is_count
)
_RULES: Mapping[str, Mapping[str, Rule]] = {
    "revision": {
        "epoch": _is_revision_part,
        "number": _is_revision_part,
        "sha256": _is_text,
        "meaning": _is_text,
        "change": _among("none", "live", "barrier"),
        "stage": _among("received", "active", "superseded"),
        "credentials": _is_ids,
        "policy": _is_bytes,
        "drained": _is_receipt,
    },
    "lane": {
        "id": _is_count,
        "output": _is_text,
        "type": _is_text,
        "destination": _is_text,
        "credentials": _is_ids,
        "settings": _is_bytes,
        "active": _among(0, 1),
        "reached": _among(0, 1),
        "confirmed": _is_confirmed,
        "confirmed_versions": _is_confirmed,
        "pair": _is_count,
    },
    "barrier": {
        "lane": _is_count,
        "seq": _is_count,
        **_AT,
        **_COUNTS,
        "waited": _is_number,
        "confirmed": _is_confirmed,
    },
    "settled": {**_AT, **_COUNTS, "confirmed": _is_confirmed},
    "credential": {
        "id": _is_text,
        "fingerprint": _is_bytes,
        "state": _among("offered", "used", "released", "listed", "reported"),
    },
    "standing_order": {
        "id": _is_count,
        "name": _among("rebind", "forward", "dead_letter", "drop"),
        "lane": _is_count,
        "target": _or_none(_is_count),
        "epoch": _or_none(_is_revision_part),
        "revision": _or_none(_is_revision_part),
        "upto": _is_count,
        "first": _is_count,
    },
    "requeue": {
        **dict.fromkeys(("id", "after", "upto", "max_bytes"), _is_count),
        **dict.fromkeys(("output", "reason"), _or_none(_is_text)),
        "ids": _or_none(_is_numbers),
    },
    "request": {"name": _is_text, "lane": _is_count, "parts": _is_parts},
    "place_epoch": {"epoch": _is_count, "last": _is_count},
    "awaited": {
        "id": _is_count,
        "input": _is_text,
        "key": _is_text,
        "open": _is_count,
        "answers": _is_bytes,
        "items": _or_none(_is_items),
    },
    "lineage": {
        **dict.fromkeys(("id", "lane", "events", "state"), _is_count),
        **dict.fromkeys(("lineage", "host"), _is_text),
    },
    "origin": {"id": lambda value: _is_bytes(value) and len(value) == ORIGIN_BYTES, "secret": _is_bytes},
    "fed": {"lane": _is_count, "input": _is_text, "retracts": _among(0, 1)},
    "meta": {"key": _is_text, "value": lambda value: _is_count(value) or (_is_text(value) and _is_revision(value))},
}
_KEYED = (
    "length(name) = 16 AND typeof(name) = 'blob' AND typeof(owner) = 'text' AND typeof(collection) = 'text'"
    " AND typeof(input) = 'text' AND typeof(digest) = 'blob' AND deleted IN (0, 1) AND own IN (0, 1, 2)"
    " AND min(id, place, bytes) >= 0"
    " AND typeof(place) = 'integer' AND typeof(bytes) = 'integer' AND typeof(point) = 'integer'"
    " AND typeof(body) = 'blob' AND typeof(settled) IN ('text', 'null')"
)
_SLOT = "min(lane, seq, keyed, place) > 0 AND typeof(place) = 'integer' AND typeof(body) IN ('blob', 'null')"
_HOLDING = (
    "typeof(owner) = 'text' AND typeof(keys) = 'integer' AND typeof(bytes) = 'integer' AND typeof(known) = 'integer'"
)
_TODO = (
    "seq > 0 AND lane > 0 AND kind IN (0, 1, 2, 3) AND min(epoch, revision, count, bytes) >= 0 AND typeof(at) = 'real'"
)
_TODO_INTEGERS = " AND ".join(
    f"typeof({name}) = 'integer'" for name in ("epoch", "revision", "count", "bytes", "awaited")
)


def audit(db: sqlite3.Connection, sealer: Sealer) -> None:
    """Deletes impossible rows, and stores a report of them as a repair does."""
    lost: Counter[str] = Counter()
    for table, rules in _RULES.items():
        lost[table] += sum([_delete(db, table, row) for row in _unsound(db, table, rules)])
    lost["todo"] += db.execute(f"DELETE FROM todo WHERE NOT ({_TODO} AND {_TODO_INTEGERS})").rowcount
    for table, sound in (("keyed", _KEYED), ("slot", _SLOT), ("holding", _HOLDING)):
        lost[table] += db.execute(f"DELETE FROM {table} WHERE NOT ({sound})").rowcount
    lost["awaited"] += awaited.reconcile(db)
    lost["revision"] += _delete_above_active(db, "revision")
    lost["meta"] += _unsound_stages(db, not lost["revision"])
    lost["barrier"] += _delete_above_active(db, "barrier")
    lost["lane"] += (
        db.execute("SELECT 1 FROM todo WHERE lane NOT IN (SELECT id FROM lane) LIMIT 1").fetchone() is not None
    )
    _restore_credentials(db, sealer)
    Report(lost=+lost).store(db)


def _unsound(db: sqlite3.Connection, table: str, rules: Mapping[str, Rule]) -> list[dict[str, bytes | None]]:
    """Returns the rows with a value that breaks its rule; their values as bytes."""
    columns = ", ".join(f"typeof({name}), CAST({name} AS BLOB)" for name in rules)
    found = []
    for row in db.execute(f"SELECT {columns} FROM {table}"):
        raw = dict(zip(rules, row[1::2], strict=True))
        if not all(map(_keeps, rules.values(), row[::2], row[1::2])):
            found.append(raw)
    return found


def _keeps(rule: Rule, kind: str, raw: bytes) -> bool:
    try:
        return rule(_READERS[kind](raw))
    except ValueError:
        return False


_READERS: Mapping[str, Callable[[bytes], Any]] = {
    "integer": int,
    "real": float,
    "text": bytes.decode,
    "blob": bytes,
    "null": lambda raw: None,
}


def _delete(db: sqlite3.Connection, table: str, row: Mapping[str, bytes | None]) -> int:
    where = " AND ".join(f"CAST({name} AS BLOB) IS ?" for name in row)
    return db.execute(f"DELETE FROM {table} WHERE {where}", tuple(row.values())).rowcount


# -- rows compared with one another ------------------------------------------------------------------------------------


def _is_revision(text: str) -> bool:
    try:
        return str(Revision.parse(text)) == text and all(map(_is_revision_part, Revision.parse(text)))
    except ValueError:
        return False


def _unsound_stages(db: sqlite3.Connection, rows_are_all_there: bool) -> int:
    """Checks that `active` names a row, unless rows were lost, and `drained` a row with an ack, not above `active`."""
    stages = dict(
        db.execute("SELECT (epoch || ':' || number), drained FROM revision WHERE stage = 'active'").fetchall()
    )
    known = {Revision.parse(text): ack for text, ack in stages.items()}
    active, drained = (_stage(db, key) for key in ("active", "drained"))
    wrong = 0
    if known and (active is None or (active not in known and rows_are_all_there)):
        active = max(known)
        set_meta(db, "active", str(active))
        wrong += 1
    if drained is not None and (active is None or drained > active or known.get(drained, b"lost") is None):
        db.execute("DELETE FROM meta WHERE key = 'drained'")
        wrong += 1
    return wrong


def _stage(db: sqlite3.Connection, key: str) -> Revision | None:
    value = get_meta(db, key)
    if not isinstance(value, str):
        return None
    return Revision.parse(value)


def _delete_above_active(db: sqlite3.Connection, table: str) -> int:
    """Deletes active revisions and barriers above the active revision."""
    active = _stage(db, "active")
    if active is None:
        return 0
    at, which = ("epoch, number", "stage = 'active' AND ") if table == "revision" else ("epoch, revision", "")
    return db.execute(f"DELETE FROM {table} WHERE {which}({at}) > (?, ?)", active).rowcount


def _restore_credentials(db: sqlite3.Connection, sealer: Sealer) -> None:
    """Restores the credentials of lanes from their sealed settings, so that no flipped bit releases one."""
    rows = db.execute("SELECT id, iif(pair, pair, id), credentials, settings FROM lane").fetchall()
    for lane, number, credentials, sealed in rows:
        try:
            named = packed_ids(LaneSettings.unpack(sealer.open("lane", number, 0, 0, sealed)).credentials)
        except Damaged:
            continue
        if named != credentials:
            db.execute("UPDATE lane SET credentials = ? WHERE id = ?", (named, lane))
