"""The targets of guided fuzzing hold for what they begin with, damaged too, and the command tells of a run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.hostile.frames import mutated
from tests.hostile.seeds import SEEDS
from tests.hostile.targets import TARGETS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_for_its_seeds_and_for_what_damage_makes_of_them(name: str) -> None:
    draw = Random(name)
    for seed in SEEDS[name]:
        TARGETS[name](seed)
        for _ in range(100):
            TARGETS[name](mutated(draw, seed))


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has wheels for Linux on x86-64 only")
def test_a_run_keeps_what_reaches_something_new(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hostile.guided", "--seconds", "2", "--target", "bulk-request", "--notes"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    kept = list((tmp_path / ".cache" / "guided" / "bulk-request" / "corpus").iterdir())

    assert ended.returncode == 0, ended.stdout
    assert "bulk-request: " in ended.stdout
    assert len(kept) > len(SEEDS["bulk-request"])
