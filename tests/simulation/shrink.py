"""A smaller scenario that violates the same law: parts are left out as long as it still does."""

from __future__ import annotations

from tests.simulation.scenario import Scenario
from tests.simulation.world import run

MOST_RUNS = 300


def shrink(seed: int, law: str) -> list[int]:
    """The places, in `Scenario.parts` of the seed, of parts that are enough to violate `law`."""
    whole = Scenario.draw(seed)
    needed = list(range(len(whole.parts())))
    runs, size = 0, max(1, len(needed) // 2)
    while size and runs < MOST_RUNS:
        before = len(needed)
        for part in [needed[start : start + size] for start in range(0, before, size)]:
            fewer = [place for place in needed if place not in part]
            runs += 1
            if violates(only(whole, fewer), law):
                needed = fewer
        if len(needed) == before:
            size //= 2
    return needed


def violates(scenario: Scenario, law: str) -> bool:
    """Whether a world with this scenario violates the law."""
    return any(violation.law == law for violation in run(scenario).violations)


def only(whole: Scenario, places: list[int]) -> Scenario:
    """The scenario with the parts in these places alone."""
    return whole.without([part for place, part in enumerate(whole.parts()) if place not in places])
