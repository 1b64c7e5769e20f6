"""The targets of guided fuzzing hold for what they begin with, damaged too, and the command tells of a run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from shipper.policy.policy import parse
from tests.hostile import guided, targets
from tests.hostile.frames import mutated
from tests.hostile.seeds import POLICY, SEEDS
from tests.hostile.targets import REGISTRY, TARGETS, within_time

ROOT = Path(__file__).parents[2]


def test_each_target_has_modules_that_it_concerns() -> None:
    modules = {module for concerned in guided.CONCERNED.values() for module in concerned}

    assert guided.CONCERNED.keys() == TARGETS.keys() == SEEDS.keys()
    assert all(importlib.util.find_spec(module) for module in modules)
    assert modules <= set(guided.modules())


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_for_its_seeds_and_for_what_damage_makes_of_them(name: str) -> None:
    draw = Random(name)
    for seed in SEEDS[name]:
        TARGETS[name](seed)
        for _ in range(100):
            TARGETS[name](mutated(draw, seed))


def test_what_is_drawn_for_policies_begins_with_a_policy() -> None:
    assert list(parse(POLICY, REGISTRY).outputs) == ["main", "o"]


def test_more_than_linear_time_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECONDS", 0.01)

    def slow(content: bytes) -> None:
        for _ in range(len(content) ** 2 << 8):
            pass

    within_time(slow)(b"x")
    with pytest.raises(AssertionError, match="s for 300 bytes"):
        within_time(slow)(bytes(300))


def test_the_command_says_how_to_install_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["guided"])
    with pytest.raises(SystemExit):
        guided.main()

    assert "pip install --group guided" in capsys.readouterr().err


def test_the_figures_are_those_of_the_end() -> None:
    said = """#2 INITED cov: 3 ft: 3 corp: 1/1b
#9 NEW    cov: 40 ft: 51 corp: 7/90b
stat::number_of_executed_units: 12345
stat::average_exec_per_sec:     600
stat::peak_rss_mb:              61
"""

    assert guided.summary("policy", said) == (
        "policy: 12,345 executions (600/s), 40 edges, 51 features, 7 inputs kept, at most 61 MiB"
    )


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has wheels for Linux on x86-64 only")
def test_a_run_keeps_what_reaches_something_new(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile.guided", "--seconds", "2", "--target", "bulk-request", "--notes"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    kept = list((tmp_path / ".cache" / "guided" / "bulk-request" / "corpus").iterdir())

    assert ended.returncode == 0, ended.stdout
    assert "bulk-request: " in ended.stdout
    assert len(kept) > len(SEEDS["bulk-request"])
