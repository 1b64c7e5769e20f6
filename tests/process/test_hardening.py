"""What a process with secrets shows to others: nothing, and no core, whatever the umask and the limits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ENDLESS = resource.RLIM_INFINITY
linux = pytest.mark.skipif(sys.platform != "linux", reason="what a process may hide is the system's own affair")
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
"""Root, but without its powers, is a user like others."""
POLICY = "version: 1\ninputs: {g: {type: generate, count: 1}}\noutputs: {main: {type: file, path: %s}}\n"


def permissive() -> None:
    os.umask(0)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sidecar that is `ready`, started with an open umask and with cores allowed."""
    command = [*UNPRIVILEGED, sys.executable, "-m", "shipper", "run", "--state", str(tmp_path / "state")]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, preexec_fn=permissive
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"type":"hello","protocol":1}\n')
        process.stdin.flush()
        assert b'"ready"' in process.stdout.readline()
        yield process
        process.kill()


def modes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.lstat().st_mode & 0o777 for path in directory.rglob("*")}


@linux
def test_a_sidecar_that_crashes_leaves_no_core(running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    limits = Path(f"/proc/{running.pid}/limits").read_text()
    (cores,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    os.kill(running.pid, signal.SIGABRT)
    _, status = os.waitpid(running.pid, 0)
    running.returncode = -signal.SIGABRT

    assert cores.split()[4] == "0"
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert not os.WCOREDUMP(status)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@linux
def test_no_process_of_the_same_user_looks_into_a_sidecar(running: subprocess.Popen[bytes]) -> None:
    program = "import sys; open(sys.argv[1], 'rb').read()"
    command = [*UNPRIVILEGED, sys.executable, "-c", program, f"/proc/{running.pid}/environ"]
    looked = subprocess.run(command, capture_output=True)

    assert looked.returncode != 0
    assert b"PermissionError" in looked.stderr


def test_whatever_the_umask_the_state_directory_is_for_its_owner_alone(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert set(modes(tmp_path / "state").values()) == {0o600}


def test_whatever_the_umask_so_is_that_of_a_supervisor(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY % (tmp_path / "out.ndjson"))
    options = ["--state", str(tmp_path / "made" / "state"), "--once"]
    command = [sys.executable, "-m", "shipper", "supervise", str(tmp_path / "policy.yaml"), *options]
    ended = subprocess.run(command, preexec_fn=permissive, capture_output=True, timeout=60)
    found = modes(tmp_path / "made" / "state")

    assert ended.returncode == 0, ended.stderr
    assert found.pop("sidecar") == 0o700
    assert set(found.values()) == {0o600}
    assert {"supervise.key", "supervise.json", "sidecar/state.key", "sidecar/keyring"} <= found.keys()
    assert (tmp_path / "made" / "state").stat().st_mode & 0o777 == 0o700
