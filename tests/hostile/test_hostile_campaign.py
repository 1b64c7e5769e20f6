"""The long run: rounds by turns, taken up where they ended, and a failure that can be repeated."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.hostile import campaign
from tests.hostile.campaign import Failed, Kind, Progress


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Kind, int]]:
    """The rounds that were run, instead of real ones: frames count ten, requests a hundred; round 7 fails."""
    run: list[tuple[Kind, int]] = []

    def stand_in(kind: Kind, count: int):  # type: ignore[no-untyped-def]
        async def one(seed: int, round: int) -> int:
            await trio.lowlevel.checkpoint()
            assert round != 7, f"seed {seed}"
            run.append((kind, round))
            return count

        return one

    monkeypatch.setattr(campaign, "ROUNDS", {"frames": stand_in("frames", 10), "requests": stand_in("requests", 100)})
    return run


def test_both_kinds_are_run_by_turns_and_taken_up_where_they_ended(
    rounds: list[tuple[Kind, int]], tmp_path: Path
) -> None:
    path = tmp_path / ".cache" / "progress.json"
    list(campaign.campaign(1, {"frames": 40, "requests": 200}, 0.0, path))
    list(campaign.campaign(1, {"frames": 40, "requests": 200}, math.inf, path))

    assert sorted(rounds) == [*(("frames", n) for n in range(4)), *(("requests", n) for n in range(2))]
    assert rounds[:3] == [("frames", 0), ("requests", 0), ("frames", 1)]
    assert Progress.load(path).frames.done == 40


def test_a_failure_names_its_round_and_is_not_counted(rounds: list[tuple[Kind, int]], tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    with pytest.raises(Failed, match="seed 3") as failed:
        list(campaign.campaign(3, {"frames": 1000, "requests": 0}, math.inf, path))

    assert (failed.value.kind, failed.value.round) == ("frames", 7)
    assert Progress.load(path).frames.rounds == 7


def test_the_command_runs_one_round_and_prints_its_rate(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.hostile", "--seed", "5", "--only", "frames", "3"]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.startswith("2,000 frames (")
