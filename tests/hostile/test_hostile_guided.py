"""The targets of guided fuzzing hold for what they begin with, damaged too."""

from __future__ import annotations

from random import Random

import pytest

from tests.hostile.frames import mutated
from tests.hostile.seeds import SEEDS
from tests.hostile.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_for_its_seeds_and_for_what_damage_makes_of_them(name: str) -> None:
    draw = Random(name)
    for seed in SEEDS[name]:
        TARGETS[name](seed)
        for _ in range(50):
            TARGETS[name](mutated(draw, seed))
