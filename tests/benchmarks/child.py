"""Launches and drives the shipper by its protocol, as a supervisor does; measures the resources of a process."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SCHEDULED = 2  # in the number of a process's clock: user and system time, as clock_getcpuclockid(3) makes it
PATIENCE = 600.0
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment of a program that was installed: nothing of it is compiled anew."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, its threads included."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def mib(pid: int, field: str) -> float:
    """A figure of the memory of a process, such as `VmRSS`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


class Shipper:
    """A child that speaks the control protocol; messages arrive in a queue."""

    def __init__(self, state: Path) -> None:
        command = [sys.executable, "-m", "shipper", "run", "--state", str(state)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=COMPILED)
        self.log: deque[bytes] = deque(maxlen=10)
        """The last lines of its log, kept off the terminal, since some benchmarks have a dead destination."""
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._messages.put(json.loads(line))
        self._messages.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr
        self.log.extend(self.process.stderr)

    def say(self, **message: Any) -> None:
        """Send one message."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Returns the next message of a type with these fields; a refusal or the end of the child ends the
        benchmark."""
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            if message is None:
                log = b"".join(self.log).decode(errors="replace")
                raise SystemExit(f"the shipper ended with {self.process.wait()} while {kind} was awaited; {log}")
            if message["type"] in ("nack", "error"):
                raise SystemExit(f"the shipper refused: {message}")
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def close(self) -> None:
        """Kill it if it still runs."""
        with self.process:
            self.process.kill()
            for reader in self._readers:
                reader.join()

    def cpu_seconds(self) -> float:
        """User and system time of the whole process, its threads included; to the nanosecond, unlike that of /proc."""
        return cpu_seconds(self.process.pid)

    def peak_mib(self) -> float:
        """The peak resident set."""
        return mib(self.process.pid, "VmHWM")

    def resident_mib(self) -> float:
        """The present resident set."""
        return mib(self.process.pid, "VmRSS")

    def pss_mib(self) -> float:
        """The present memory, with its share of what others use too."""
        lines = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


@contextmanager
def shipper(state: Path) -> Iterator[Shipper]:
    """Launches a shipper; at the end it is stopped in order, even with events, and killed if that takes long."""
    child = Shipper(state)
    try:
        yield child
        child.say(type="stop", within_seconds=0)
        child.process.wait(30)
    finally:
        child.close()
