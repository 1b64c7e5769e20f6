"""Which awaited versions of an edge's keyed state have all their answers since when, to be told to it. No I/O.

Nothing is kept of versions without answers, and of the others only what was not told yet: the spool knows the answers.
An edge that comes too late begins a new session, in which it sends again what it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from shipper_plugins.relay.principal.generations import SILENT_SECONDS

MOST_SETTLED = 1 << 16
"""The most versions of all edges together."""
LEAST_SETTLED = 256
"""The versions that each edge may have in any case."""


def is_of_version(key: str) -> bool:
    """Whether this is the key of a version's answers (`answers_key`), not of a part's (`Taken.key`)."""
    return key.count("/") == 2


class Page(NamedTuple):
    """Keys of versions, in the order in which they were settled, up to a number."""

    keys: Sequence[str]
    upto: int


class Room:
    """The number of settled versions that are remembered, of all edges together."""

    def __init__(self) -> None:
        self.held = 0


class Settled:
    """The settled versions of one edge; each has a number, and the numbers rise.

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
        """By link, up to which number it was told, and when."""

    def begin(self, link: int, now: float) -> int:
        """Begins a session of a link; returns the number above which it is told."""
        self._told[link] = self.upto, now
        return self.upto

    def leave(self, link: int) -> None:
        """Forgets a link."""
        self._told.pop(link, None)

    def note(self, key: str) -> None:
        """Notes a version that has all its answers."""
        self.upto += 1
        if self._numbers.pop(key, None) is None:
            self._room.held += 1
        self._numbers[key] = self.upto
        while self._room.held > MOST_SETTLED and len(self._numbers) > LEAST_SETTLED:
            self._forget_oldest()

    def above(self, link: int, number: int, most: int, now: float) -> Page | None:
        """Returns the first versions above a number, at most `most`, for a link that was told up to it; None if some
        are forgotten. A late or repeated question counts as the last one."""
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
        """Forgets the edge."""
        self._room.held -= len(self._numbers)
        self._numbers.clear()
        self._told.clear()
        self._forgotten = self.upto = 0

    def _forget_oldest(self) -> None:
        self._forgotten = self._numbers.pop(next(iter(self._numbers)))
        self._room.held -= 1
