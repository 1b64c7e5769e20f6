"""The own ShipperMember as it is known: the newest of what answers, reads and the watch have shown.

An answer to an own write is the whole object after it, so nothing waits for the watch where versions have an order: an
event that is older than the answer is passed over. Where they have none, a decision on the labels waits until the watch
has shown the own write, and after some seconds a read decides (`apiserver.expectations`).

A deletion is no event where it came before the watch, or before the answer to the write that it undid. So the watch is
compared, too: one that has passed what is known of the object, and does not have it, has missed its deletion.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shipper.apiserver.expectations import Expectations, Verdict
from shipper.apiserver.objects import Event, Object, labels, uid, version
from shipper.apiserver.versions import compare, is_covered, newest
from shipper.kubernetes.kinds import MemberStatus


class Own:
    """See the module."""

    def __init__(self) -> None:
        self.object: Object | None = None
        self.gone = False
        """Whether the watch has shown a deletion since the last read, or does not have the object."""
        self.expectations: Expectations[str] = Expectations()
        self._shown: Object | None = None
        """The newest event that may be older than an own write."""
        self._there = ""
        """The uid of the object that the watch has."""
        self._passed = ""
        """The version up to which the watch has shown everything."""

    @property
    def labels(self) -> Mapping[str, str]:
        """By which policies select this member."""
        return labels(self.object) if self.object is not None else {}

    @property
    def uid(self) -> str:
        return uid(self.object) if self.object is not None else ""

    @property
    def version(self) -> str:
        return version(self.object) if self.object is not None else ""

    @property
    def status(self) -> MemberStatus:
        """The status there; an empty one if there is none that can be read."""
        return status_of(self.object)

    def read(self, found: Object | None, now: float) -> None:
        """A read by quorum has found this, or an own write was refused with it."""
        if found is None:
            if self.object is not None:
                self.expectations.read(self.uid, None, now)
                self.expectations.decided(self.uid, "")
            self.object = self._shown = None
        elif self._is_newer(found):
            self.expectations.read(uid(found), version(found), now)
            self._take(found)
        self.gone = False

    def wrote(self, found: Object, now: float) -> None:
        """An own write has this answer."""
        self.expectations.wrote(uid(found), version(found), now)
        if compare(version(found), self.version) != -1:
            self._take(found)
        self._miss()

    def saw(self, event: Event) -> None:
        """The watch has shown this."""
        found = event.object
        if event.type == "SYNCED":
            self._listed(version(found))
            return
        self._passed = newest(self._passed, version(found))
        if event.type == "DELETED":
            self._there = "" if uid(found) == self._there else self._there
            self.gone = self.gone or uid(found) == self.uid
            return
        self._there = uid(found)
        if self.object is None or uid(found) != self.uid or compare(version(found), self.version) in (-1, 0):
            self.expectations.caught_up(version(found))
            return
        self.expectations.changed(uid(found), version(found))
        self._shown = found

    def caught_up(self, at: str) -> None:
        """The watch has shown everything up to a version."""
        self.expectations.caught_up(at)
        self._passed = newest(self._passed, at)
        self._miss()

    def _listed(self, at: str) -> None:
        """The watch has begun with all objects at a version; versions of a restored store begin anew."""
        self._passed = at
        self.caught_up(at)
        self.gone = self.gone or (self._is_elsewhere() and compare(self.version, at) is None)

    def _miss(self) -> None:
        self.gone = self.gone or (self._is_elsewhere() and is_covered(self.version, self._passed))

    def _is_elsewhere(self) -> bool:
        return self.object is not None and self._there != self.uid

    def settle(self, now: float) -> bool:
        """Takes what the watch has shown if nothing is in its way; returns whether a read has to decide."""
        verdict = self.expectations.verdict(self.uid, now)
        if verdict is Verdict.GO and self._shown is not None:
            self._take(self._shown)
        return verdict is Verdict.READ

    @property
    def waits_until(self) -> float | None:
        """When a read has to decide; None if nothing waits."""
        return self.expectations.deadline()

    def _is_newer(self, found: Object) -> bool:
        return self.object is None or uid(found) != self.uid or compare(version(found), self.version) != -1

    def _take(self, found: Object) -> None:
        self.object, self._shown = found, None
        self.expectations.decided(uid(found), version(found))


def status_of(found: Object | None) -> MemberStatus:
    """Returns the status of a ShipperMember; an empty one if there is none that can be read."""
    try:
        return msgspec.convert((found or {}).get("status") or {}, MemberStatus)
    except msgspec.ValidationError:
        return MemberStatus()
