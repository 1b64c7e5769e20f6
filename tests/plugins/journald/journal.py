"""A real systemd-journald of a test, in a namespace of its own, and what is logged to it."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from tests import needs
from tests.programs import Running

JOURNALD = "/lib/systemd/systemd-journald"
_PLACES = ("/run/log/journal", "/var/log/journal")
PATIENCE = 60.0


class Journal:
    """Takes entries, and says what journalctl sees of them."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._runtime = Path(f"/run/systemd/journal.{namespace}")
        self._process: Running | None = None

    def start(self) -> None:
        self._process = Running([JOURNALD, self.namespace])
        self._until(lambda: self.socket.exists())

    @property
    def socket(self) -> Path:
        return self._runtime / "socket"

    @property
    def directory(self) -> Path:
        return next(path for place in _PLACES for path in Path(place).glob(f"*.{self.namespace}"))

    def send(self, *entries: dict[str, str | bytes | list[str]]) -> None:
        """Logs entries, and waits until they can be read."""
        before = len(self.entries())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for entry in entries:
                sender.sendto(_native(entry), str(self.socket))
        self._until(lambda: len(self.entries()) >= before + len(entries))

    def log(self, first: int, last: int) -> None:
        """Logs numbered messages."""
        self.send(*[{"MESSAGE": f"line {number}", "SYSLOG_IDENTIFIER": "test"} for number in range(first, last)])

    def entries(self) -> list[dict[str, object]]:
        """What journalctl writes as JSON."""
        command = ["journalctl", f"--namespace={self.namespace}", "--output=json", "--all", "--quiet", "--no-pager"]
        told = subprocess.run(command, capture_output=True, check=False).stdout
        return [orjson.loads(line) for line in told.splitlines()]

    def _until(self, condition: Callable[[], bool]) -> None:
        assert self._process is not None
        self._process.wait(condition, PATIENCE)

    def stop(self) -> None:
        if self._process is not None:
            self._process.end()

    def remove(self) -> None:
        for path in (self._runtime, *[found for place in _PLACES for found in Path(place).glob(f"*.{self.namespace}")]):
            shutil.rmtree(path, ignore_errors=True)


def _native(entry: dict[str, str | bytes | list[str]]) -> bytes:
    """https://systemd.io/JOURNAL_NATIVE_PROTOCOL/"""
    fields = b""
    for name, values in entry.items():
        for value in values if isinstance(values, list) else [values]:
            raw = value.encode() if isinstance(value, str) else value
            fields += name.encode() + b"\n" + struct.pack("<Q", len(raw)) + raw + b"\n"
    return fields


@contextmanager
def journal() -> Iterator[Journal]:
    """A journal without entries of ours; needs root. Skips the test without a journald."""
    needs.require("systemd", "journalctl")
    Path("/run/systemd").mkdir(exist_ok=True)
    made = Journal(f"shipper-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    try:
        made.start()
        yield made
    finally:
        made.stop()
        made.remove()
