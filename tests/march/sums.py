"""Sums over many rounds, which a small file keeps, and what fails among them."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.march.kind import Outcome


@dataclass
class Sums:
    """Of all rounds so far; `next_seed` is where the campaign goes on."""

    next_seed: int = 0
    rounds: int = 0
    seconds: float = 0.0
    """Of all processes together."""
    repeated: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    """By seed, what was violated."""

    @classmethod
    def load(cls, path: Path | None) -> Sums:
        """Those of a file; new ones if there is none."""
        if path is None or not path.exists():
            return cls()
        stored = json.loads(path.read_text())
        return cls(**{**stored, "faults": Counter(stored["faults"]), "figures": Counter(stored["figures"])})

    def save(self, path: Path) -> None:
        """Keep them, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".tmp")
        part.write_text(json.dumps(vars(self), indent=1))
        os.replace(part, path)

    def add(self, seed: int, outcome: Outcome, seconds: float) -> None:
        """One round more."""
        self.rounds += 1
        self.seconds += seconds
        self.figures += outcome.figures
        self.faults += outcome.faults
        if outcome.violations:
            self.failures[str(seed)] = "; ".join(map(str, outcome.violations[:5]))

    def merge(self, later: Sums) -> None:
        """The rounds of a campaign that went on where this one stands."""
        self.next_seed = later.next_seed
        self.rounds += later.rounds
        self.seconds += later.seconds
        self.repeated += later.repeated
        self.figures += later.figures
        self.faults += later.faults
        self.failures |= later.failures

    def summary(self, unit: str) -> str:
        """In one line."""
        took = f"{self.seconds / self.rounds:.2g} s each" if self.rounds else ""
        figures = [f"{number:,} {name}" for name, number in sorted(self.figures.items())]
        repeated = [f"{self.repeated:,} {unit} run twice"] if self.repeated else []
        done = [f"{self.rounds:,} {unit}", *([took] if took else []), *figures, *repeated]
        return f"{', '.join(done)}; {len(self.failures)} failed"

    def report(self, unit: str) -> str:
        """A fragment of Markdown."""
        faults = [f"| {name.replace('_', ' ')} | {number:,} |" for name, number in sorted(self.faults.items())]
        failures = [f"- seed {seed}: {text}" for seed, text in self.failures.items()]
        seeds = f"Seeds {self.next_seed - self.rounds} to {self.next_seed - 1}: {self.summary(unit)}."
        table = ["", "| what was done | times |", "|---|---:|", *faults] if faults else []
        return "\n".join([seeds, *table, *(["", *failures] if failures else []), ""])
