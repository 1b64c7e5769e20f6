"""The command that runs the campaigns, and what its report says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prove.report import FOUND
from tests.prove.sizes import FRAMES, NAMES, ROOT, WORLDS, campaigns, program

NAMED = re.findall(r"(?:`|, )(test_\w+\.py)?::(test_\w+)`", FOUND.read_text())


def test_every_regression_test_of_the_report_exists() -> None:
    written = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }

    assert len(NAMED) > 20
    assert {name for _, name in NAMED} <= written


def test_a_size_of_one_is_the_whole_and_a_smaller_one_its_share(tmp_path: Path) -> None:
    whole, tenth = campaigns(1, 2, tmp_path), campaigns(0.1, 2, tmp_path)

    assert tuple(campaign.name for campaign in whole) == NAMES
    assert whole[1].command[3:5] == tenth[1].command[3:5] == ("--every", "1")
    assert whole[3].command[3:5] == ("--worlds", str(WORLDS))
    assert tenth[2].command[3:5] == ("--frames", str(FRAMES // 10))
    assert campaigns(0.01, 2, tmp_path)[1].command[3:5] == ("--every", "10")


def test_a_changed_program_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "shipper").mkdir()
    (tmp_path / "shipper" / "lane.py").write_text("a = 1\n")
    before = program(tmp_path)
    (tmp_path / "shipper" / "lane.py").write_text("a = 2\n")

    assert program(tmp_path) != before


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the smallest campaigns that there are; of the branches CI runs the tests anyway."""
    path = tmp_path_factory.mktemp("prove")
    command = [sys.executable, "-m", "tests.prove", "--size", "0.00001", "--jobs", "1"]
    for name in NAMES[1:]:
        told = ["--only", name, "--state", path, "--report", path / "PROOF.md"]
        subprocess.run([*command, *told], cwd=ROOT, check=True, timeout=200)
    return path / "PROOF.md"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("heading", ["### Faults made by hand", "### Hostile", "### Simulation", "## What was found"])
def test_a_report_has_what_every_campaign_did_and_what_was_found(report: Path, heading: str) -> None:
    assert heading in report.read_text()
