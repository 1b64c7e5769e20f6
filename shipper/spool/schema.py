"""The tables of the spool.

    batch    one row for each batch that entered; deleted with its last entry, in the same transaction
    todo     unsettled entries of lanes, in the order in which they entered: a batch, the rest of one, a slot, or a
             barrier; a barrier is settled when it is the first row of its lane. `awaited` is the id of a row of that
             table, negative where a processor gave the events new identities, or 0
    rest     the unsettled events of a batch that a lane has settled in part; small, so that one forbidden event does
             not keep a megabyte
    barrier  the counts of each open barrier; (lane, seq) of its entry; `confirmed` is the weakest `Confirmed` of its
             answers, and of the last ones before its cut
    lane     one destination identity, with the ids of its credentials as a JSON list; `active` where the active
             revision routes events to it, `reached` once a request to one of its hosts has begun, `contacts` digests of
             these hosts as a JSON list, `confirmed` and `confirmed_versions` what its last answers for log events and
             for keyed state are worth; `pair` is 0 for log events, and for keyed state the number by which the
             destination knows this lane and the one of log events beside it: the id of that one, or its own
    contact  the hosts to which a request of any lane has begun
    keyed    the current version of each key of keyed state; `own` is 1 if its place was given here, 2 if those of its
             key before were not all; `name` and `point` are digests, the key itself is sealed; `settled` is, of a
             deletion of which nothing waits, the first part of the owner, else NULL
    slot     the one version of a key that waits on a lane; `body` is NULL while that is the key's current one
    holding  how many keys that are not deleted each other owner has, with those below it, and the bytes of its
             versions; `known` counts deleted keys too
    place_epoch  the epochs of all places that this directory has given, and the last sequence of each that has ended
    fed      which input of keyed state is routed to which active lane (0: to none), and whether its keys are deleted
             once the policy has it no more
    lineage  what each state directory of a lane's destination has confirmed
    awaited  batches, and versions, whose answers their input waits for; `open` counts the entries that name it
    request  open requests of outputs that ask for stable ones, with the events of each (`requests`)
    requeue  unfinished orders to requeue dead letters, and their progress
    origin   the secrets of the origins in the ids of stored events, by which a relay proves whose they are
    revision received policies; `stage` is received, superseded or active; older active ones stay until drained

Counts and sizes are stored twice, in `batch` and in `todo`, so that one damaged page does not lose them. Events,
settings and policy texts are sealed (`seal.py`); numbers, names of inputs and outputs, ids of credentials, digests, and
the positions of inputs are in the clear.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from shipper.spool import kinds

BATCH: Final = 0
REST: Final = 1
BARRIER: Final = 2
SLOT: Final = 3

SEALED: Final = (
    ("batch", "body"),
    ("dead_letter", "body"),
    ("keyed", "body"),
    ("lane", "settings"),
    ("origin", "secret"),
    ("rest", "body"),
    ("revision", "policy"),
    ("slot", "body"),
)
"""The columns, each with its table, that hold sealed values."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (
    epoch INTEGER NOT NULL, number INTEGER NOT NULL, sha256 TEXT NOT NULL, meaning TEXT NOT NULL,
    change TEXT NOT NULL, stage TEXT NOT NULL, credentials TEXT NOT NULL, policy BLOB NOT NULL, drained BLOB,
    PRIMARY KEY (epoch, number));
CREATE TABLE IF NOT EXISTS lane (
    id INTEGER PRIMARY KEY AUTOINCREMENT, output TEXT NOT NULL, type TEXT NOT NULL, destination TEXT NOT NULL,
    credentials TEXT, settings BLOB NOT NULL, active INTEGER NOT NULL, reached INTEGER NOT NULL DEFAULT 1,
    confirmed INTEGER NOT NULL DEFAULT 0, confirmed_versions INTEGER NOT NULL DEFAULT 0,
    contacts TEXT NOT NULL DEFAULT '[]', pair INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS contact (host TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS origin (id BLOB PRIMARY KEY, secret BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch (
    seq INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, revision INTEGER NOT NULL, count INTEGER NOT NULL,
    bytes INTEGER NOT NULL, at REAL NOT NULL, origin BLOB NOT NULL, lanes TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS todo (
    lane INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, epoch INTEGER NOT NULL,
    revision INTEGER NOT NULL, count INTEGER NOT NULL, bytes INTEGER NOT NULL, at REAL NOT NULL,
    awaited INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (lane, seq)) WITHOUT ROWID;
DROP INDEX IF EXISTS todo_slots;
CREATE TABLE IF NOT EXISTS rest (
    id INTEGER PRIMARY KEY, lane INTEGER NOT NULL, seq INTEGER NOT NULL, origin BLOB NOT NULL, body BLOB NOT NULL,
    UNIQUE (lane, seq));
CREATE TABLE IF NOT EXISTS barrier (
    lane INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, revision INTEGER NOT NULL,
    accepted INTEGER NOT NULL, delivered INTEGER NOT NULL DEFAULT 0, duplicate INTEGER NOT NULL DEFAULT 0,
    dead_letter INTEGER NOT NULL DEFAULT 0, dropped INTEGER NOT NULL DEFAULT 0, damaged INTEGER NOT NULL DEFAULT 0,
    waited REAL NOT NULL DEFAULT 0, superseded INTEGER NOT NULL DEFAULT 0, confirmed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settled (
    epoch INTEGER NOT NULL, revision INTEGER NOT NULL, accepted INTEGER NOT NULL, delivered INTEGER NOT NULL,
    duplicate INTEGER NOT NULL, dead_letter INTEGER NOT NULL, dropped INTEGER NOT NULL, damaged INTEGER NOT NULL,
    superseded INTEGER NOT NULL DEFAULT 0, confirmed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS cursor (
    input TEXT NOT NULL, key TEXT NOT NULL, position BLOB NOT NULL, PRIMARY KEY (input, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS credential (
    id TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letter (
    id INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER NOT NULL, seq INTEGER NOT NULL, item INTEGER NOT NULL,
    output TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL, bytes INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (lane, seq, item));
CREATE TABLE IF NOT EXISTS standing_order (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, lane INTEGER NOT NULL, target INTEGER,
    epoch INTEGER, revision INTEGER, upto INTEGER NOT NULL, first INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS requeue (
    id INTEGER PRIMARY KEY AUTOINCREMENT, after INTEGER NOT NULL, upto INTEGER NOT NULL, max_bytes INTEGER NOT NULL,
    output TEXT, reason TEXT, ids TEXT);
CREATE TABLE IF NOT EXISTS keyed (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL UNIQUE, owner TEXT NOT NULL, collection TEXT NOT NULL,
    point INTEGER NOT NULL, input TEXT NOT NULL, place INTEGER NOT NULL, digest BLOB NOT NULL,
    deleted INTEGER NOT NULL, own INTEGER NOT NULL, bytes INTEGER NOT NULL, body BLOB NOT NULL,
    settled TEXT);
CREATE INDEX IF NOT EXISTS keyed_range ON keyed (owner, point);
CREATE INDEX IF NOT EXISTS keyed_owner ON keyed (owner);
CREATE INDEX IF NOT EXISTS keyed_input ON keyed (input);
CREATE TABLE IF NOT EXISTS slot (
    lane INTEGER NOT NULL, seq INTEGER NOT NULL, keyed INTEGER NOT NULL, place INTEGER NOT NULL, body BLOB,
    PRIMARY KEY (lane, seq), UNIQUE (keyed, lane));
CREATE TABLE IF NOT EXISTS place_epoch (epoch INTEGER PRIMARY KEY, last INTEGER NOT NULL DEFAULT 2147483647);
CREATE TABLE IF NOT EXISTS holding (
    owner TEXT PRIMARY KEY, keys INTEGER NOT NULL, bytes INTEGER NOT NULL, known INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS awaited (
    id INTEGER PRIMARY KEY, input TEXT NOT NULL, key TEXT NOT NULL, open INTEGER NOT NULL, answers BLOB NOT NULL,
    items BLOB, UNIQUE (input, key));
CREATE TABLE IF NOT EXISTS lineage (
    id INTEGER PRIMARY KEY AUTOINCREMENT, lane INTEGER NOT NULL, lineage TEXT NOT NULL, events INTEGER NOT NULL,
    state INTEGER NOT NULL, host TEXT NOT NULL, UNIQUE (lane, lineage));
CREATE TABLE IF NOT EXISTS request (name TEXT PRIMARY KEY, lane INTEGER NOT NULL, parts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS request_lane ON request (lane);
CREATE TABLE IF NOT EXISTS fed (
    lane INTEGER NOT NULL, input TEXT NOT NULL, retracts INTEGER NOT NULL, PRIMARY KEY (lane, input)) WITHOUT ROWID;
"""


_LATER: Final = (
    ("lane", "reached", "INTEGER NOT NULL DEFAULT 1"),
    ("standing_order", "first", "INTEGER NOT NULL DEFAULT 0"),
    ("barrier", "superseded", "INTEGER NOT NULL DEFAULT 0"),
    ("settled", "superseded", "INTEGER NOT NULL DEFAULT 0"),
    ("todo", "awaited", "INTEGER NOT NULL DEFAULT 0"),
    ("place_epoch", "last", "INTEGER NOT NULL DEFAULT 2147483647"),
    ("lane", "confirmed", "INTEGER NOT NULL DEFAULT 0"),
    ("lane", "confirmed_versions", "INTEGER NOT NULL DEFAULT 0"),
    ("barrier", "confirmed", "INTEGER NOT NULL DEFAULT 0"),
    ("settled", "confirmed", "INTEGER NOT NULL DEFAULT 0"),
    ("holding", "known", "INTEGER NOT NULL DEFAULT 0"),
    ("keyed", "settled", "TEXT"),
    ("lane", "contacts", "TEXT NOT NULL DEFAULT '[]'"),
    ("lane", "pair", "INTEGER NOT NULL DEFAULT 0"),
)
"""Columns that tables of an earlier version lack; each stands last in its table, and its default is for old rows."""
_OF_LATER: Final = "CREATE INDEX IF NOT EXISTS keyed_settled ON keyed (settled, place) WHERE settled IS NOT NULL"
"""An index of such a column."""


def prepare(db: sqlite3.Connection) -> None:
    """Makes missing tables, and migrates those of an earlier version."""
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            db.execute(statement)
    _migrate_credentials(db)
    made = set()
    for table, column, kind in _LATER:
        if column not in {row[1] for row in db.execute(f"PRAGMA table_info({table})")}:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
            made.add((table, column))
    db.execute(_OF_LATER)
    if ("keyed", "settled") in made:
        count_holdings(db)
    kinds.divide(db)
    db.execute("INSERT OR IGNORE INTO meta VALUES ('seq', 0)")


def count_holdings(db: sqlite3.Connection) -> None:
    """Counts again what other owners have, and marks their settled deletions."""
    first = "substr(owner, 1, instr(owner || '/', '/') - 1)"
    db.execute("DELETE FROM holding")
    db.execute(
        f"INSERT INTO holding SELECT {first}, sum(NOT deleted), sum(iif(deleted, 0, bytes)), count(*)"
        " FROM keyed WHERE owner != '' GROUP BY 1"
    )
    db.execute(
        f"UPDATE keyed SET settled = iif(EXISTS (SELECT 1 FROM slot WHERE keyed = keyed.id), NULL, {first})"
        " WHERE deleted AND own != 1"
    )


def _migrate_credentials(db: sqlite3.Connection) -> None:
    """Turns the one credential, or NULL, of lanes of an earlier version into a JSON list.

    The column keeps its place, since a repair copies by place. Rows that a repair has copied are recognized by their
    form.
    """
    looks = "coalesce(substr(credentials, 1, 1), '') != '['"
    if "credential" in {row[1] for row in db.execute("PRAGMA table_info(lane)")}:
        db.execute("ALTER TABLE lane RENAME COLUMN credential TO credentials")
        looks = "true"
    for id, credential in db.execute(f"SELECT id, credentials FROM lane WHERE {looks}").fetchall():
        ids = [] if credential is None else [credential]
        db.execute("UPDATE lane SET credentials = ? WHERE id = ?", (packed_ids(ids), id))


def packed_ids(ids: Iterable[str]) -> str:
    """Returns ids as a column holds them; equal sequences give equal texts."""
    return json.dumps(list(ids), separators=(",", ":"))


def next_seq(db: sqlite3.Connection) -> int:
    """Returns the next place in the sequence; never the same twice, though rows are deleted."""
    return next_seqs(db, 1)[0]


def next_seqs(db: sqlite3.Connection, count: int) -> range:
    """Returns so many of the next places."""
    (last,) = db.execute("UPDATE meta SET value = value + ? WHERE key = 'seq' RETURNING value", (count,)).fetchone()
    return range(int(last) - count + 1, int(last) + 1)


def get_meta(db: sqlite3.Connection, key: str) -> Any:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(db: sqlite3.Connection, key: str, value: Any) -> None:
    db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value))
