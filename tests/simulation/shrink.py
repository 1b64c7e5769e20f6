"""A smaller scenario that violates the same law: parts are left out as long as it still does."""

from __future__ import annotations

from tests.simulation.scenario import Scenario
from tests.simulation.world import run

MOST_RUNS = 300


def shrink(seed: int, law: str) -> list[int]:
    """Which parts of the seed's scenario (by their places in `Scenario.parts`) are not needed to violate `law`."""
    whole = Scenario.draw(seed)
    left_out: list[int] = []
    needed = list(range(len(whole.parts())))
    runs, size = 0, max(1, len(needed) // 2)
    while size and runs < MOST_RUNS:
        progress = False
        for start in range(0, len(needed), size):
            tried = sorted({*left_out, *needed[start : start + size]})
            if len(tried) == len(left_out):
                continue
            runs += 1
            if violates(whole, tried, law):
                left_out, progress = tried, True
        needed = [place for place in needed if place not in left_out]
        if not progress or size > len(needed):
            size //= 2
    return left_out


def violates(whole: Scenario, left_out: list[int], law: str) -> bool:
    """Whether the scenario without these parts violates the law."""
    return any(violation.law == law for violation in run(without(whole, left_out)).violations)


def without(whole: Scenario, left_out: list[int]) -> Scenario:
    """The scenario without the parts in these places."""
    parts = whole.parts()
    return whole.without([parts[place] for place in left_out])
