"""`python -m tests.prove.crashes`: real processes lose their power at drawn writes.

A round is a few tests with another seed: of a whole sidecar and of a new generation of its database, recorded and cut
at any call (`tests.torn`), and of a file system that loses what was not synced.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Kind, Told, Violation
from tests.prove.sizes import ROOT

RECORDED = ("tests/story/test_story_torn.py", "tests/spool/test_spool_torn.py")
LIVED = ("tests/story/test_story_power.py",)
LIVED_EVERY = 20
"""So many cuts of what was recorded take as long as one of a file system."""
_FAILED = re.compile(r"^(?:FAILED|ERROR|SKIPPED) (.*)", re.M)


@dataclass(frozen=True)
class Round(Drawn):
    """The tests, with so many cuts of each life that is recorded."""

    seed: int
    cuts: int


def draw(cuts: int, seed: int) -> Round:
    """With so many cuts."""
    return Round(seed, cuts)


def run(drawn: Round) -> Told:
    """Runs the tests; that one was skipped is a failure, too."""
    lived = max(1, drawn.cuts // LIVED_EVERY)
    said = [_run(RECORDED, drawn.seed, drawn.cuts), _run(LIVED, drawn.seed, lived)]
    wrong = [Violation("D", why) for text in said for why in _FAILED.findall(text)]
    cuts = Counter({"cuts of a recording": drawn.cuts * len(RECORDED), "cuts of a file system": lived})
    return Told(wrong, cuts, words=tuple(said))


def _run(tests: Sequence[str], seed: int, cuts: int) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-rsfE", "--limit=0", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"SEED": str(seed), "CUTS": str(cuts)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return ended.stdout if ended.returncode in (0, 1) else f"{ended.stdout}\nERROR exit status {ended.returncode}"


def crashes(cuts: int) -> Kind:
    """The kind of this campaign."""
    command = f"python -m tests.prove.crashes --cuts {cuts}"
    return Kind(command, partial(draw, cuts), run, unit="rounds", slice=1, clock=time.monotonic, twice_every=0)


def main() -> int:
    options = parser("tests.prove.crashes", __doc__)
    options.add_argument("--cuts", type=int, default=120, help="of each life that is recorded")
    told = options.parse_args()
    return campaign(crashes(told.cuts), told, usual=1)


if __name__ == "__main__":
    sys.exit(main())
