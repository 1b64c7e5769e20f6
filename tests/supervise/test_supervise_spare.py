"""The first sidecar is forked from its supervisor, and nobody can tell by looking at it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shipper.supervise import spare

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="another system has no /proc, and executes every sidecar"
)
SEES_OTHERS = pytest.mark.root
"""A sidecar keeps itself from being traced: only root sees its environment and memory in /proc."""

LAUNCHING = """
import json, os, re, sys, trio
from pathlib import Path
from shipper.supervise import spare
from shipper.supervise.launcher import Launcher

secret = open(__file__ if "__file__" in globals() else os.devnull)
os.set_inheritable(secret.fileno(), True)
first = spare.fork()
os.environ["SECRET"] = "of the supervisor"

def target(descriptor):
    try:
        return os.path.basename(os.readlink(descriptor)).split(":")[0]
    except OSError:  # it was closed meanwhile
        return ""

def seen(process):
    proc = Path("/proc", str(process.pid))
    status = dict(re.findall(r"(\\w+):\\t(.*)", (proc / "status").read_text()))
    return {
        "command": (proc / "cmdline").read_text(),
        "environment": sorted(os.fsdecode((proc / "environ").read_bytes()).split("\\0")),
        "inherited": sorted(name for name in map(target, (proc / "fd").iterdir()) if name in ("null", "pipe")),
        "signals": [status[name] for name in ("SigIgn", "SigCgt")],
        "leads": os.getsid(process.pid) == os.getpgid(process.pid) == process.pid,
        "name": status["Name"], "directory": os.readlink(proc / "cwd"), "limits": (proc / "limits").read_text(),
    }

async def launched(launcher):
    child = await launcher.launch()
    process, found, lines = child._process, [], b""
    child.send({"type": "hello", "protocol": 1})
    async def received(message):
        if type(message).__name__ == "Ready":
            found.append({"is_forked": isinstance(process, spare.Forked), **seen(process)})
            child.send({"type": "stop", "within_seconds": 0})
    status = await child.converse(received, lambda: 60.0)
    return {**found[0], "status": status}

async def run(command):
    environment = {"PATH": os.environ["PATH"], "ODD": "\\udcff\\u2026"}
    launcher = Launcher(command, lambda: environment, trio.Event(), print, first)
    print(json.dumps([await launched(launcher), await launched(launcher)]))

trio.run(run, sys.argv[1:])
"""


def launched(command: Sequence[str]) -> list[dict[str, Any]]:
    """What two launches of a command have come to, one after the other."""
    program = [sys.executable, "-c", LAUNCHING, *command]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


@SEES_OTHERS
def test_the_first_sidecar_is_forked_and_looks_like_one_that_is_executed(tmp_path: Path) -> None:
    first, second = launched([*spare.PROGRAM, "run", "--state", str(tmp_path / "state")])

    assert (first.pop("is_forked"), second.pop("is_forked")) == (True, False)
    assert first == second
    assert first["status"] == 0
    assert first["leads"]


@SEES_OTHERS
def test_the_command_of_another_program_is_executed(tmp_path: Path) -> None:
    found = launched([sys.executable, "-m", "shipper", "run", "--state", str(tmp_path / "state")])

    assert [one["is_forked"] for one in found] == [False, False]


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "is killed"])
def test_a_spare_process_ends_with_its_supervisor(killed: bool) -> None:
    end = "os.kill(os.getpid(), 9)" if killed else ""
    program = f"import os\nfrom shipper.supervise import spare\nprint(spare.fork()._pid, flush=True)\n{end}"
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60)

    try:
        pidfd = os.pidfd_open(int(ended.stdout))
    except ProcessLookupError:
        return
    assert select.select([pidfd], [], [], 60)[0]
    os.close(pidfd)


@SEES_OTHERS
def test_one_that_was_killed_is_replaced_by_a_process_that_is_executed(tmp_path: Path) -> None:
    killing = "first = spare.fork()\nos.kill(first._pid, 9)\nos.waitid(os.P_PID, first._pid, os.WEXITED | os.WNOWAIT)"
    program = LAUNCHING.replace("first = spare.fork()", killing)
    command = [*spare.PROGRAM, "run", "--state", str(tmp_path / "state")]
    ended = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=60)

    assert [one["is_forked"] for one in json.loads(ended.stdout)] == [False, False]


def test_nothing_is_forked_where_threads_would_be_lost() -> None:
    program = """import threading
from shipper.supervise import spare
end = threading.Event()
threading.Thread(target=end.wait).start()
print(spare.fork())
end.set()"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert ended.stdout == "None\n"
