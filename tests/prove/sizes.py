"""The campaigns, and how much of each a size is: a size of 1 is the whole of what is aimed at.

Each campaign is a command that writes a fragment of Markdown, keeps its state in a file, and goes on where that stands.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

DECIDING = (
    "shipper/revisions/machine.py",
    "shipper/pipeline/plan.py",
    *(f"shipper/pipeline/delivery/{name}.py" for name in ("backlog", "feed", "machine", "parcels", "probe", "request")),
    *(f"shipper/pipeline/{name}.py" for name in ("delivery/session", "delivery/waits")),
    *(f"shipper/pipeline/{name}.py" for name in ("attempts/attempt", "destination/lease", "memory/slots")),
    *(f"shipper/fleet/{name}.py" for name in ("judge", "known", "progress", "release", "standings")),
    "shipper/fleet/member",
    "shipper/membership/leases.py",
    "shipper/fleet/etcd/watch.py",
    *(f"shipper/kubernetes/{name}" for name in ("member", "judging.py", "merging.py")),
    *(f"shipper/kubernetes/summing/{name}.py" for name in ("finalizing", "judge", "liveness", "release")),
    *(f"shipper/supervise/{name}.py" for name in ("answers", "collected", "conversation", "releases", "standing")),
    *(
        f"plugins/shipper_plugins/relay/{name}.py"
        for name in ("digests", "frames", "state", "principal/generations", "principal/taken")
    ),
    *(f"shipper/spool/{name}.py" for name in ("awaited", "doubt", "holdings", "keyed", "places", "waiting")),
)
"""Modules that decide, mostly without I/O, of which faults are made by rule."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """One row of the table."""

    name: str
    title: str
    module: str
    """That runs it, by `python -m`."""
    units: tuple[tuple[str, str, int], ...] = ()
    """What is counted: the unit, the option that says how many, and the whole."""
    options: tuple[str, ...] = ()
    grows: bool = True
    """Whether a larger size goes on where a smaller one stands; otherwise it begins anew."""
    has_jobs: bool = True
    """Whether it may take several processes; a round of real ones takes all there are."""

    def amounts(self, size: float) -> list[tuple[str, str, int]]:
        """The unit, the option and the number of each, at a size; at least one."""
        return [(unit, option, max(1, round(whole * size))) for unit, option, whole in self.units]

    def command(self, size: float, jobs: int, below: Path) -> list[str]:
        """With its state and its report below a directory."""
        asked = [word for _, option, count in self.amounts(size) for word in (option, str(count))]
        given = [*asked, *self.options, *(["--jobs", str(jobs)] if self.has_jobs else [])]
        state = ["--state", str(self.state(size, below))] if self.units else []
        report = ["--report", str(self.report(below))]
        return [sys.executable, "-m", *self.module.split(), *given, *state, *report]

    def report(self, below: Path) -> Path:
        """The fragment."""
        return below / f"{self.name}.md"

    def state(self, size: float, below: Path) -> Path:
        """The file that it goes on from."""
        amounts = "" if self.grows else "".join(f"-{count}" for _, _, count in self.amounts(size))
        return below / f"{self.name}{amounts}.json"


def _seeds(unit: str, whole: int) -> tuple[tuple[str, str, int], ...]:
    return ((unit, "--rounds", whole),)


CAMPAIGNS: Sequence[Campaign] = (
    Campaign("mutants", "Faults made by hand", "tests.mutants", (("faults", "--count", 2000),)),
    Campaign("generated", "Faults made by rule", "tests.mutants --generated", (("faults", "--count", 3000),), DECIDING),
    Campaign("hostile", "Hostile input", "tests.hostile", _seeds("rounds", 1_000)),
    Campaign(
        "guided",
        "Guided input",
        "tests.hostile.guided",
        (("seconds of each target", "--seconds", 500),),
        grows=False,
    ),
    Campaign(
        "explorations",
        "Explored models",
        "tests.prove.explorations",
        (("states of each", "--states", 100_000),),
        grows=False,
    ),
    Campaign("simulation", "Simulated sidecars", "tests.simulation", _seeds("worlds", 100_000)),
    Campaign("relayed", "Simulated edges and principals", "tests.simulation.relayed", _seeds("worlds", 10_000)),
    Campaign("fleets", "Simulated fleets", "tests.simulation.fleets", _seeds("worlds", 10_000)),
    Campaign("large", "Large simulated fleets", "tests.simulation.fleets.large", _seeds("stories", 2_000)),
    Campaign("members", "Simulated members of Kubernetes", "tests.kubernetes.model", _seeds("walks", 100_000)),
    Campaign("crashes", "Power cuts and crashes", "tests.prove.crashes", _seeds("rounds", 200), has_jobs=False),
    Campaign(
        "processes",
        "Processes that are killed",
        "tests.campaign_relay",
        _seeds("rounds", 200),
        ("--harm", "15"),
        has_jobs=False,
    ),
    Campaign(
        "hosts",
        "Hosts of a fleet that are killed",
        "tests.campaign_fleet",
        _seeds("rounds", 100),
        ("--harm", "20"),
        has_jobs=False,
    ),
    Campaign(
        "cluster",
        "A cluster that changes",
        "tests.campaign_kubernetes",
        _seeds("rounds", 100),
        ("--members", "3", "--edits", "60", "--rotations", "8"),
        has_jobs=False,
    ),
    Campaign("branches", "Branch coverage", "tests.prove.branches", has_jobs=False),
)
"""In the order in which they run and are reported."""
NAMES = tuple(campaign.name for campaign in CAMPAIGNS)
_PROGRAM = (
    *("shipper", "plugins", "tests/march", "tests/simulation", "tests/hostile", "tests/kubernetes/model"),
    *("tests/campaign_relay", "tests/campaign_fleet", "tests/campaign_kubernetes"),
)


def program(root: Path = ROOT) -> str:
    """Another word for each change of the program and of the worlds and bytes that try it."""
    found = hashlib.sha256()
    for top in _PROGRAM:
        for path in sorted((root / top).rglob("*.py")):
            found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]
