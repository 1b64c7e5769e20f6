"""`python -m tests.prove.crashes`: real processes lose their power, or are killed, at drawn writes.

A round is a few tests with another seed: of a whole sidecar and of a new generation of its database, recorded and cut
at any call (`tests.torn`), of a file system that loses what was not synced, and of a sidecar that is killed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial

from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Kind, Told, Violation
from tests.prove.sizes import ROOT

TESTS = (
    "tests/story/test_story_torn.py",
    "tests/spool/test_spool_torn.py",
    "tests/story/test_story_power.py",
    "tests/test_torn.py",
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.*)", re.M)


@dataclass(frozen=True)
class Round(Drawn):
    """The tests, with so many cuts of each life."""

    seed: int
    cuts: int

    @property
    def environment(self) -> dict[str, str]:
        """That the tests read."""
        return {"SEED": str(self.seed), "CUTS": str(self.cuts)}


def draw(cuts: int, seed: int) -> Round:
    """With so many cuts."""
    return Round(seed, cuts)


def run(drawn: Round) -> Told:
    """Runs the tests; that all were skipped is a failure, too."""
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "-p", "no:cacheprovider", *TESTS]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | drawn.environment, capture_output=True, text=True)
    passed = sum(int(count) for count in re.findall(r"(\d+) passed", ended.stdout))
    wrong = [Violation("D", text) for text in _FAILED.findall(ended.stdout)]
    if not wrong and (ended.returncode or "skipped" in ended.stdout.splitlines()[-1]):
        wrong = [Violation("D", ended.stdout[-1000:])]
    return Told(wrong, Counter(cuts=drawn.cuts), Counter({"tests passed": passed}), (ended.stdout,))


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
