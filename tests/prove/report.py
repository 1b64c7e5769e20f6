"""The report: where it was run, what each campaign did, and what was found on the way."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.prove.sizes import CAMPAIGNS, ROOT, Campaign

FOUND = Path(__file__).with_name("found.md")
NOT_RUN = "Not run."


def written(below: Path, size: float) -> str:
    """The text, from what the campaigns have written so far."""
    parts = [_head(size), *(_section(campaign, below) for campaign in CAMPAIGNS), FOUND.read_text()]
    return "\n".join(part.strip() + "\n" for part in parts)


def _section(campaign: Campaign, below: Path) -> str:
    heading, fragment = f"### {campaign.title}", campaign.report(below)
    said = fragment.read_text() if fragment.exists() else NOT_RUN
    return f"{heading}\n\n{said.removeprefix(heading).strip()}"


def _head(size: float) -> str:
    asked = [f"{count:,} {unit}" for one in CAMPAIGNS for unit, _, count in one.amounts(size)]
    return "\n".join(
        [
            "# Proof",
            "",
            "Written by `make prove`: what tried to break the promise that no event is lost and no `drained` wrong.",
            "",
            f"- program: {_commit()}",
            f"- machine: {os.cpu_count()} cores of {_processor()}, {platform.system()} {platform.release()}, "
            f"Python {platform.python_version()}",
            f"- written at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; asked for: size {size:g}, which is "
            f"{', '.join(asked)}; what was done stands below",
            "",
            "## What was tried",
        ]
    )


def _commit() -> str:
    """The commit, and whether anything but the report differs from it."""
    head, changes = _git("rev-parse", "--short=8", "HEAD"), _git("status", "--porcelain", "-uno", ":!tests/PROOF.md")
    return f"{head}{'-dirty' if changes else ''}" if head else "not from a repository"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _processor() -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
