"""Counts the syncs that a peer requests from the kernel.

Counted by strace in a run of its own, since tracing costs time.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from tests.benchmarks.job import CACHE, access_log
from tests.benchmarks.measure import Run, ship
from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.sink import Sink

LINES = 100_000
_CALLS = ("fsync", "fdatasync", "msync", "sync_file_range")


def can_count() -> bool:
    """Whether strace is installed."""
    return shutil.which("strace") is not None


def count_syncs(peer: Peer, target: Sink, *, queue: str, compression: str, lines: int = LINES) -> tuple[int, Run]:
    """How many times a peer syncs while it ships `lines` lines, start and stop included; and that run."""
    with tempfile.TemporaryDirectory(prefix="strace-", dir=CACHE) as directory:
        summary = Path(directory, "summary")
        # Into a file, strace leaves SIGTERM to the program that it traces.
        tracer = ["strace", "-f", "--seccomp-bpf", "-c", "-e", f"trace={','.join(_CALLS)}", "-o", str(summary)]
        run = ship(peer, access_log(lines), lines, target, queue=queue, compression=compression, tracer=tracer)
        return calls(summary.read_text()), run


def calls(summary: str) -> int:
    """The number of calls in strace's summary: `% time, seconds, usecs/call, calls, [errors,] syscall`."""
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary, re.M)
    return sum(int(number) for number, name in rows if name in _CALLS)
