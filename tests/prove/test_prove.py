"""The table of campaigns, the command that runs them, and what the published report says of each."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.prove.report import FOUND, NOT_RUN
from tests.prove.sizes import CAMPAIGNS, DECIDING, ROOT

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


def test_the_command_runs_a_campaign_and_writes_the_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.prove", "--size", "1e-9", "--only", "members"]
    told = ["--state", tmp_path, "--report", tmp_path / "PROOF.md"]
    ended = subprocess.run([*command, *told], cwd=ROOT, capture_output=True, text=True, timeout=200)
    report = (tmp_path / "PROOF.md").read_text()

    assert ended.returncode == 0, ended.stderr
    assert report.count(NOT_RUN) == len(CAMPAIGNS) - 1
    assert "Seeds 0 to 0: 1 walks" in report
