"""Sums over many worlds, which a small file keeps, and what fails among them."""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.simulation.scenario import Scenario
from tests.simulation.shrink import shrink
from tests.simulation.world import Outcome, run

TWICE_EVERY = 100
"""Every so many worlds one is run twice: its trace must be the same."""


@dataclass
class Campaign:
    """The sums of all worlds so far; `next_seed` is where it goes on."""

    next_seed: int = 0
    worlds: int = 0
    seconds: float = 0.0
    virtual_seconds: float = 0.0
    barriers: int = 0
    processes: int = 0
    events: int = 0
    repeated: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    """By seed, what was violated."""

    @classmethod
    def load(cls, path: Path | None) -> Campaign:
        """The campaign of a file; a new one if there is none."""
        if path is None or not path.exists():
            return cls()
        stored = json.loads(path.read_text())
        return cls(**{**stored, "faults": Counter(stored["faults"])})

    def save(self, path: Path) -> None:
        """Keep it, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".tmp")
        part.write_text(json.dumps(vars(self), indent=1))
        os.replace(part, path)

    def add(self, outcome: Outcome, seconds: float) -> None:
        """One world more."""
        self.worlds += 1
        self.seconds += seconds
        self.virtual_seconds += outcome.notes[-1].at
        self.barriers += outcome.barriers
        self.processes += outcome.processes
        self.events += outcome.events
        self.faults += outcome.faults
        if outcome.violations:
            self.failures[str(outcome.scenario.seed)] = "; ".join(map(str, outcome.violations))

    def merge(self, later: Campaign) -> None:
        """The worlds of a campaign that went on where this one stands."""
        self.next_seed = later.next_seed
        for name in ("worlds", "seconds", "virtual_seconds", "barriers", "processes", "events", "repeated"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.faults += later.faults
        self.failures |= later.failures

    def summary(self) -> str:
        """In one line."""
        rate = self.worlds / self.seconds if self.seconds else 0.0
        return (
            f"{self.worlds:,} worlds, {rate:.0f} a CPU second, {self.virtual_seconds / 3600:,.1f} simulated hours, "
            f"{self.barriers:,} barriers acknowledged, {self.processes:,} processes, {self.events:,} events, "
            f"{self.faults.total():,} faults and steps, {self.repeated:,} worlds run twice, {len(self.failures)} failed"
        )

    def report(self) -> str:
        """A fragment of Markdown."""
        faults = [f"| {name.replace('_', ' ')} | {number:,} |" for name, number in sorted(self.faults.items())]
        failures = [f"- seed {seed}: {text}" for seed, text in self.failures.items()]
        return "\n".join(
            [
                "### Simulation",
                "",
                f"Seeds {self.next_seed - self.worlds} to {self.next_seed - 1}: {self.summary()}.",
                "",
                "| fault or step | times |",
                "|---|---:|",
                *faults,
                "",
                *failures,
                "",
            ]
        )


class Tour(NamedTuple):
    """What some worlds came to: their sums, and what is to be told of those that failed."""

    sums: Campaign
    told: list[str]


def tour(seeds: range) -> Tour:
    """Run these worlds."""
    sums = Campaign(next_seed=seeds.stop)
    told = []
    for seed in seeds:
        began = time.process_time()
        outcome = run(Scenario.draw(seed))
        sums.add(outcome, time.process_time() - began)
        if outcome.violations:
            told.append(describe(outcome))
        if seed % TWICE_EVERY == 0:
            _repeat(sums, outcome)
    gc.collect()
    return Tour(sums, told)


def _repeat(sums: Campaign, outcome: Outcome) -> None:
    sums.repeated += 1
    if run(outcome.scenario).trace != outcome.trace:
        sums.failures[str(outcome.scenario.seed)] = "the same seed had another trace"


def describe(outcome: Outcome) -> str:
    """What failed, the smallest scenario that does, and how to see it again."""
    seed, law = outcome.scenario.seed, outcome.violations[0].law
    places = shrink(seed, law)
    parts = outcome.scenario.parts()
    needed = [parts[place] for place in places]
    names = [part if isinstance(part, str) else f"{part.kind} at {part.at:.3f}" for part in needed]
    return "\n".join(
        [
            f"seed {seed}: {'; '.join(map(str, outcome.violations))}",
            f"  needed: {', '.join(names)}",
            f"  again:  python -m tests.simulation --seed {seed} --only {','.join(map(str, places))} --notes",
        ]
    )
