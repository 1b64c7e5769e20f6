"""Which awaited versions of an edge's keyed state have all their answers since when, to be told to it. No I/O.

Nothing is kept of versions that have none yet, and of those that have some only a number of the newest: which answers
there are, the spool knows. An edge that comes too late for one of the others begins a new session, in which it sends
what it waits for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

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


class Settled:
    """Of one edge; each version that is settled has a number, and the numbers rise."""

    def __init__(self) -> None:
        self.upto = 0
        """The last number."""
        self._numbers: dict[str, int] = {}
        self._forgotten = 0

    def note(self, key: str, edges: int) -> None:
        """A version has all its answers; `edges` is how many edges there are."""
        self.upto += 1
        self._numbers.pop(key, None)
        self._numbers[key] = self.upto
        while len(self._numbers) > max(LEAST_SETTLED, MOST_SETTLED // edges):
            oldest = next(iter(self._numbers))
            self._forgotten = self._numbers.pop(oldest)

    def above(self, number: int, most: int) -> Page | None:
        """The first versions above a number, `most` of them at most; None if some are forgotten."""
        if number < self._forgotten:
            return None
        newest = takewhile(lambda pair: pair[1] > number, reversed(self._numbers.items()))
        found = list(newest)[::-1][:most]
        return Page([key for key, _ in found], found[-1][1] if len(found) == most else self.upto)
