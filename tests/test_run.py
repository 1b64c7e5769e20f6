"""`shipper run` as a process: what it does before the sidecar is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HELLO = '{"type":"hello","protocol":1}\n'
PATIENCE = 30.0


def run(state: Path, redirected: str) -> subprocess.CompletedProcess[str]:
    """With standard channels redirected by a shell; `hello` and the end of input are what it reads."""
    command = [f'exec "$@" {redirected}', "sh", sys.executable, "-m", "shipper", "run", "--state", str(state)]
    return subprocess.run(["sh", "-c", *command], input=HELLO, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("closed", "said"),
    [("2>&-", ["ready", "stopped"]), ("<&-", ["stopped"]), (">&-", []), ("<&- >&- 2>&-", [])],
)
def test_a_channel_that_is_closed_at_the_start_is_one_of_nothing(tmp_path: Path, closed: str, said: list[str]) -> None:
    done = run(tmp_path / "state", closed)
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    assert [type for type in types if type != "observed"] == said
