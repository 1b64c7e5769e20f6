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

from tests.benchmarks.child import COMPILED, cpu_seconds
from tests.benchmarks.job import CACHE
from tests.benchmarks.peers.peer import Job, Launch, Peer
from tests.benchmarks.sink import Sink

STALLED = 60.0
"""Seconds without a new line after which the remaining lines of a peer count as lost."""
_OWN = f"state-{os.getpid()}-"
"""How the state directories of this process begin."""
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
        environment = COMPILED | launch.environment
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
            self.peak_mib = max(self.peak_mib, self._mib("status", "VmHWM"))
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

    def cpu_so_far(self) -> float:
        """User and system seconds until now, of all its processes and of those that these have reaped."""
        return sum(cpu_seconds(pid) + _reaped(pid) for pid in _family(self._process.pid))

    def pss_mib(self) -> float:
        """Its memory now: what its processes share counts once."""
        return self._mib("smaps_rollup", "Pss")

    def _mib(self, file: str, field: str) -> float:
        return sum(_kib(pid, file, field) for pid in _family(self._process.pid)) / 1024

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
            watch(child, lambda: target.counts()["distinct"], lines, notice)
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


def watch(
    child: Child,
    here: Callable[[], int],
    lines: int,
    notice: Callable[[int], None] = lambda distinct: None,
    cores: float = 1.0,
) -> bool:
    """Until so many lines are here, or the peer has ended, or nothing new came for long, which is longer for one that
    has a part of a core; returns whether they are."""
    most, moved = 0, time.monotonic()
    while most < lines and not child.ended() and time.monotonic() - moved < STALLED / cores:
        time.sleep(_GLANCE)
        before, most = most, here()
        if most > before:
            moved = time.monotonic()
            notice(most)
    return most >= lines


def _family(pid: int) -> list[int]:
    """A process and its descendants; none if it is gone."""
    try:
        found = [
            int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(each for child in found for each in _family(child))]


def _kib(pid: int, file: str, field: str) -> int:
    """A figure of the memory of a process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def _reaped(pid: int) -> float:
    """User and system seconds of the children that a process has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _state_directory() -> Iterator[Path]:
    CACHE.mkdir(parents=True, exist_ok=True)
    state = Path(tempfile.mkdtemp(prefix=_OWN, dir=CACHE))
    try:
        yield state
    finally:
        shutil.rmtree(state, ignore_errors=True)


def clear() -> None:
    """Remove the state directories of this process that an interrupt has left, as one that came while they were made,
    or removed."""
    for state in CACHE.glob(f"{_OWN}*"):
        shutil.rmtree(state, ignore_errors=True)
