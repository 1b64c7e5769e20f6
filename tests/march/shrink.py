"""A smaller scenario that violates the same law: parts are left out as long as it still does."""

from __future__ import annotations

from typing import Any

from tests.march.kind import Kind

MOST_RUNS = 300


def shrink(kind: Kind, seed: int, law: str) -> list[int]:
    """The places, in the parts of the seed's scenario, of those that are enough to violate `law`."""
    whole = kind.draw(seed)
    needed = list(range(len(whole.parts())))
    runs, size = 0, max(1, len(needed) // 2)
    while size and runs < MOST_RUNS:
        before = len(needed)
        for part in [needed[start : start + size] for start in range(0, before, size)]:
            fewer = [place for place in needed if place not in part]
            runs += 1
            if any(violation.law == law for violation in kind.run(only(whole, fewer)).violations):
                needed = fewer
        if len(needed) == before:
            size //= 2
    return needed


def only(whole: Any, places: list[int]) -> Any:
    """The scenario with the parts in these places alone."""
    return whole.without([part for place, part in enumerate(whole.parts()) if place not in places])
