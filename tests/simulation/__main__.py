"""`python -m tests.simulation`: run worlds, say what they did; exit status 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.progress import Progress
from tests.simulation.campaign import Campaign
from tests.simulation.march import march
from tests.simulation.scenario import Scenario
from tests.simulation.shrink import only
from tests.simulation.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed (default: where the campaign stands, or 0)")
    parser.add_argument("--worlds", type=int, help="how many worlds, with those that the state has")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes at a time (default: 1)")
    parser.add_argument("--state", type=Path, help="keep the campaign in this file, and go on where it stands")
    parser.add_argument("--report", type=Path, help="write a fragment of Markdown")
    parser.add_argument("--notes", action="store_true", help="one world only, and all that happened in it")
    parser.add_argument("--only", help="with --notes: these parts of the scenario alone, by number")
    options = parser.parse_args()
    if options.notes:
        return _one(options.seed or 0, options.only)
    campaign = Campaign.load(options.state)
    if options.seed is not None:
        campaign.next_seed = options.seed
    wanted = 100 if options.worlds is None and options.seconds is None else options.worlds
    worlds = None if wanted is None else max(0, wanted - campaign.worlds)
    with Progress(campaign.summary) as progress:
        march(
            campaign,
            worlds=worlds,
            seconds=options.seconds,
            path=options.state,
            jobs=options.jobs,
            tell=progress.tell,
            merged=progress,
        )
    print(campaign.summary())
    if options.report is not None:
        options.report.write_text(campaign.report())
    return 1 if campaign.failures else 0


def _one(seed: int, places: str | None) -> int:
    scenario = Scenario.draw(seed)
    outcome = run(scenario if places is None else only(scenario, [int(place) for place in places.split(",") if place]))
    print(outcome.scenario)
    for note in outcome.notes:
        print(f"{note.n:5} {note.at:9.4f} {note.life} {note.kind:9} {note.facts}")
    for line in (*outcome.log, *outcome.violations, outcome.trace):
        print(line)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; what was merged is kept in the file of --state")
