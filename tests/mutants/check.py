"""Runs a check in a tree: a selection of tests by pytest, or simulated worlds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_MODULE = "python -m "
_PYTEST = f"{_MODULE}pytest -q -x --no-header --tb=no --limit=60 -p no:cacheprovider --hypothesis-seed=0 "
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?:.*::)?(test_\w+|runTest)", re.M)
_BROKEN_LAW = re.compile(r"^(seed \d+: \w+)", re.M)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check said of a tree."""

    settlement: Literal["failed", "passed", "hung", "broken"]
    """`hung`: no test failed in time; `broken`: it could not be run. Neither says anything of the tree."""
    by: str
    """The test or the law that failed, or why nothing is said."""
    seconds: float


def run(check: str, tree: Path, seconds: float) -> Finding:
    """One check, to its first failure, or until its time is over."""
    began = time.monotonic()
    command = [sys.executable, *(check if check.startswith(_MODULE) else _PYTEST + check).split()[1:]]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tree, tree / "plugins", tree / "demo")))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Finding("hung", f"no end within {seconds:g} s", seconds)
    finally:
        _end(process)
    settlement, by = judge(process.returncode, output, simulated="tests.simulation" in command)
    return Finding(settlement, by, time.monotonic() - began)


def judge(status: int, output: str, *, simulated: bool) -> tuple[Literal["failed", "passed", "broken"], str]:
    """What an exit status and an output say, and by what: a test that failed, a law that was broken, or an error."""
    found = (_BROKEN_LAW if simulated else _FAILED).search(output)
    if status == 0:
        return "passed", ""
    if status == 1 and found is not None:
        return "failed", found[1]
    lines = output.strip().splitlines() or ["nothing was said"]
    return "broken", f"exit status {status}: {lines[-1]}"


def _end(process: subprocess.Popen[str]) -> None:
    """It and what it started in its group are gone afterwards."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
