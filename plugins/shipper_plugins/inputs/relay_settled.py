"""Which awaited versions of an edge's keyed state have all their answers since when, to be told to it. No I/O.

Nothing is kept of versions that have none yet, and of those that have some only what was not told yet: which answers
there are, the spool knows. An edge that comes too late for one of the others begins a new session, in which it sends
what it waits for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from shipper_plugins.relay.generations import SILENT_SECONDS

MOST_SETTLED = 1 << 16
"""Of all edges together."""
LEAST_SETTLED = 256
"""Of one edge, however many there are."""


def is_of_version(key: str) -> bool:
    """Whether answers are those of a version (`answers_key`), not of a part (`Taken.key`)."""
    return key.count("/") == 2


class Page(NamedTuple):
    """Keys of versions, in the order in which they were settled, up to a number."""

    keys: Sequence[str]
    upto: int


class Room:
    """How many settled versions are remembered, of all edges together."""

    def __init__(self) -> None:
        self.held = 0


class Settled:
    """Of one edge; each version that is settled has a number, and the numbers rise.

    What all its links have been told is forgotten; a link that has not asked for long does not count. Of more than
    there is room for, the newest are remembered.
    """

    def __init__(self, room: Room) -> None:
        self.upto = 0
        """The last number."""
        self._room = room
        self._numbers: dict[str, int] = {}
        self._forgotten = 0
        self._told: dict[int, tuple[int, float]] = {}
        """By link, up to where it was told, and when."""

    def begin(self, link: int, now: float) -> int:
        """A link begins a session; returns the number above which it is told."""
        self._told[link] = self.upto, now
        return self.upto

    def leave(self, link: int) -> None:
        """A link is gone."""
        self._told.pop(link, None)

    def note(self, key: str) -> None:
        """A version has all its answers."""
        self.upto += 1
        if self._numbers.pop(key, None) is None:
            self._room.held += 1
        self._numbers[key] = self.upto
        while self._room.held > MOST_SETTLED and len(self._numbers) > LEAST_SETTLED:
            self._forget_oldest()

    def above(self, link: int, number: int, most: int, now: float) -> Page | None:
        """The first versions above a number, `most` of them at most, for a link that was told up to that; None if some
        are forgotten. A question of before that comes late, or again, counts as the last one."""
        number = max(number, self._told.get(link, (0, now))[0])
        if number < self._forgotten:
            return None
        self._told[link] = number, now
        self._told = {each: told for each, told in self._told.items() if told[1] > now - SILENT_SECONDS}
        read = min(upto for upto, _ in self._told.values())
        while self._numbers and next(iter(self._numbers.values())) <= read:
            self._forget_oldest()
        newest = takewhile(lambda pair: pair[1] > number, reversed(self._numbers.items()))
        found = list(newest)[::-1][:most]
        return Page([key for key, _ in found], found[-1][1] if len(found) == most else self.upto)

    def clear(self) -> None:
        """The edge is forgotten."""
        self._room.held -= len(self._numbers)
        self._numbers.clear()
        self._told.clear()
        self._forgotten = self.upto = 0

    def _forget_oldest(self) -> None:
        self._forgotten = self._numbers.pop(next(iter(self._numbers)))
        self._room.held -= 1
