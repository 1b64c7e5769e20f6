"""How much is done at a size, as commands; a size of 1 is the whole of what is aimed at."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORLDS = 200_000
FRAMES = 1_000_000
REQUESTS = 1_000_000
NAMES = ("branches", "mutants", "hostile", "simulation")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A command that writes a fragment of Markdown; exit status 1 if something failed."""

    name: str
    command: tuple[str, ...]
    report: Path


def program(root: Path = ROOT) -> str:
    """Another word for each change of the program and of the worlds and bytes that try it."""
    found = hashlib.sha256()
    for top in ("shipper", "plugins", "tests/simulation", "tests/hostile"):
        for path in sorted((root / top).rglob("*.py")):
            found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def campaigns(size: float, jobs: int, below: Path) -> list[Campaign]:
    """The shorter ones first. Of the mutants, a tenth of the size takes all, a hundredth takes each tenth."""

    def campaign(name: str, *options: str | int) -> Campaign:
        report, state = below / f"{name}.md", below / f"{name}.json"
        command = (sys.executable, "-m", f"tests.{name}", *options)
        return Campaign(name, tuple(map(str, (*command, "--jobs", jobs, "--state", state, "--report", report))), report)

    every = max(1, round(1 / size) // 10)
    branches = below / "branches.md"
    return [
        Campaign("branches", (sys.executable, "-m", "tests.prove.branches", "--report", str(branches)), branches),
        campaign("mutants", "--every", every),
        campaign("hostile", "--frames", _share(FRAMES, size), "--requests", _share(REQUESTS, size)),
        campaign("simulation", "--worlds", _share(WORLDS, size)),
    ]


def _share(whole: int, size: float) -> int:
    return max(1, round(whole * size))
