"""Worlds of edges and principals: that the promises hold in some of them, and that they repeat themselves."""

from __future__ import annotations

from tests.simulation.relayed.deeds import KINDS
from tests.simulation.relayed.scenario import RATES, Relayed
from tests.simulation.relayed.world import run

WORLDS = 4


def test_every_promise_is_kept_in_some_worlds() -> None:
    broken = {seed: outcome.violations for seed in range(WORLDS) if (outcome := run(Relayed.draw(seed))).violations}

    assert broken == {}


def test_the_same_seed_has_the_same_trace() -> None:
    assert run(Relayed.draw(0)).trace == run(Relayed.draw(0)).trace


def test_every_fault_and_every_step_is_drawn_by_some_of_two_hundred_seeds() -> None:
    scenarios = [Relayed.draw(seed) for seed in range(200)]

    assert {name for scenario in scenarios for name in scenario.names()} == {*RATES, *KINDS}
    assert {scenario.delivers for scenario in scenarios} == {True, False}
    assert {scenario.trial for scenario in scenarios} == {None, "full", "hot"}
    chains = {(scenario.delivers, scenario.far_delivers) for scenario in scenarios if scenario.far}
    assert len(chains) == 4
