"""The options of every campaign over seeds, and what they do."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from tests.march.kind import Kind
from tests.march.march import march
from tests.march.shrink import only
from tests.march.sums import Sums
from tests.progress import Progress


def parser(module: str, about: str | None) -> argparse.ArgumentParser:
    """One with the options that `campaign` looks at; a kind may add its own."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    made.add_argument("--seed", type=int, help="the first seed (default: where the campaign stands, or 0)")
    made.add_argument("--rounds", "--worlds", type=int, help="how many, with those that the state has")
    made.add_argument("--longest", type=float, metavar="SECONDS", help="begin nothing new after so long")
    made.add_argument("--jobs", type=int, default=1, help="how many processes at a time (default: 1)")
    made.add_argument("--state", type=Path, help="keep the campaign in this file, and go on where it stands")
    made.add_argument("--report", type=Path, help="write a fragment of Markdown")
    made.add_argument("--notes", action="store_true", help="one round only, and all that happened in it")
    made.add_argument("--only", help="with --notes: these parts of the scenario alone, by number")
    return made


def campaign(kind: Kind, options: argparse.Namespace, usual: int = 100) -> int:
    """Run rounds, say what they did; the exit status is 1 if a promise was broken. `usual`: how many, unless told."""
    if options.notes:
        return _one(kind, options.seed or 0, options.only)
    sums = Sums.load(options.state)
    if options.seed is not None:
        sums.next_seed = options.seed
    wanted = usual if options.rounds is None and options.longest is None else options.rounds
    rounds = None if wanted is None else max(0, wanted - sums.rounds)
    try:
        with Progress(partial(sums.summary, kind.unit)) as progress:
            march(
                kind,
                sums,
                rounds=rounds,
                seconds=options.longest,
                path=options.state,
                jobs=options.jobs,
                tell=progress.tell,
                merged=progress,
            )
    finally:  # also of what was done before an interrupt
        if options.report is not None and sums.rounds:
            options.report.write_text(sums.report(kind.unit))
    print(sums.summary(kind.unit))
    return 1 if sums.failures else 0


def _one(kind: Kind, seed: int, places: str | None) -> int:
    whole = kind.draw(seed)
    scenario = whole if places is None else only(whole, [int(place) for place in places.split(",") if place])
    outcome = kind.run(scenario)
    print(scenario, *outcome.told(), *outcome.violations, sep="\n")
    return 1 if outcome.violations else 0
