"""What the command line of `shipper supervise` refuses before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--state", ""], 2, "--state: it is empty (an unset variable?)"),
        (["--state", "s", "--grace", "9000h"], 78, "--grace: at most 8760h"),
        (["--state", "s", "--grace", "soon"], 78, "--grace: expected a duration"),
    ],
)
def test_an_option_that_cannot_be_obeyed_is_named(
    tmp_path: Path, arguments: list[str], status: int, expected: str
) -> None:
    command = [sys.executable, "-m", "shipper", "supervise", "policy.yaml", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)

    assert (ended.returncode, expected in ended.stderr) == (status, True), ended.stderr
    assert list(tmp_path.iterdir()) == []
