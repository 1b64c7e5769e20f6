"""The head as a member knows it, and the newest version that it has ever seen."""

from __future__ import annotations

from shipper.fleet.member.order import later, position
from shipper.fleet.records import Head, Version

RELEASED = 200
"""Released ids that a member remembers, the newest: a restored store may have them as today's."""


class KnownHead:
    """A head, and what follows from it; it never goes back but by `go_back`."""

    def __init__(self, newest: Version | None, seen: tuple[int, int] = (0, 0)) -> None:
        self.head: Head | None = None
        self.at = 0
        """The store's revision as of which the head is known."""
        self.newest = newest
        """The newest version that was ever seen; the head of a restored store may lack it."""
        self.seen = seen
        """`Head.order` of the newest head that was ever seen."""
        self._whole: Head | None = None
        """The newest head of this process that was not behind."""
        self._is_older = False
        """Whether an older head is in the place of the newest one, or something that was made from it."""
        self.named: frozenset[str] = frozenset()
        """The ids of secrets that the head names."""

    @property
    def current(self) -> Version | None:
        """Returns the version that the head names as the newest."""
        return self.head.newest if self.head is not None else None

    def take(self, head: Head | None, at: int) -> None:
        """Takes a head as of a revision; its versions have been seen, unless it `is_behind`."""
        self.head, self.at, self.named = head, at, _named(head)
        self._compare(head)
        if not self.is_behind:
            self.newest = later(self.newest, self.current)

    def _compare(self, head: Head | None) -> None:
        """Notes whether an older head is in the place of the newest one; only that one, or a later epoch, ends it."""
        order = head.order if head is not None else (0, 0)
        if order < self.seen:
            self._is_older = True
        elif self._whole is None or head == self._whole or order[0] > self.seen[0]:
            self._is_older = False
        if not self._is_older:
            self._whole, self.seen = head, order

    def go_back(self, head: Head | None, at: int) -> None:
        """Takes the head of a store whose revisions went back; its versions have not been seen."""
        self.head, self.at, self.named = head, at, _named(head)

    def epoch(self, registered: int) -> int:
        """Returns the newest epoch for which members register; without a head, the one for which this one has."""
        if self.head is None:
            return registered
        accepting = self.head.accepting.epoch if self.head.accepting is not None else 0
        return max(self.head.epoch, accepting)

    def is_accepted(self, registered: int) -> bool:
        """Returns whether a person has begun a newer epoch than the one for which this member has registered."""
        return self.epoch(registered) > registered

    @property
    def is_behind(self) -> bool:
        """Whether the head lacks something that this member has seen, as after the restore of a snapshot."""
        return bool(self.behind)

    @property
    def behind(self) -> str:
        """Returns in words what the head lacks; empty if it lacks nothing."""
        if self._lacks_newest:
            return f"it lacks version {self.newest}, which this member has seen"
        is_older = self._is_older and self.epoch(0) <= self.seen[0]
        return "an older head is in the place of one that this member has seen" if is_older else ""

    @property
    def _lacks_newest(self) -> bool:
        if self.newest is None:
            return False
        if self.head is None:
            return True
        if any(line.version == self.newest for line in self.head.history) or self.epoch(0) > self.newest.epoch:
            return False
        return not self.head.history or position(self.head.history[0].version) <= position(self.newest)

    # -- secrets -------------------------------------------------------------------------------------------------------

    @property
    def released(self) -> frozenset[str]:
        """The ids that the fleet has released, and that its newest version does not name again."""
        if self.head is None:
            return frozenset()
        pinned = self.head.history[-1].secrets.values() if self.head.history else ()
        return frozenset(self.head.released) - frozenset(pinned)

    def unnamed(self, using: frozenset[str], registered: int | None) -> frozenset[str]:
        """Returns those ids that the head no longer names: they were released before, while this host was away.

        The head of a restored store may lack newer ones, until an epoch has begun that names them; `registered` is the
        epoch of the report in the store, None before there is one.
        """
        head = self.head
        if head is None or head.accepting is not None or registered != head.epoch:
            return frozenset()
        return using - self.named

    def pins(self, *versions: Version | None) -> frozenset[str]:
        """Returns the ids that these versions name, as far as the history has them."""
        history = self.head.history if self.head is not None else []
        return frozenset(id for line in history if line.version in versions for id in line.secrets.values())

    def released_for_good(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the ids that are released for good, also those that a restored head does not know to be so."""
        if self.head is None:
            return before
        begun = [id for id, release in self.head.released.items() if release.state != "released"]
        return tuple(dict.fromkeys([*before, *begun]))[-RELEASED:]


def _named(head: Head | None) -> frozenset[str]:
    if head is None:
        return frozenset()
    pinned = (id for line in head.history for id in line.secrets.values())
    return frozenset({*head.secrets.values(), *head.fingerprints, *head.released, *pinned})
