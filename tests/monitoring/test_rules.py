"""The rules are what Prometheus understands, and their pauses are those that they should have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.monitoring.prometheus import RULES

GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]


def promtool(*arguments: str) -> None:
    ended = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.needs("promtool")
def test_promtool_finds_nothing_wrong() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


@pytest.mark.needs("promtool")
def test_a_fault_must_last_before_it_is_an_alert() -> None:
    promtool("test", "rules", str(Path(__file__).with_name("rules.yaml")))


def is_complete(alert: dict[str, dict[str, str]]) -> bool:
    notes = alert["annotations"]
    return (
        alert["labels"]["severity"] in ("critical", "warning")
        and notes.keys() == {"summary", "description", "page"}
        and "$labels.instance" in notes["summary"]
        and notes["page"] == f"troubles.md#{str(alert['alert']).lower()}"
    )


def test_an_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    assert [alert["alert"] for alert in ALERTS if not is_complete(alert)] == []
