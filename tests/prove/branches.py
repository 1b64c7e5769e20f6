"""`python -m tests.prove.branches`: which branches of what the promises stand on no ordinary test takes.

The modules and their floors stand in `rooms`, what is measured and how in `measured`. Here it runs with the folders
that test the rooms; whoever measures all tests finds no less.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.prove.measured import APART, REPORT, TESTS, Measured
from tests.prove.rooms import ROOMS, ROOT

WORKERS = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prove.branches", description=__doc__)
    parser.add_argument("--report", type=Path, help="write a fragment of Markdown")
    options = parser.parse_args()
    REPORT.unlink(missing_ok=True)
    found = (str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
    files = sorted(file for file in found if file.startswith(TESTS))
    unasked = " and ".join(f"not {mark}" for mark in sorted(APART))
    command = ["pytest", "-q", "--branches", f"--numprocesses={WORKERS}", "-m", unasked, *files]
    status = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode
    if options.report is not None and REPORT.exists():
        options.report.write_text(fragment("python -m tests.prove.branches", json.loads(REPORT.read_text())))
    return status


def fragment(command: str, report: dict[str, Any]) -> str:
    """The section of the proof about branches."""
    return "\n".join(["### Branch coverage", "", f"`{command}`", "", *_table(report), ""])


def _table(report: dict[str, Any]) -> Iterator[str]:
    yield "| room | modules | at 100 % | below it, of lines and branches |"
    yield "|---|---|---|---|"
    for room in ROOMS:
        every = [Measured.of(path, report["files"][path]) for path in room.floors()]
        below = [one for one in every if one.missing]
        named = ", ".join(f"{Path(one.module).stem} {one.percent} %" for one in below) or "none"
        yield f"| `{room.folder}` | {len(every)} | {len(every) - len(below)} | {named} |"


if __name__ == "__main__":
    sys.exit(main())
