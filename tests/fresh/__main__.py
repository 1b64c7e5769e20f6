"""See the docstring of the package."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from tests.backends.recipe import Unavailable
from tests.fresh.debian import Debian, fresh

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "build" / "fresh"
LAST_LINES = 20
SECONDS = 3600.0
"""For one of the commands."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fresh")
    parser.add_argument("suites", nargs="+", metavar="SUITE", help="of Debian, such as bookworm")
    parser.add_argument("--pytest-args", default="", help="those of `make test`, to try a part of it")
    given = parser.parse_args()
    commands = ["make run", f"make test PYTEST_ARGS={shlex.quote(given.pytest_args)}"]
    failed = [suite for suite in given.suites if not _passes(suite, commands)]
    return 1 if failed else 0


def _passes(suite: str, commands: list[str]) -> bool:
    log = LOGS / f"{suite}.log"
    LOGS.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    try:
        with fresh(suite) as machine:
            machine.clone(ROOT)
            return all(_goes_well(suite, machine, command, log) for command in commands)
    except Unavailable as why:
        _say(f"{suite}: {why}")
        return False


def _goes_well(suite: str, machine: Debian, command: str, log: Path) -> bool:
    _say(f"{suite}: {command}")
    begun = time.monotonic()
    status = machine.run(command, log, SECONDS)
    _say(f"{suite}: {command}: {time.monotonic() - begun:.0f} s, {f'status {status}' if status else 'well'}")
    if status:
        lines = log.read_text(errors="replace").splitlines()
        _say("\n".join(["    ...", *(f"    {line}" for line in lines[-LAST_LINES:]), f"all of it: {log}"]))
    return status == 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
