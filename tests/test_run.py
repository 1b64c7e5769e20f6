"""`shipper run` as a process: what it does before the sidecar is there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HELLO = '{"type":"hello","protocol":1}\n'
PATIENCE = 60.0

EARLY_SIGNAL = """
import os, signal, sys
from shipper.__main__ import main


class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "trio":
            os.kill(os.getpid(), signal.%s)

sys.meta_path.insert(0, Interrupted())
main(["run", "--state", sys.argv[1]])
"""


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


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_before_anybody_heeds_it_is_a_stop(tmp_path: Path, name: str) -> None:
    script = EARLY_SIGNAL % name
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        restore_signals=True,
    )
    with process:
        assert process.stdout is not None
        try:
            status = process.wait(PATIENCE)  # standard input stays open: nothing else ends it
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        said = process.stdout.read()

    assert (status, json.loads(said)["type"]) == (0, "stopped")


def test_a_sidecar_that_is_ready_blocks_no_signal_that_stops_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shipper", "run", "--state", str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(HELLO)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["type"] == "ready"
        deadline = time.monotonic() + PATIENCE
        # The C library blocks every signal for a moment while it starts a thread: only a lasting mask is a fault.
        while (blocked := blocked_stops(process.pid)) and time.monotonic() < deadline:
            os.sched_yield()
        process.stdin.close()

    assert not blocked


def blocked_stops(pid: int) -> int:
    """The signals that stop it and that the main thread of this process blocks now, as a mask."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("SigBlk:")[2].split()[0], 16) & (1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1))


def test_all_that_it_says_of_a_problem_has_a_code(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one line\n")
    outputs = f"outputs: {{main: {{type: file, path: {tmp_path}/out}}}}\n"
    ends = f"inputs: {{a: {{type: file, paths: [{tmp_path}/a.log], stop_at_end: true}}}}\n"
    command = [sys.executable, "-m", "shipper", "run", "--state", str(tmp_path / "state")]
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        listens = f"inputs: {{a: {{type: elasticsearch, address: '127.0.0.1:{taken.getsockname()[1]}'}}}}\n"

        def answer(message: dict[str, Any], wanted: str) -> Any:
            """The first message of a type that comes after this one was sent."""
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            return next(said for line in process.stdout if (said := json.loads(line))["type"] == wanted)

        def refused(number: int, policy: str) -> str:
            nack = answer({"type": "policy", "revision": number, "policy": "version: 1\n" + policy}, "nack")
            (error,) = nack["errors"]
            return f"{nack['reason']}: {error['code']}"

        assert answer({"type": "observe"}, "error")["code"] == "hello_first"
        answer(json.loads(HELLO), "ready")
        assert answer({"type": "fly"}, "error")["code"] == "unknown_type"
        assert answer({"type": "action", "id": "1", "name": "fly"}, "result")["code"] == "unknown_action"
        assert answer({"type": "action", "id": "2", "name": "diagnostics"}, "result")["code"] == "ok"
        assert refused(1, "outpts: {}\n") == "invalid: unknown_key"
        assert refused(2, listens + outputs) == "failed: port_taken"
        answer({"type": "policy", "revision": 3, "policy": "version: 1\n" + ends + outputs}, "ack")
        codes: dict[str, str] = {}
        while codes != {"inputs.a": "end_of_input", "outputs.main": "ok"}:
            codes = {unit["id"]: unit["code"] for unit in answer({"type": "observe"}, "observed")["units"]}
        answer({"type": "stop", "within_seconds": 5}, "stopped")
