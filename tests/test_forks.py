"""A forked process is what an executed one would be: a child of ours, with all that was asked for and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.limits import descriptors_at_most
from tests.supervise.driver import Site

PAUSING = [sys.executable, "-m", "shipper_demo.leash", "--stopped", "999999999"]
"""It waits for a signal, and is not hardened, so that everybody may look."""
PIPE = subprocess.PIPE

pytestmark = pytest.mark.skipif(not forks.is_possible(), reason="everything is executed here")


def fields(pid: int) -> list[str]:
    """Those of proc_pid_stat(5); the third is the first here."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()


def is_forked(pid: int) -> bool:
    """The arguments of an executed process are on its stack."""
    stack, arguments = (int(fields(pid)[number - 3]) for number in (28, 48))
    return arguments < stack


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return fields(pid)[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def status(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def facts(pid: int) -> dict[str, Any]:
    """What can be seen of a process, without what differs from one to the next."""
    place = Path(f"/proc/{pid}")
    names = ("PPid", "Uid", "Gid", "Groups", "Umask", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Threads")
    found: dict[str, Any] = {name: value for name, value in status(pid).items() if name in names}
    found |= {name: (place / name).read_bytes() for name in ("cmdline", "environ", "comm", "limits")}
    group, session = (int(fields(pid)[number - 3]) for number in (5, 6))
    descriptors = {int(link.name): os.readlink(link) for link in (place / "fd").iterdir()}
    return found | {
        "cwd": os.readlink(place / "cwd"),
        "exe": os.readlink(place / "exe"),
        "group": group == pid or group,
        "session": session == pid or session,
        "descriptors": {number: re.sub(r"\d+", "", link) for number, link in descriptors.items() if number < 200},
    }


@contextmanager
def pausing(**more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has come to where it waits."""
    more = {"env": dict(os.environ)} | more  # C libraries set variables that only an executed process would see
    with subprocess.Popen(PAUSING, stdin=PIPE, stdout=PIPE, stderr=PIPE, **more) as process:
        while (now := status(process.pid))["Threads"] == "1" or now["SigBlk"].startswith("ffff"):  # it starts a thread
            os.sched_yield()
        yield process
        process.kill()


def test_a_forked_process_is_what_an_executed_one_would_be(tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "start_new_session": True,
        "cwd": tmp_path,
        "env": {**os.environ, "A": "1", "B": "é=\n", "PYTHONSAFEPATH": ""},
        "umask": 0o027,
        "pass_fds": [os.open(tmp_path / "passed", os.O_CREAT | os.O_RDWR)],
    }
    with pausing(**more) as forked, forks.off(), pausing(**more) as executed:
        assert is_forked(forked.pid)
        assert not is_forked(executed.pid)
        assert facts(forked.pid) == facts(executed.pid)
    os.close(more["pass_fds"][0])


def test_it_has_our_limits_and_ignores_what_we_ignore() -> None:
    """In our session and directory, with our environment and umask."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        with descriptors_at_most(250), pausing() as forked, forks.off(), pausing() as executed:
            assert is_forked(forked.pid)
            assert facts(forked.pid) == facts(executed.pid)
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.root  # others cannot see the stack of a process that keeps itself from being traced
async def test_a_forked_supervisor_forks_its_sidecar_and_leaves_no_zygote_when_it_is_killed(tmp_path: Path) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    site.environment = dict(os.environ)  # that in which the zygote has started, also where PYTHONPATH is set
    async with site.supervisor() as supervisor:
        sidecar = (await site.until("launched"))["pid"]
        children = children_of(supervisor.pid)
        assert is_forked(supervisor.pid)
        assert is_forked(sidecar)
        assert len(children) == 2
        assert sidecar in children
    await site.when(lambda: not any(is_running(pid) for pid in children))
