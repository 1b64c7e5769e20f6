"""The long run: rounds by turns, taken up where they ended, and failures that are kept and can be repeated."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile.campaign import MOST_GROWTH, Failure, Progress, march
from tests.hostile.report import markdown
from tests.hostile.rounds import Kind, Outcome, Sent

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]


def stand_in(seed: int, kind: Kind, round: int) -> Outcome:
    """Frames fail in round 3, requests kill their process in round 2; memory is seen to grow in request round 4."""
    if (kind, round) == ("requests", 2):
        os.kill(os.getpid(), signal.SIGKILL)
    failure = f"seed {seed}" if (kind, round) == ("frames", 3) else None
    peak = MOST_GROWTH * 2 if (kind, round) == ("requests", 4) else 1
    size = 2000 if kind == "frames" else 1000
    return Outcome(kind, round, Sent(size, kinds=Counter({kind: size})), 1.0, failure, process=1, peak=peak)


def ran(progress: Progress, wanted: dict[Kind, int], seconds: float = math.inf, jobs: int = 1) -> list[tuple[str, int]]:
    return [(outcome.kind, outcome.round) for outcome in march(progress, wanted, seconds, jobs, run=stand_in)]


def test_a_failure_is_kept_and_told_and_the_rounds_behind_it_are_run_in_their_order() -> None:
    progress = Progress(9)
    rounds = ran(progress, {"frames": 10_000}, jobs=2)
    report = markdown(progress)

    assert rounds == [("frames", number) for number in range(5)]
    assert progress.failures == [Failure("frames", 3, "seed 9")]
    assert progress.sums["frames"].sent.done == 8000
    assert "Seed 9: 8,000 frames (2,000/s), 0 requests" in report
    assert "| frames | 8,000 |" in report
    assert "- frames 3: seed 9\n  again: `python -m tests.hostile --seed 9 --only frames 3`" in report


def test_the_command_runs_rounds_in_processes_and_leaves_state_and_report(tmp_path: Path) -> None:
    state, report = tmp_path / "state.json", tmp_path / "report.md"
    options = ["--frames", "2000", "--requests", "0", "--seed", "5", "--jobs", "2"]
    command = [sys.executable, "-m", "tests.hostile", *options, "--state", str(state), "--report", str(report)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("2,000 frames (")
    assert Progress.load(state, 5).sums["frames"].rounds == 1
    assert "| damaged |" in report.read_text()
