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
from typing import NoReturn


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


def _resume(pid: int) -> NoReturn:
    """Lets a stopped process go on, and exits: stopped, it cannot see that its own input has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    sys.exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "--":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if sys.argv[1] == "--stopped":  # the input may have ended already: from the first instant on, a SIGTERM resumes
        signal.signal(signal.SIGTERM, lambda *_: _resume(int(sys.argv[2])))
    threading.Thread(target=_heed_the_end, daemon=True).start()
    if sys.argv[1] == "--":
        sys.exit(_hold(sys.argv[2:]))
    while sys.argv[1] == "--stopped":
        signal.pause()
    runpy.run_module("shipper", run_name="__main__", alter_sys=True)
