"""A program that ends when whoever holds the other end of its standard input is gone.

`shipper supervise` outlives its terminal and its parent, as a service must. In the demo it must not, however that ends:
the pipe closes even when the demo is killed, and on every system.

    python -m shipper_demo.leash supervise policy.yaml --state DIR      the command line of shipper, ended in order
    python -m shipper_demo.leash -- etcd --data-dir DIR                 another program, which is killed
    python -m shipper_demo.leash --stopped PID                          a process that is stopped, and then goes on
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress


def _heed_the_end() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _hold(command: Sequence[str]) -> int:
    """Runs a program until it ends, or until a SIGTERM; returns its exit status."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as program:
        try:
            return program.wait()
        finally:
            program.kill()


def _resume(pid: int) -> None:
    """Lets a stopped process go on at a SIGTERM: stopped, it cannot see that its own input has ended."""
    try:
        while True:
            signal.pause()
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    if sys.argv[1] in ("--", "--stopped"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_heed_the_end, daemon=True).start()
    if sys.argv[1] == "--":
        sys.exit(_hold(sys.argv[2:]))
    if sys.argv[1] == "--stopped":
        _resume(int(sys.argv[2]))
    runpy.run_module("shipper", run_name="__main__", alter_sys=True)
