"""The table of campaigns, the command that runs them, and what the published report says of each."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.prove.report import FOUND, NOT_RUN, written
from tests.prove.sizes import CAMPAIGNS, DECIDING, ROOT, program

NAMED = re.findall(r"(?:`|, )(test_\w+\.py)?::(test_\w+)`", FOUND.read_text())
REPORT = (ROOT / "tests" / "PROOF.md").read_text()


def test_every_regression_test_of_the_report_exists() -> None:
    written = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }

    assert len(NAMED) > 20
    assert {name for _, name in NAMED} <= written


def test_the_published_report_has_what_each_campaign_did_and_none_that_is_gone() -> None:
    tried = REPORT.split("## What was tried")[1].split("## What was found")[0]

    assert re.findall(r"^### (.*)$", tried, re.M) == [campaign.title for campaign in CAMPAIGNS]
    assert NOT_RUN not in tried
    assert re.search(r"^- program: [0-9a-f]{7,40}$", REPORT, re.M)


def test_each_campaign_is_a_module_and_deciding_modules_exist() -> None:
    assert all(find_spec(campaign.module.split()[0]) for campaign in CAMPAIGNS)
    assert all((ROOT / module).exists() for module in DECIDING)
    assert len({campaign.name for campaign in CAMPAIGNS}) == len(CAMPAIGNS)


def test_a_size_of_one_is_the_whole_a_smaller_one_its_share_and_a_tiny_one_still_a_round(tmp_path: Path) -> None:
    worlds = next(campaign for campaign in CAMPAIGNS if campaign.name == "simulation")
    ((_, option, whole),) = worlds.units

    assert worlds.amounts(0.1) == [("worlds", option, whole // 10)]
    assert all(count >= 1 for campaign in CAMPAIGNS for _, _, count in campaign.amounts(1e-9))
    assert worlds.command(1, 2, tmp_path)[1:] == [
        *("-m", "tests.simulation", option, str(whole), "--jobs", "2"),
        *("--state", str(tmp_path / "simulation.json"), "--report", str(tmp_path / "simulation.md")),
    ]


def test_what_does_not_grow_begins_anew_for_another_size(tmp_path: Path) -> None:
    states = {campaign.name: {campaign.state(size, tmp_path) for size in (0.1, 1)} for campaign in CAMPAIGNS}

    assert {name for name, paths in states.items() if len(paths) > 1} == {"guided", "explorations"}


def test_a_campaign_that_did_not_run_says_so(tmp_path: Path) -> None:
    assert written(tmp_path, 1).count(NOT_RUN) == len(CAMPAIGNS)


def test_a_changed_program_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "shipper").mkdir()
    (tmp_path / "shipper" / "lane.py").write_text("a = 1\n")
    before = program(tmp_path)
    (tmp_path / "shipper" / "lane.py").write_text("a = 2\n")

    assert program(tmp_path) != before


def test_the_command_runs_a_campaign_and_writes_the_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.prove", "--size", "1e-9", "--only", "members"]
    told = ["--state", tmp_path, "--report", tmp_path / "PROOF.md"]
    ended = subprocess.run([*command, *told], cwd=ROOT, capture_output=True, text=True, timeout=200)
    report = (tmp_path / "PROOF.md").read_text()

    assert ended.returncode == 0, ended.stderr
    assert report.count(NOT_RUN) == len(CAMPAIGNS) - 1
    assert "Seeds 0 to 0: 1 walks" in report
