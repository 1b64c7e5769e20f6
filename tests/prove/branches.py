"""`python -m tests.prove.branches`: which branches of what `drained` stands on no ordinary test takes. There are none.

Ordinary tests only: neither simulated worlds nor drawn input count, since a branch that chance takes is no one's test.
What is measured, and that all of it must be covered, stands in `pyproject.toml`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.prove.sizes import ROOT

TESTS = [
    "tests/spool",
    *(f"tests/pipeline/test_{name}.py" for name in ("lane", "parcels", "plan", "delivery", "attempt", "backlog")),
    *(f"tests/pipeline/test_{name}.py" for name in ("slots", "heads", "strict_order", "keyed_state")),
    *(f"tests/revisions/test_{name}.py" for name in ("rollout", "machine", "orders", "deadline")),
    *(f"tests/control/test_{name}.py" for name in ("actions", "conversation")),
]
ORDINARY = "not hypothesis and not root"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove.branches", description=__doc__)
    parser.add_argument("--report", type=Path, help="write a fragment of Markdown")
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        measured = ["--data-file", str(Path(directory, "measured"))]
        tests = _coverage("run", *measured, "-m", "pytest", "-q", "-m", ORDINARY, *TESTS)
        report = _coverage("report", *measured, "--format=markdown")
    print((tests if tests.returncode else report).stdout)
    if options.report is not None:
        command = " ".join(["pytest", "-m", repr(ORDINARY), *TESTS])
        options.report.write_text(f"### Branch coverage\n\n`{command}`\n\n{report.stdout}")
    return tests.returncode or report.returncode


def _coverage(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
