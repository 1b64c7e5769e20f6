"""Some rounds, one after the other, in any process: what they came to."""

from __future__ import annotations

import gc
from typing import NamedTuple

from tests.march.kind import Kind, Outcome
from tests.march.shrink import shrink
from tests.march.sums import Sums


class Tour(NamedTuple):
    """The sums of some rounds, and what is to be told of those that failed."""

    sums: Sums
    told: list[str]


def tour(kind: Kind, seeds: range) -> Tour:
    """Run these rounds."""
    sums, told = Sums(next_seed=seeds.stop), []
    for seed in seeds:
        began = kind.clock()
        outcome = kind.run(kind.draw(seed))
        sums.add(seed, outcome, kind.clock() - began)
        if outcome.violations:
            told.append(describe(kind, seed, outcome))
        if kind.twice_every and seed % kind.twice_every == 0:
            _repeat(kind, seed, sums, outcome)
    gc.collect()
    return Tour(sums, told)


def _repeat(kind: Kind, seed: int, sums: Sums, outcome: Outcome) -> None:
    sums.repeated += 1
    if kind.run(kind.draw(seed)).trace != outcome.trace:
        sums.failures[str(seed)] = "the same seed had another trace"


def describe(kind: Kind, seed: int, outcome: Outcome) -> str:
    """What failed, the smallest scenario that does, and the one command that shows it again."""
    said = [f"seed {seed}: {'; '.join(map(str, outcome.violations[:5]))}"]
    again = f"  again:  {kind.command} --seed {seed}"
    if parts := kind.draw(seed).parts():
        places = shrink(kind, seed, outcome.violations[0].law)
        said.append(f"  needed: {', '.join(_name(parts[place]) for place in places)}")
        again += f" --only {','.join(map(str, places))}"
    return "\n".join([*said, f"{again} --notes"])


def _name(part: object) -> str:
    return part if isinstance(part, str) else f"{getattr(part, 'kind', part)} at {getattr(part, 'at', 0.0):.3f}"
