"""The shipper, launched and driven by its protocol as a supervisor does it; and what a process has used."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 600.0


class Shipper:
    """A child that speaks the control protocol; messages arrive in a queue."""

    def __init__(self, state: Path) -> None:
        command = [sys.executable, "-m", "shipper", "run", "--state", str(state)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._messages.put(json.loads(line))
        self._messages.put(None)

    def say(self, **message: Any) -> None:
        """Send one message."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next message of a type, and with these fields; a refusal or the end of the child ends the benchmark."""
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            if message is None:
                raise SystemExit(f"the shipper ended with status {self.process.wait()} while {kind} was awaited")
            if message["type"] in ("nack", "error"):
                raise SystemExit(f"the shipper refused: {message}")
            if message["type"] == kind and fields.items() <= message.items():
                return message

    def cpu_seconds(self) -> float:
        """User and system time of the whole process, its threads included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_mib(self) -> float:
        """The largest resident set so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextmanager
def shipper(state: Path) -> Iterator[Shipper]:
    """Launch a shipper; it is stopped in order, and killed if that takes long."""
    child = Shipper(state)
    try:
        yield child
        child.say(type="stop", within_seconds=5)
        child.process.wait(30)
    finally:
        child.process.kill()
        child.process.wait()
