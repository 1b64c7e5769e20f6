"""`python -m tests.simulation.relayed`: run worlds of edges and principals; exit status 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.relayed.scenario import Relayed
from tests.simulation.relayed.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.relayed", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--worlds", type=int, default=20, help="how many worlds")
    parser.add_argument("--notes", action="store_true", help="all that happened in them")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.worlds):
        outcome = run(Relayed.draw(seed))
        failed += bool(outcome.violations)
        if options.notes:
            for note in outcome.notes:
                print(f"{note.n:5} {note.at:9.4f} {note.life} {note.kind:9} {note.facts}")
            print(*outcome.log, sep="\n")
        if outcome.violations:
            print(f"seed {seed}: {'; '.join(map(str, outcome.violations))}")
    print(f"{options.worlds} worlds from seed {options.seed} on, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
