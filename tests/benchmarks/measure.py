"""One run: launch a peer with an empty state directory, wait until all lines have arrived, stop it, account for it.

Every peer is measured alike and from outside:

- CPU is user and system time of the process and of the children that it has reaped, as the kernel tells at its end
  (wait4): start and stop are in it.
- Time goes from the launch to the last item, by the endpoint's clock. Not from the first byte: what a peer reads ahead
  before it connects would then be free.
- Memory is the sum of VmHWM over the process tree, read while it lives. (wait4's maximum would not do: a child inherits
  it from this Python, which is larger than some of the peers.)
- The endpoint tells lines that came twice from lines that never came; a run with either says so.

A peer has its own session, so that a Ctrl-C reaches the driver alone, which then kills the peer's process group and
removes its state directory, on the disk of the checkout.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.job import CACHE
from tests.benchmarks.peers.peer import Job, Launch, Peer
from tests.benchmarks.sink import Sink

STALLED = 30.0
"""Seconds without a new line after which the remaining lines of a peer count as lost."""
_GRACE = 60.0
_GLANCE = 0.05


@dataclass(frozen=True)
class Run:
    """The result of a run of `lines` lines, and its cost."""

    lines: int
    items: int
    distinct: int
    unknown: int
    status: int
    seconds: float
    cpu: float
    peak_mib: float
    wire_bytes: int
    said: str = ""
    """The end of the peer's output, where something went wrong."""

    @property
    def per_second(self) -> float:
        """Distinct events a second, from the launch to the last one."""
        return self.distinct / self.seconds if self.seconds else 0.0

    @property
    def per_cpu_second(self) -> float:
        """Distinct events a CPU second of the whole process."""
        return self.distinct / self.cpu if self.cpu else 0.0

    @property
    def faults(self) -> list[str]:
        """The faults of a run: lines lost or repeated, or a stop out of order."""
        twice = self.items - self.distinct - self.unknown
        found = [
            (self.lines - self.distinct, f"lost {self.lines - self.distinct:,}"),
            (twice, f"{twice:,} twice"),
            (self.unknown, f"{self.unknown:,} unreadable"),
            (self.status, f"exit status {self.status}"),
        ]
        return [text for count, text in found if count]


class Child:
    """A launched peer."""

    def __init__(self, launch: Launch, output: Path) -> None:
        environment = os.environ | launch.environment
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                launch.command, stdin=subprocess.PIPE, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        assert self._process.stdin
        with suppress(BrokenPipeError):
            self._process.stdin.write(launch.stdin)
            self._process.stdin.flush()
        self._usage: resource.struct_rusage | None = None
        self.peak_mib = 0.0

    def ended(self) -> bool:
        """Whether it has ended; it is reaped then."""
        if self._usage is None:
            self.peak_mib = max(self.peak_mib, _tree_kib(self._process.pid) / 1024)
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._process.returncode, self._usage = os.waitstatus_to_exitcode(status), usage
        return self._usage is not None

    def stop(self) -> None:
        """Ask it to end, and wait; kill it if that takes more than a minute."""
        if not self.ended():
            self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End it and what it has started, at once."""
        self._signal(signal.SIGKILL)
        while not self.ended():
            time.sleep(0.01)
        with suppress(BrokenPipeError):
            assert self._process.stdin
            self._process.stdin.close()

    @property
    def status(self) -> int:
        """Its exit status; minus a signal's number if that ended it."""
        return int(self._process.returncode)

    @property
    def cpu(self) -> float:
        """User and system seconds of the ended process, start and stop included."""
        assert self._usage
        return self._usage.ru_utime + self._usage.ru_stime

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def ship(
    peer: Peer,
    log: Path,
    lines: int,
    target: Sink,
    *,
    queue: str,
    compression: str,
    tracer: Sequence[str] = (),
    notice: Callable[[int], None] = lambda distinct: None,
) -> Run:
    """Ship a file once; `notice` is told how many lines have arrived. `tracer` is put before the command."""
    target.reset()
    with _state_directory() as state:
        launch = peer.launch(Job(log, target.port, state, queue, compression))
        launch = Launch([*tracer, *launch.command], launch.environment, launch.stdin)
        begun = time.monotonic()
        child = Child(launch, state / "output")
        try:
            _watch(child, target, lines, notice)
            child.stop()
        finally:
            child.kill()
        counts = target.counts()
        return Run(
            lines=lines,
            items=counts["items"],
            distinct=counts["distinct"],
            unknown=counts["unknown"],
            status=child.status,
            seconds=max(0.0, counts["last"] - begun),
            cpu=child.cpu,
            peak_mib=child.peak_mib,
            wire_bytes=counts["wire_bytes"],
            said=(state / "output").read_text(errors="replace")[-2000:],
        )


def _watch(child: Child, target: Sink, lines: int, notice: Callable[[int], None]) -> None:
    """Until all lines are there, or the peer has ended, or nothing new came for long."""
    distinct, moved = 0, time.monotonic()
    while distinct < lines and not child.ended() and time.monotonic() - moved < STALLED:
        time.sleep(_GLANCE)
        before, distinct = distinct, target.counts()["distinct"]
        if distinct > before:
            moved = time.monotonic()
            notice(distinct)


def _tree_kib(pid: int) -> int:
    """The sum of the largest resident sets of a process and its descendants; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = [
            child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
        ]
    except OSError:
        return 0
    peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
    return peak + sum(_tree_kib(int(child)) for child in children)


@contextmanager
def _state_directory() -> Iterator[Path]:
    CACHE.mkdir(parents=True, exist_ok=True)
    state = Path(tempfile.mkdtemp(prefix=f"state-{os.getpid()}-", dir=CACHE))
    try:
        yield state
    finally:
        shutil.rmtree(state, ignore_errors=True)
