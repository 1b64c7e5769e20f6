"""How long to wait before the next attempt: pure generators of seconds."""

from __future__ import annotations

import random
from collections.abc import Iterator


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
