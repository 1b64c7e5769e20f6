"""What a leader knows of the objects that it writes: by watches, by the answers to its writes, and by reads.

No decision is made on a state that is older than an own write: after one, the watch has to come to it, or a read by
quorum decides (`shipper.apiserver.expectations`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shipper.apiserver.errors import NotFound
from shipper.apiserver.expectations import Expectations, Verdict
from shipper.apiserver.objects import Event, Object, name, uid, version
from shipper.kubernetes.summing.picture import Picture
from shipper.kubernetes.summing.records import Policy, Release
from shipper.kubernetes.summing.writing import Writing
from shipper.process.environment import Clock

Kind = Literal["policy", "secret"]
"""ShipperPolicy and ShipperSecret."""
_WAITS = 0.1


class Echoes:
    """See the module. `now` is a clock."""

    def __init__(self, picture: Picture, writing: Writing, now: Clock) -> None:
        self._picture, self._writing, self._now = picture, writing, now
        self._expected: Mapping[Kind, Expectations[str]] = {"policy": Expectations(), "secret": Expectations()}

    def known(self, kind: Kind, of: str) -> Policy | Release | None:
        """Returns an object by its name."""
        return self._picture.policies.get(of) if kind == "policy" else self._picture.releases.get(of)

    def saw(self, kind: Kind, event: Event) -> None:
        """Takes an event of a watch."""
        of, at, deleted = uid(event.object), version(event.object), event.type == "DELETED"
        self._expected[kind].changed(of, at, deleted=deleted)
        if deleted:
            self._expected[kind].decided(of, at)
        self._put(kind, event)

    def caught_up(self, kind: Kind, at: str) -> None:
        """Notes that a watch has come to a version."""
        self._expected[kind].caught_up(at)

    def free_at(self, kind: Kind, known: Policy | Release, now: float) -> float | None:
        """Returns when an object can be judged, which is `now` if it can be; None: it has to be read."""
        expected = self._expected[kind]
        expected.changed(known.uid, known.version)
        match expected.verdict(known.uid, now):
            case Verdict.WAIT:
                return max(expected.deadline() or now, now + _WAITS)
            case Verdict.READ:
                return None
        return now

    def judged(self, kind: Kind, known: Policy | Release) -> None:
        """Notes that an object is judged as it is known."""
        self._expected[kind].decided(known.uid, known.version)

    def wrote(self, kind: Kind, found: Object) -> None:
        """Takes the answer to an own write; its echo is awaited."""
        self._expected[kind].wrote(uid(found), version(found), self._now())
        self._take(kind, found)

    async def read(self, kind: Kind, of: str, known: str) -> None:
        """Reads an object by quorum; `known` is its uid. Raises ApiError."""
        try:
            found = await (self._writing.policy(of) if kind == "policy" else self._writing.release(of))
        except NotFound:
            found = {}
        if uid(found) == known:
            self._expected[kind].read(known, version(found), self._now())
            self._take(kind, found)
            return
        self._expected[kind].read(known, None, self._now())
        self._expected[kind].decided(known, "")
        if (there := self.known(kind, of)) is not None and there.uid == known:
            self._put(kind, Event("DELETED", {"metadata": {"name": of, "uid": known}}))

    def _take(self, kind: Kind, found: Object) -> None:
        """Takes an answer; one of an object that the watch has seen deleted must not bring it back."""
        known = self.known(kind, name(found))
        if known is not None and known.uid == uid(found):
            self._put(kind, Event("MODIFIED", found))

    def _put(self, kind: Kind, event: Event) -> None:
        if kind == "policy":
            self._picture.saw_policy(event)
        else:
            self._picture.saw_release(event)
