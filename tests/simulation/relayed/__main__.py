"""`python -m tests.simulation.relayed`: run worlds of edges and principals; exit status 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys

from tests.progress import Progress
from tests.simulation.campaign import Campaign
from tests.simulation.march import march
from tests.simulation.relayed.scenario import Relayed
from tests.simulation.relayed.tour import tour
from tests.simulation.relayed.world import run

SLICE = 5
"""Worlds that a process runs at once: each takes half a second."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.relayed", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--worlds", type=int, help="how many worlds (default: 20, or as many as there is time for)")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes at a time (default: 1)")
    parser.add_argument("--notes", action="store_true", help="the first of them only, and all that happened in it")
    options = parser.parse_args()
    if options.notes:
        return _one(options.seed)
    campaign = Campaign(next_seed=options.seed)
    worlds = 20 if options.worlds is None and options.seconds is None else options.worlds
    with Progress(campaign.summary) as progress:
        march(
            campaign,
            worlds=worlds,
            seconds=options.seconds,
            jobs=options.jobs,
            tell=progress.tell,
            merged=progress,
            make=tour,
            size=SLICE,
        )
    print(campaign.summary())
    return 1 if campaign.failures else 0


def _one(seed: int) -> int:
    outcome = run(Relayed.draw(seed))
    print(outcome.scenario)
    for note in outcome.notes:
        print(f"{note.n:5} {note.at:9.4f} {note.life} {note.kind:9} {note.facts}")
    print(*outcome.log, *outcome.violations, sep="\n")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
