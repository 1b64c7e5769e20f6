"""The oracle can fail: faults made by hand in the relay are caught within a bounded number of worlds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice

import pytest

from tests.simulation.relayed.mutants import MUTANTS, Mutant
from tests.simulation.relayed.scenario import Relayed
from tests.simulation.relayed.world import run

WORLDS = 60


@pytest.mark.parametrize(("fault", "mutant"), MUTANTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_made_by_hand_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    scenarios = islice(filter(mutant.where, map(Relayed.draw, count())), WORLDS)

    assert any(mutant.law in [violation.law for violation in run(scenario).violations] for scenario in scenarios)
