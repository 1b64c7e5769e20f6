"""The destination: a bulk endpoint in C (`sink.c`, `events.h`), rebuilt when its source changes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.job import CACHE, HERE


class Sink:
    """The running endpoint."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    def counts(self) -> dict[str, Any]:
        """What came since `reset`.

        `requests`; `items`, of these `distinct` lines of the job and `unknown` ones that hold none; `bytes` of bodies,
        decompressed, and `wire_bytes` as sent; `first` and `last`: when items came, on the clock of `time.monotonic`.
        """
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/count", timeout=30) as answer:
            counts: dict[str, Any] = json.load(answer)
        return counts

    def reset(self) -> None:
        """Count from zero, without probes and without a delay."""
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/reset", data=b"", timeout=30).close()

    def answer_after(self, seconds: float) -> None:
        """Answer bulk requests one after the other from now on, each only after so long."""
        url = f"http://127.0.0.1:{self.port}/delay/{round(1e6 * seconds)}"
        urllib.request.urlopen(url, data=b"", timeout=30).close()

    def note_probes(self) -> None:
        """Note from now on when items come that have `~probe:NUMBER` in them."""
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/probes", data=b"", timeout=30).close()

    def probes(self) -> dict[int, float]:
        """When each probe came first, on the clock of `time.monotonic`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/probes", timeout=30) as answer:
            return {number: nanoseconds / 1e9 for number, nanoseconds in reversed(json.load(answer))}

    @contextmanager
    def hung(self) -> Iterator[None]:
        """Within this block it answers nobody, though the kernel takes connections and requests for it."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


def build() -> Path:
    """The compiled endpoint, named after the hash of its source."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source = HERE / "sink.c"
    text = source.read_bytes() + (HERE / "events.h").read_bytes()
    program = CACHE / f"sink-{hashlib.sha256(text).hexdigest()[:12]}"
    if not program.exists():
        unfinished = program.with_name(f"{program.name}.{os.getpid()}")
        command = ["cc", "-O2", "-o", str(unfinished), str(source)]
        if subprocess.run([*command, "-DWITH_ZLIB", "-lz"], capture_output=True).returncode:
            subprocess.run(command, check=True)
        unfinished.rename(program)
    return program


@contextmanager
def sink(port: int = 0) -> Iterator[Sink]:
    """Run the endpoint, on any free port if none is given."""
    with subprocess.Popen([build(), str(port)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Sink(int(process.stdout.readline()), process.pid)
        finally:
            process.kill()
