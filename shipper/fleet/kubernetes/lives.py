"""Which leases of a fleet were not renewed for too long, as one observer has seen it. No I/O.

A lease is renewed by each new version of its Lease, and of each record that names it. What counts is when the observer
saw that, by its own clock: that is never before the renewal began, so a lease is never judged too early. An observer
that sees late judges late, too, or asks again before it acts (`keeper`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shipper.apiserver.versions import compare

DRIFT = 0.02
"""How far clocks may run apart."""
SLACK = 0.1
"""Seconds that are added to each lease."""


@dataclass(slots=True)
class Life:
    """What is known of one lease."""

    since: float
    """When its last renewal was seen."""
    seconds: float
    lease: tuple[str, str] | None = None
    """The uid and the version of its Lease; None if that was not seen, or is gone."""
    records: dict[str, str] = field(default_factory=dict)
    """The versions of the records that name it, by their names."""
    under: set[str] = field(default_factory=set)
    """Those that are removed with it."""

    @property
    def due(self) -> float:
        """When it has been over for certain, unless it is renewed."""
        return self.since + self.seconds * (1 + DRIFT) + SLACK


class Lives:
    """All leases of one fleet, by the text of their label. Instants are of one monotonic clock."""

    def __init__(self) -> None:
        self._lives: dict[str, Life] = {}
        self._of: dict[str, str] = {}
        """The lease that a record names."""

    def __getitem__(self, id: str) -> Life | None:
        return self._lives.get(id)

    def saw_lease(self, id: str, uid: str, version: str, seconds: float, now: float) -> None:
        """Its Lease is this one."""
        life = self._lives.setdefault(id, Life(now, seconds))
        if life.lease is None or life.lease[0] != uid or _is_new(life.lease[1], version):
            life.lease, life.since, life.seconds = (uid, version), now, seconds

    def lost_lease(self, id: str) -> None:
        """Its Lease is gone: it has ended, and its keys go when it is due."""
        if (life := self._lives.get(id)) is not None:
            life.lease = None
            self._drop(id, life)

    def saw_record(self, id: str, name: str, version: str, under: float | None, now: float) -> None:
        """A record names the lease; `under`: the lease's seconds, if it goes with it."""
        if self._of.get(name, id) != id:
            self.lost_record(name)
        life = self._lives.setdefault(id, Life(now, under or 0.0))
        self._of[name] = id
        if _is_new(life.records.get(name, ""), version):
            life.records[name], life.since = version, now
            life.seconds = max(life.seconds, under or 0.0)
            (life.under.discard if under is None else life.under.add)(name)

    def lost_record(self, name: str) -> None:
        """A record is gone, or names no lease any more."""
        id = self._of.pop(name, None)
        if id is not None and (life := self._lives.get(id)) is not None:
            life.records.pop(name, None)
            life.under.discard(name)
            self._drop(id, life)

    def lacks(self, leases: set[str], records: set[str]) -> None:
        """Forgets what is not among these, since a newer list lacks it."""
        for name in [name for name in self._of if name not in records]:
            self.lost_record(name)
        for id in [id for id, life in self._lives.items() if life.lease is not None and id not in leases]:
            self.lost_lease(id)

    def overdue(self, now: float) -> list[str]:
        """Returns the leases that have been over for certain."""
        return [id for id, life in self._with_effect() if life.due <= now]

    def next_due(self) -> float | None:
        """Returns when the next one will be; None if there is none."""
        return min((life.due for _, life in self._with_effect()), default=None)

    def _with_effect(self) -> Iterator[tuple[str, Life]]:
        return ((id, life) for id, life in self._lives.items() if life.lease is not None or life.under)

    def _drop(self, id: str, life: Life) -> None:
        if life.lease is None and not life.records:
            self._lives.pop(id, None)


def _is_new(known: str, version: str) -> bool:
    return not known or compare(version, known) not in (-1, 0)
