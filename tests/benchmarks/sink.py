"""Where it goes: a bulk endpoint in C (`sink.c`), built where its source is newer."""

from __future__ import annotations

import hashlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.job import CACHE, HERE


class Sink:
    """The running endpoint."""

    def __init__(self, port: int) -> None:
        self.port = port

    def counts(self) -> dict[str, int]:
        """Requests, items, bytes (decompressed) and wire_bytes since `reset`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/count", timeout=30) as answer:
            counts: dict[str, int] = json.load(answer)
        return counts

    def reset(self) -> None:
        """Count from zero."""
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/reset", data=b"", timeout=30).close()


def build() -> Path:
    """The compiled endpoint; built where its source is newer."""
    CACHE.mkdir(parents=True, exist_ok=True)
    source = HERE / "sink.c"
    program = CACHE / f"sink-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        command = ["cc", "-O2", "-o", str(program), str(source)]
        if subprocess.run([*command, "-DWITH_ZLIB", "-lz"], capture_output=True).returncode:
            subprocess.run(command, check=True)
    return program


@contextmanager
def sink() -> Iterator[Sink]:
    """Run the endpoint on any free port."""
    with subprocess.Popen([build()], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Sink(int(process.stdout.readline()))
        finally:
            process.kill()
