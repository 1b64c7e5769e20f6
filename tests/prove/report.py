"""The report: where it was run, what each campaign did, and what was found on the way."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.prove.sizes import FRAMES, REQUESTS, ROOT, WORLDS, Campaign

FOUND = Path(__file__).with_name("found.md")


def written(campaigns: Sequence[Campaign], size: float) -> str:
    """The text, from what the campaigns have written so far."""
    parts = [_head(size)]
    parts += [_fragment(campaign) for campaign in campaigns]
    return "\n".join([*(part.strip() + "\n" for part in parts), FOUND.read_text()])


def _fragment(campaign: Campaign) -> str:
    if campaign.report.exists():
        return campaign.report.read_text()
    return f"### {campaign.name.capitalize()}\n\nNot run.\n"


def _head(size: float) -> str:
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
            f"{WORLDS * size:,.0f} worlds, {FRAMES * size:,.0f} frames and {REQUESTS * size:,.0f} requests; "
            "what was done stands below",
            "",
            "## What was tried",
            "",
        ]
    )


def _commit() -> str:
    described = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    run = subprocess.run(described, cwd=ROOT, capture_output=True, text=True)
    return run.stdout.strip() if run.returncode == 0 else "not from a repository"


def _processor() -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
