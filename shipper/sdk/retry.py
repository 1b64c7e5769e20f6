"""How long to wait before the next attempt: pure generators of seconds.

Whatever a peer answers, no loop may turn without a pause: it would take a whole processor as long as the peer wants.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain


def backoff(first: float, longest: float, *, draw: random.Random | None = None) -> Iterator[float]:
    """Yields endless waits with full jitter: the n-th is uniform from 0 to min(`longest`, `first` × 2ⁿ), in seconds.

    It is never below a tenth of its bound, so that an unlucky draw is no busy loop. Full jitter, since clients that
    failed together must not come back together (AWS Architecture Blog, "Exponential Backoff And Jitter", 2015).
    """
    uniform = (draw or random).uniform
    bound = first
    while True:
        yield uniform(bound / 10, bound)
        bound = min(longest, bound * 2)


def hasty(first: float = 0.05, longest: float = 1.0, *, draw: random.Random | None = None) -> Iterator[float]:
    """Yields no wait, and then those of `backoff`: for what is tried again at once if somebody else was faster, and not
    again and again."""
    return chain([0.0], backoff(first, longest, draw=draw))


class Refusals:
    """What a peer has refused one time after the other: the first time it is tried again at once, then after a
    pause."""

    def __init__(self) -> None:
        self._last: set[str] = set()

    def is_repeated(self, what: str) -> bool:
        """Notes a refusal; returns whether the last attempt was refused, too."""
        is_repeated = what in self._last
        self._last.add(what)
        return is_repeated

    def over(self, what: str) -> None:
        """Notes an attempt that was not refused."""
        self._last.discard(what)
