"""Worlds with a fleet: that the laws hold in some of them, and that they repeat themselves."""

from __future__ import annotations

import pytest

from tests.simulation.fleets.scenario import STEPS, Fleets
from tests.simulation.fleets.world import run

WORLDS = 4
ONCE_FAILED = [30, 36, 37, 61]
"""A forgotten member and one that left with events; a name that another directory took after it was forgotten; two
directories that were put back after a release."""


@pytest.mark.parametrize("seed", [*range(WORLDS), *ONCE_FAILED])
def test_every_law_holds_in_some_worlds(seed: int) -> None:
    assert run(Fleets.draw(seed)).violations == []


def test_the_same_seed_has_the_same_transcript() -> None:
    one, other = (run(Fleets.draw(3)).transcript for _ in range(2))

    assert one == other


def test_every_step_is_drawn_by_some_of_two_hundred_seeds() -> None:
    assert {step.kind for seed in range(200) for step in Fleets.draw(seed).steps} == STEPS.keys()
