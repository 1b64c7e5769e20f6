"""After damage: restores what can be derived, and lets barriers over an unknown queue wait for an order.

A batch with lost bytes causes no doubt: its entry holds the number of its events, and they are settled as damaged. A
lost entry of an intact batch is restored, since the batch lists its lanes; if the lane had settled it, the destination
answers "duplicate". But where entries, barriers or lanes were lost, it is unknown whether everything below an open
barrier has its answer: those barriers hold, visibly, until `dead_letter` or `drop` is ordered for their lane. Events
without an answer are counted as damaged then. Lost lanes and barriers are restored for that, empty if need be.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from shipper.spool import waiting
from shipper.spool.report import Report
from shipper.spool.schema import BARRIER, BATCH, count_holdings, get_meta, next_seq, set_meta
from shipper.values import Revision

_COLUMNS = "output, type, destination, credentials, settings, active"
_LOST = "'lost', '', '', '[]', x'', 0"
"""The row of a lost lane; it has no settings, so it cannot be opened."""
_DECISIVE = {"todo", "barrier", "lane", "meta", "wal", "damage", "revision"}


def act(db: sqlite3.Connection) -> None:
    """Handles the reports of repairs since the last call, if any."""
    report = Report.load(db)
    if report is None:
        return
    _lift_seq(db)
    if _DECISIVE & report.lost.keys():
        if "lane" in report.lost:
            _restore_lanes(db)
        _restore_entries(db)
        waiting.restore(db, _active(db))
        _restore_barriers(db)
        for lane, last in db.execute("SELECT lane, max(seq) FROM barrier GROUP BY lane").fetchall():
            hold(db, lane, last)
    count_holdings(db)
    Report.forget(db)


def hold(db: sqlite3.Connection, lane: int, seq: int) -> None:
    """Lets a barrier wait for an order."""
    set_meta(db, _key(lane), seq)


def holds(db: sqlite3.Connection, lane: int, seq: int) -> bool:
    """Whether a barrier waits for an order."""
    last = get_meta(db, _key(lane))
    return last is not None and seq <= last


def lanes(db: sqlite3.Connection) -> set[int]:
    """Returns the lanes with barriers that wait for an order."""
    rows = db.execute("SELECT key FROM meta WHERE key LIKE 'doubt %'")
    return {int(row[0].split()[1]) for row in rows.fetchall()}


def ordered(db: sqlite3.Connection, lane: int) -> None:
    """Counts events without an answer below the barriers of a lane as damaged, after an order has emptied the lane."""
    last = get_meta(db, _key(lane))
    if last is None:
        return
    answered = "delivered + duplicate + dead_letter + dropped + damaged + superseded"
    for change in (f"damaged = damaged + max(0, accepted - ({answered}))", f"accepted = {answered}"):
        db.execute(f"UPDATE barrier SET {change} WHERE lane = ? AND seq <= ?", (lane, last))
    db.execute("DELETE FROM meta WHERE key = ?", (_key(lane),))


def _lift_seq(db: sqlite3.Connection) -> None:
    """Raises the counter above every number in use: none may be given twice, even if the counter was lost."""
    (highest,) = db.execute(
        "SELECT max((SELECT coalesce(max(seq), 0) FROM batch), (SELECT coalesce(max(seq), 0) FROM todo),"
        " (SELECT coalesce(max(seq), 0) FROM barrier), (SELECT coalesce(max(id), 0) FROM rest),"
        " (SELECT coalesce(max(seq), 0) FROM dead_letter), (SELECT coalesce(max(seq), 0) FROM slot),"
        " (SELECT coalesce(max(id), 0) FROM awaited))"
    ).fetchone()
    set_meta(db, "seq", max(int(get_meta(db, "seq") or 0), highest))


def _restore_lanes(db: sqlite3.Connection) -> None:
    """Restores lost lanes as retired ones that cannot be opened: an order ends their entries.

    One is also made for an active revision that is not drained and has no barrier left.
    """
    lost = "SELECT lane FROM todo UNION SELECT lane FROM barrier"
    db.execute(f"INSERT OR IGNORE INTO lane (id, {_COLUMNS}) SELECT lane, {_LOST} FROM ({lost})")
    active, drained = (
        Revision.parse(text) if text else None for text in (get_meta(db, "active"), get_meta(db, "drained"))
    )
    waits = db.execute("SELECT 1 FROM lane WHERE active = 0").fetchone() is not None
    if not waits and active is not None and (drained is None or drained < active):
        db.execute(f"INSERT INTO lane ({_COLUMNS}) VALUES ({_LOST})")


def _restore_entries(db: sqlite3.Connection) -> None:
    known = {row[0] for row in db.execute("SELECT id FROM lane")}
    batches = db.execute("SELECT seq, epoch, revision, count, bytes, at, lanes FROM batch").fetchall()
    for seq, epoch, revision, count, size, at, route in batches:
        rows = [(lane, seq, BATCH, epoch, revision, count, size, at) for lane in known.intersection(_route(route))]
        db.executemany("INSERT OR IGNORE INTO todo VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", rows)


def _route(text: str) -> list[int]:
    try:
        return msgspec.json.decode(text, type=list[int])
    except (msgspec.MsgspecError, TypeError):
        return []  # damaged


def _restore_barriers(db: sqlite3.Connection) -> None:
    """Gives every retired lane a barrier, in both tables."""
    db.execute("INSERT OR IGNORE INTO todo SELECT lane, seq, ?, epoch, revision, 0, 0, 0, 0 FROM barrier", (BARRIER,))
    db.execute(
        "INSERT OR IGNORE INTO barrier (lane, seq, epoch, revision, accepted)"
        " SELECT lane, seq, epoch, revision, 0 FROM todo WHERE kind = ?",
        (BARRIER,),
    )
    at = _active(db)
    for (lane,) in db.execute(
        "SELECT id FROM lane WHERE active = 0 AND id NOT IN (SELECT lane FROM barrier)"
    ).fetchall():
        seq = next_seq(db)
        db.execute(
            "INSERT INTO barrier (lane, seq, epoch, revision, accepted) VALUES (?, ?, ?, ?, 0)", (lane, seq, *at)
        )
        db.execute("INSERT INTO todo VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0)", (lane, seq, BARRIER, *at))


def _active(db: sqlite3.Connection) -> Revision:
    active: Any = get_meta(db, "active")
    return Revision.parse(active) if active else Revision(0, 0)


def _key(lane: int) -> str:
    return f"doubt {lane}"
