"""`python -m tests.simulation.fleets`: run worlds with a fleet; exit status 1 if a law was broken."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.fleets.scenario import Fleets
from tests.simulation.fleets.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fleets", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--worlds", type=int, default=20, help="how many worlds")
    parser.add_argument("--members", type=int, help="how many members, instead of those that the seed draws")
    parser.add_argument("--log", action="store_true", help="what happened in them")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.worlds):
        outcome = run(Fleets.draw(seed, options.members))
        failed += bool(outcome.violations)
        if options.log:
            print(outcome.scenario, *outcome.transcript.log, sep="\n")
        if outcome.violations:
            print(f"seed {seed}: {'; '.join(map(str, outcome.violations[:5]))}", flush=True)
    print(f"{options.worlds} worlds from seed {options.seed} on, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
