"""What a start and a stop cost: `shipper supervise` with its sidecar ships one line, and ends.

    python tests/benchmarks/startup.py [--runs 9]

Each run has empty state directories and ends by itself (`--once`); a run that is not counted goes before, so that all
is compiled. One row for an output that needs no library, one for an output that needs aiohttp:

CPU ms      user and system time of the supervisor and of the sidecar, as the kernel tells at the end (wait4), with the
            start and the end of both interpreters
user ms     the part of it that is no system time
ms          from the launch to the exit; much of it is waiting, for `--once` looks now and then whether all is delivered
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.child import COMPILED
from tests.benchmarks.figures import Table, progress, spread
from tests.benchmarks.pipeline import bulk_output, file_input, workplace
from tests.benchmarks.sink import sink


@dataclass(frozen=True)
class Run:
    """Seconds."""

    cpu: float
    user: float
    seconds: float


def once(place: Path, output: Mapping[str, Any]) -> Run:
    """One run in an empty directory; a run that fails ends the benchmark."""
    (place / "log").write_text("one line\n")
    inputs = {"main": file_input(place / "log", stop_at_end=True)}
    (place / "policy.yaml").write_text(json.dumps({"version": 1, "inputs": inputs, "outputs": {"main": output}}))
    command = [sys.executable, "-m", "shipper", "supervise", "policy.yaml", "--state", "state", "--once"]
    begun = time.monotonic()
    with (place / "said").open("wb") as said:
        child = subprocess.Popen(command, cwd=place, stdout=said, stderr=said, env=COMPILED)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the supervisor ended with {child.returncode}: {(place / 'said').read_text()[-2000:]}")
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_utime, time.monotonic() - begun)


def measure(runs: int) -> Table:
    """So many runs with each output, in turns."""
    taken: dict[str, list[Run]] = {"console": [], "elasticsearch": []}
    with sink() as target:
        outputs = {"console": {"type": "console"}, "elasticsearch": bulk_output(target.port)}
        for number in range(-1, runs):
            for name, output in outputs.items():
                progress(f"{name}: {number + 1} of {runs}")
                with workplace() as place:
                    run = once(place, output)
                if number >= 0:
                    taken[name].append(run)
    progress()
    return Table(["output", "CPU ms", "user ms", "ms"], [[name, *_cells(of)] for name, of in taken.items()])


def _cells(runs: list[Run]) -> list[str]:
    figures = [[getattr(run, name) * 1000 for run in runs] for name in ("cpu", "user", "seconds")]
    return [spread(values) for values in figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, metavar="N", help="of each output")
    print(measure(parser.parse_args().runs))


if __name__ == "__main__":
    main()
