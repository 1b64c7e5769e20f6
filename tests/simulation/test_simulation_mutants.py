"""The oracle can fail: faults made by hand in the product are caught within a bounded number of worlds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import Scenario
from tests.simulation.world import run

WORLDS = 400


@pytest.mark.parametrize(("mutant", "law"), MUTANTS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_made_by_hand_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    assert any(_breaks(seed, law) for seed in range(WORLDS))


def _breaks(seed: int, law: str) -> bool:
    return law in [violation.law for violation in run(Scenario.draw(seed)).violations]
