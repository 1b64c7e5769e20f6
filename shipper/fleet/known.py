"""What one observer has seen of a fleet, and when: from listings and changes to a `View`; without I/O.

Records that do not open are forged, and a report that is gone was removed: both are noted of the member. A member is
*gone* from the instant at which it was seen without a lease. A head that lacks what a head of the same epoch had shows
that the store was restored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio

from shipper.fleet.records import ALIVE, HEAD, MEMBERS, RESTORED, Alive, Head, Report, Restored, Version, is_name
from shipper.fleet.seal import Seals, Unauthentic
from shipper.fleet.store import Change, Entry, Found, Listing, held
from shipper.fleet.view import View

_RECORDS: Mapping[str, type[Report | Alive | Restored]] = {MEMBERS: Report, ALIVE: Alive, RESTORED: Restored}
"""The record of a member of each kind of key."""
_CHUNK = 100
"""Records that are opened in one go."""


class Known:
    """What one observer knows; without I/O. Instants are of the caller's monotonic clock."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        self._head: Head | Unauthentic = Head(fleet="")
        self._whole: Head | None = None
        """The newest head that had lost nothing."""
        self._restored = False
        self._reports: dict[str, Report] = {}
        self._alive: dict[str, Alive] = {}
        self._apart: dict[str, Restored] = {}
        self._marks: dict[str, tuple[int, int]] = {}
        """The revision and a hash of each key that exists; revisions alone recur in a restored store."""
        self._forged: set[str] = set()
        """Keys of records that do not open."""
        self._registered: set[str] = set()
        """Members whose last authentic report counts; nobody of the fleet ever removes one."""
        self._unauthentic: set[str] = set()
        self._gone: dict[str, float] = {}
        self._refused: dict[str, float] = {}
        self._listed: dict[str, int] = {}
        """The revision of the last listing of each kind of key."""
        self.at = 0
        """The revision up to which every change is known."""
        self.now = -math.inf
        """The instant up to which every change is known."""

    def view(self) -> View:
        """Returns what is known; its mappings change with the next change. Raises Unauthentic for a forged head."""
        if isinstance(self._head, Unauthentic):
            raise self._head
        return View(
            self.at,
            self._head,
            self._reports,
            self._alive,
            self._gone,
            self.now,
            self._refused,
            self._unauthentic,
            self._restored,
            self._apart,
        )

    def changed(self, change: Change, now: float) -> str | None:
        """Takes in a change of the watch; returns the member that it concerns, if any."""
        self.at = max(self.at, change.at)
        kind, name = _parts(change.key)
        if change.at <= self._listed.get(kind, 0):
            return None
        if kind == HEAD:
            self._put_head(change.entry)
        if kind not in _RECORDS or not is_name(name):
            return None
        self._put(kind, name, change.entry, self._opened(kind, change.entry) if change.entry else None, now)
        return name

    async def listed(self, head: Found, listings: Mapping[str, Listing], began: float, ended: float) -> set[str]:
        """Takes in a listing of all, taken in this order; returns the members that have changed.

        The records are opened a few at a time; then all that is new appears at once.
        """
        news: list[tuple[str, str, Entry | None, Report | Alive | Restored | None]] = []
        for kind, listing in listings.items():
            here = {entry.key: entry for entry in listing.entries if is_name(entry.key.removeprefix(kind))}
            lost = [key for key in self._marks if key.startswith(kind) and key not in here]
            news += [(kind, key.removeprefix(kind), None, None) for key in lost]
            for count, (key, entry) in enumerate(here.items()):
                if count % _CHUNK == 0:
                    await trio.lowlevel.checkpoint()
                if _mark(entry) != self._marks.get(key):
                    news.append((kind, key.removeprefix(kind), entry, self._opened(kind, entry)))
        for kind, name, each, record in news:
            self._put(kind, name, each, record, ended)
        self._put_head(head.entry)
        self._listed = {HEAD: head.at} | {kind: listing.at for kind, listing in listings.items()}
        self.at, self.now = head.at, began
        return {name for _, name, _, _ in news}

    def _put(
        self, kind: str, name: str, entry: Entry | None, record: Report | Alive | Restored | None, now: float
    ) -> None:
        """Takes in one record, None for a forged one.

        A new report without a lease shows that its member may still have one: the key came back and went while nobody
        watched, or somebody has removed it. So the member is away only since its last report.
        """
        key = kind + name
        if kind == ALIVE and held(entry) is None:
            entry = record = None
        self._marks.pop(key, None)
        self._forged.discard(key)
        if entry is not None:
            self._marks[key] = _mark(entry)
            if record is None:
                self._forged.add(key)
        if kind == MEMBERS:
            self._put_report(name, record if isinstance(record, Report) else None, now)
            self._gone.pop(name, None)
        elif kind == RESTORED:
            self._apart.pop(name, None)
            if isinstance(record, Restored):
                self._apart[name] = record
        else:
            self._alive.pop(name, None)
            if isinstance(record, Alive):
                self._alive[name] = record
        self._note_lease(name, now)
        self._note_unauthentic(name)

    def _put_head(self, entry: Entry | None) -> None:
        try:
            head = Head(fleet="") if entry is None else self._seals.open(HEAD, entry.value, Head)
        except Unauthentic as error:
            self._head = error
            return
        whole = self._whole
        if whole is None or head.epoch > whole.epoch or head == whole:
            self._restored = False
        elif head.order < whole.order or (whole.newest is not None and went_back(head, whole.newest)):
            self._restored = True
        if not self._restored:
            self._whole = head
        self._head = head

    def _put_report(self, name: str, report: Report | None, now: float) -> None:
        before = self._reports.pop(name, None)
        if report is not None:
            self._reports[name] = report
            (self._registered.add if _counts(report) else self._registered.discard)(name)
        refusal = report.refusal if report is not None else None
        if refusal is None:
            self._refused.pop(name, None)
        elif before is None or before.refusal is None or before.refusal.version != refusal.version:
            self._refused[name] = now

    def _opened(self, kind: str, entry: Entry) -> Report | Alive | Restored | None:
        """Returns a member's record; None if it is forged."""
        try:
            record = self._seals.open(entry.key, entry.value, _RECORDS[kind])
        except Unauthentic:
            return None
        return record if isinstance(record, Alive) or kind + record.name == entry.key else None

    def _note_unauthentic(self, name: str) -> None:
        """Notes whether a record of a member is forged, or was removed.

        A forged lease under a name without a report is ignored: it belongs to no member, and a member that registers
        later reads this head, or a newer one, before it uses anything.
        """
        is_registered = name in self._registered
        is_lost = is_registered and name not in self._reports
        if is_lost or MEMBERS + name in self._forged or (is_registered and ALIVE + name in self._forged):
            self._unauthentic.add(name)
        else:
            self._unauthentic.discard(name)

    def _note_lease(self, name: str, now: float) -> None:
        if name not in self._reports or ALIVE + name in self._marks:
            self._gone.pop(name, None)
        else:
            self._gone.setdefault(name, now)


def _counts(report: Report) -> bool:
    return report.state in ("joining", "member") or bool(report.state == "left" and report.undelivered.events)


def went_back(head: Head, newest: Version) -> bool:
    """Returns whether a head of the same epoch has lost the newest version that was seen: the store was restored."""
    now = head.newest
    if now is None or now[:2] < newest[:2]:
        return True
    kept = [line.version for line in head.history]
    return newest not in kept and newest[:2] >= kept[0][:2]


def _mark(entry: Entry) -> tuple[int, int]:
    return entry.revision, hash(entry.value)


def _parts(key: str) -> tuple[str, str]:
    """Returns the kind of a key, and the name of its member."""
    kind, slash, name = key.partition("/")
    return kind + slash, name
