"""A sidecar may have as many files open as the system lets it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest


def few() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are shown by Linux alone")
def test_a_sidecar_takes_the_hard_limit_of_open_files_for_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shipper", "run", "--state", str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=few) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type":"hello","protocol":1}\n')
        process.stdin.flush()
        assert b'"ready"' in process.stdout.readline()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        process.kill()
    (files,) = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]

    assert files[3] == files[4] != "256"
