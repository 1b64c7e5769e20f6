"""The simulation itself: that it holds for a short campaign, repeats itself, shrinks, and goes on where it stood."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import trio

from shipper.revisions.rollout import Rollout
from tests.march.march import march
from tests.march.shrink import only, shrink
from tests.march.sums import Sums
from tests.simulation.scenario import KEYED_RATES, KEYED_STEPS, LATER_STEPS, RATES, STEPS, Scenario
from tests.simulation.world import WORLDS, run

ROOT = Path(__file__).parents[2]


def test_a_short_campaign_keeps_every_promise() -> None:
    told: list[str] = []
    sums = Sums()
    march(WORLDS, sums, rounds=12, tell=told.append)

    assert told == []
    assert sums.failures == {}
    assert sums.figures["barriers acknowledged"] > 12


def test_the_same_seed_has_the_same_trace() -> None:
    for seed in range(2):
        assert run(Scenario.draw(seed)).trace == run(Scenario.draw(seed)).trace


def test_another_process_with_other_hashes_has_the_same_trace() -> None:
    program = (
        "from tests.simulation.scenario import Scenario\nfrom tests.simulation.world import run\n"
        "print([run(Scenario.draw(seed)).trace for seed in range(5)])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    other = subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True)

    assert other.stdout.strip() == str([run(Scenario.draw(seed)).trace for seed in range(5)]), other.stderr


@pytest.mark.parametrize("folder", ["simulation", "simulation/relayed"])
def test_an_oracle_looks_for_no_note_that_nobody_writes(folder: str) -> None:
    """A law that waits for one would hold in every world."""
    judges = ("case.py", "last_word.py", "oracle.py")
    files = [*Path(ROOT, "tests", folder).glob("*.py"), *Path(ROOT, "tests/simulation").glob("*.py")]
    written = "".join(file.read_text() for file in files if file.name not in judges)
    awaited = {
        kind
        for judge in judges
        if (file := Path(ROOT, "tests", folder, judge)).exists()
        for kind in re.findall(r'(?:case|\.kind ==) "(\w+)"', file.read_text())
    }

    assert awaited
    assert {kind for kind in awaited if f'"{kind}"' not in written} == set()


def test_every_fault_and_every_step_is_drawn_by_some_of_a_hundred_seeds() -> None:
    drawn = {name for seed in range(100) for name in Scenario.draw(seed).names()}

    assert drawn == {*RATES, *STEPS, *LATER_STEPS, *KEYED_RATES, *KEYED_STEPS, "place_refused", "write", "lease"}


def test_some_seeds_have_keyed_state_and_the_others_know_nothing_of_it() -> None:
    scenarios = [Scenario.draw(seed) for seed in range(100)]
    keyed = [scenario for scenario in scenarios if scenario.keys]

    assert 20 <= len(keyed) <= 60
    assert all(("things" in scenario.inputs) == (scenario.keys > 0) for scenario in scenarios)
    assert not any(scenario.names() & {*KEYED_RATES, *KEYED_STEPS} for scenario in scenarios if not scenario.keys)


def test_some_seeds_have_a_rush_of_revisions_which_drain_one_after_the_other() -> None:
    scenarios = [Scenario.draw(seed) for seed in range(100)]
    rushes = [sum(step.patience > 0 for step in scenario.steps) for scenario in scenarios]
    seed = next(seed for seed, steps in enumerate(rushes) if steps > 20)

    assert 10 <= sum(steps > 0 for steps in rushes) <= 35
    assert run(scenarios[seed]).barriers > 10


def test_a_failure_is_shrunk_to_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.spool.revisions.orders_run", _fails)
    seed, law = next(
        (seed, outcome.violations[0].law) for seed in range(100) if (outcome := run(Scenario.draw(seed))).violations
    )
    whole = Scenario.draw(seed)
    needed = shrink(WORLDS, seed, law)

    assert len(needed) < len(whole.parts()) / 2
    assert law in [violation.law for violation in run(only(whole, needed)).violations]


def _fails(*arguments: object) -> bool:
    raise ZeroDivisionError


SMALL = replace(WORLDS, slice=2)


def test_a_campaign_goes_on_where_it_stood(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "simulation.json"
    march(SMALL, Sums.load(path), rounds=2, path=path)
    march(SMALL, Sums.load(path), rounds=3, path=path)
    both = Sums.load(path)
    whole = Sums()
    march(SMALL, whole, rounds=5)

    assert (both.rounds, both.next_seed) == (5, 5)
    assert (both.faults, both.figures) == (whole.faults, whole.figures)


def test_two_jobs_come_to_the_same_as_one(tmp_path: Path) -> None:
    """All but how long it took."""
    one, two = Sums(next_seed=97), Sums(next_seed=97)
    march(SMALL, one, rounds=9)
    march(SMALL, two, rounds=9, jobs=2, path=tmp_path / "state.json")

    assert replace(two, seconds=0.0) == replace(one, seconds=0.0)
    assert Sums.load(tmp_path / "state.json") == two
    assert one.repeated == 1


def test_a_worker_that_dies_ends_the_march(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.march.march._work", _die)

    with pytest.raises((EOFError, ConnectionError)):
        march(WORLDS, Sums(), rounds=200, jobs=2)


def _die(pipe: Connection, kind: object) -> None:
    os._exit(1)


def test_a_world_that_does_not_repeat_itself_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = iter(range(1000))
    monkeypatch.setattr("tests.simulation.world.digest", lambda notes: str(next(traces)))
    sums = Sums()
    march(WORLDS, sums, rounds=1)

    assert sums.failures == {"0": "the same seed had another trace"}


def test_a_hot_loop_ends_the_world_and_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spin(self: Rollout) -> None:
        while True:
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Rollout, "watch", spin)
    monkeypatch.setattr("tests.simulation.stage.MOST_TURNS", 20_000)

    assert "L6" in [violation.law for violation in run(Scenario.draw(0)).violations]
