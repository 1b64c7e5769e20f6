"""The loads of `quiet.py`: little work of each kind, and what it costs whoever does it.

Each run has a product of its own, in an empty directory, which first ships what is there (a line of each file, or a
request of each client) and rests for a moment. From then on it is measured, until the last line of the load is at the
destination. Every line has a number, so that its delay is known, and whether it came once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from socket import create_connection

from shipper_demo.ports import free_port
from tests.benchmarks.cgroups import part
from tests.benchmarks.figures import percentile
from tests.benchmarks.measure import STALLED, Child, watch
from tests.benchmarks.peers.peer import Job, Launch, Peer
from tests.benchmarks.pipeline import workplace
from tests.benchmarks.posts import Posted, Request, five_called, five_records, one_document, one_event, post
from tests.benchmarks.producer import LINES_OF_SHORT, Schedule, short_lived, trickle
from tests.benchmarks.sink import Sink

COST = "processor time"
MEMORY = "memory of all processes (PSS), MB"
DELAY = "from the line to the destination, ms: p50, p99"
FIRST = "from the launch to the first event, s"
ANSWER = "from a request to its answer, ms: p50, p99"
RATE = "requests answered a second"
SENT = "requests to the destination a second, and ms of processor time for each"
FIGURES = (COST, MEMORY, DELAY, FIRST, ANSWER, RATE, SENT)
CORES, MIB = 0.1, 128
"""Of the small host."""
_REST = 3.0
"""Seconds at most between what was there and the load."""


@dataclass(frozen=True)
class Product:
    """A program with one of its queues."""

    peer: Peer
    queue: str

    @property
    def name(self) -> str:
        return f"{self.peer.name}, {self.queue}"


@dataclass(frozen=True)
class Measured:
    """The figures of a run by their names, and what went wrong."""

    figures: dict[str, tuple[float, ...]]
    faults: list[str]


@dataclass
class Host:
    """A machine with logs, the product that ships them, or what is posted to `door`, and the sink."""

    product: Product
    target: Sink
    place: Path
    source: str
    files: int
    cores: float = 1.0
    """What it has at least."""

    @cached_property
    def directory(self) -> Path:
        """Where the logs are."""
        (self.place / "logs").mkdir()
        return self.place / "logs"

    @cached_property
    def logs(self) -> list[Path]:
        """With a line each, no two of which are alike (that would make them copies)."""
        logs = [self.directory / f"{number:06d}.log" for number in range(self.files)]
        for number, log in enumerate(logs):
            log.write_text(f"container {number} started\n")
        return logs

    @cached_property
    def door(self) -> int:
        return free_port()

    @contextmanager
    def running(self, before: Sequence[str] = ()) -> Iterator[Child]:
        """The product, stopped in order afterwards; `before` stands before its command."""
        state = self.place / "state"
        state.mkdir(exist_ok=True)
        pattern, queue = self.directory / "*.log", self.product.queue
        launch = self.product.peer.launch(Job(pattern, self.target.port, state, queue, "none", self.source, self.door))
        child = Child(Launch([*before, *launch.command], launch.environment, launch.stdin), self.place / "said")
        try:
            yield child
            child.stop()
        finally:
            child.kill()

    def count_anew(self) -> None:
        """The sink forgets what has come."""
        self.target.reset()
        self.target.note_probes()

    def until(self, child: Child, lines: int) -> bool:
        """Until so many have come, or nothing new does; returns whether they have."""
        return watch(child, lambda: int(self.target.counts()["items"]), lines, cores=self.cores)

    def until_open(self, child: Child) -> None:
        """Until its door takes connections."""
        deadline = time.monotonic() + STALLED
        while time.monotonic() < deadline and not child.ended():
            with suppress(OSError), create_connection(("127.0.0.1", self.door)):
                return
            time.sleep(0.05)

    def faults(self, child: Child, schedule: Schedule, *, ready: bool) -> list[str]:
        """What went wrong with a load whose product has ended; `ready`: it had shipped what was there before."""
        arrived = self.target.probes()
        lost, twice = len(schedule.due.keys() - arrived.keys()), self.target.counts()["items"] - len(arrived)
        found = [
            (not ready, f"not ready within {STALLED / self.cores:.0f} s"),
            (lost, f"lost {lost:,}"),
            (twice, f"{twice:,} twice"),
            (child.status, f"exit status {child.status}"),
        ]
        wrong = [text for count, text in found if count]
        return [*wrong, (self.place / "said").read_text(errors="replace")[-500:]] if wrong else []


@dataclass(frozen=True)
class Load:
    """Something to do for a while."""

    label: str
    feed: Callable[[Host, float], Schedule]
    unit: str = "‰ of a core"
    """What the cost is told in."""
    files: int = 1
    source: str = "file"
    each: int = 0
    """Events of what the cost is of, such as a request; 0: it is of a second."""
    small: bool = False
    """On a part of the machine, as `part` makes it."""

    def measure(self, product: Product, target: Sink, seconds: float) -> Measured:
        with workplace() as place, self._part() as before:
            host = Host(product, target, place, self.source, self.files, CORES if self.small else 1.0)
            host.count_anew()
            host.logs  # noqa: B018 (they are there before the product is)
            begun = time.monotonic()
            with host.running(before) as child:
                ready = self._warm(host, child)
                first = target.counts()["first"] - begun
                time.sleep(min(_REST, seconds))
                host.count_anew()
                cpu = child.cpu_so_far()
                schedule = self.feed(host, seconds)
                host.until(child, schedule.lines)
                cpu, memory = child.cpu_so_far() - cpu, child.pss_mib()
            figures = {COST: (self._cost(cpu, schedule, seconds),), MEMORY: (memory,)}
            figures |= {FIRST: (first,)} if self.small and ready else {}
            if sent := target.counts()["requests"]:
                figures[SENT] = (sent / seconds, 1000 * cpu / sent)
            return Measured(figures | times(schedule, target, seconds), host.faults(child, schedule, ready=ready))

    def _part(self) -> AbstractContextManager[Sequence[str]]:
        return part(CORES, MIB) if self.small else nullcontext(())

    def _warm(self, host: Host, child: Child) -> bool:
        """It ships what is there, or a request of each client; returns whether it did."""
        if self.source == "file":
            return host.until(child, self.files)
        host.until_open(child)
        return host.until(child, self.feed(host, 0.0).lines)

    def _cost(self, cpu: float, schedule: Schedule, seconds: float) -> float:
        """Milliseconds a second, which are per mille of a core, or of what else is counted."""
        return 1000 * cpu / (schedule.lines / self.each if self.each else seconds)


@dataclass(frozen=True)
class Start:
    """A start and a stop, where all files but one are as they were; in the one is a new line."""

    label: str
    files: int
    unit: str = "s"
    source: str = "file"

    def measure(self, product: Product, target: Sink, seconds: float) -> Measured:
        with workplace() as place:
            host = Host(product, target, place, self.source, self.files)
            host.count_anew()
            host.logs  # noqa: B018 (they are there before the product is)
            with host.running() as child:
                ready = host.until(child, self.files)
                time.sleep(min(_REST, seconds))
            host.count_anew()
            schedule, begun = trickle(host.logs[:1], 1.0), time.monotonic()
            with host.running() as child:
                watch(child, lambda: len(target.probes()), 1)
                memory = child.pss_mib()
            first = [arrived - begun for arrived in target.probes().values()]
            figures = {COST: (child.cpu,), MEMORY: (memory,), FIRST: (min(first, default=STALLED),)}
            return Measured(figures, host.faults(child, schedule, ready=ready))


def times(schedule: Schedule, target: Sink, seconds: float) -> dict[str, tuple[float, ...]]:
    """When lines arrived, and requests were answered."""
    arrived = target.probes()
    delays = [arrived[number] - due for number, due in schedule.due.items() if number in arrived]
    figures: dict[str, tuple[float, ...]] = {DELAY: _milliseconds(delays)} if delays else {}
    if isinstance(schedule, Posted):
        figures |= {ANSWER: _milliseconds(schedule.answered), RATE: (len(schedule.answered) / seconds,)}
    return figures


def _milliseconds(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(1000 * percentile(seconds, share) for share in (0.5, 0.99))


def _rest(host: Host, seconds: float) -> Schedule:
    time.sleep(seconds)
    return Schedule()


def _lines(label: str, files: int, rate: int, *, small: bool = False) -> Load:
    """Each file grows by so many lines a second."""
    return Load(label, lambda host, seconds: trickle(host.logs * rate, seconds), files=files, small=small)


def _jobs(rate: int) -> Load:
    label = f"{rate} new files a second, five lines each, deleted after 3 s"
    return Load(
        label, lambda host, seconds: short_lived(host.directory, rate, seconds), "ms a file", each=LINES_OF_SHORT
    )


def _posts(label: str, source: str, request: Request) -> Load:
    def feed(host: Host, seconds: float) -> Schedule:
        return post(host.door, request, seconds)

    return Load(label, feed, "ms a request", 0, source, request.events)


def loads(quiet_files: int) -> dict[str, Load | Start]:
    """All, in the order of the tables."""
    return {
        "rest": Load("at rest", _rest),
        "file-1": _lines("one file, a line a second (each after a rest)", 1, 1),
        "file-10": _lines("one file, 10 lines a second", 1, 10),
        "file-100": _lines("one file, 100 a second", 1, 100),
        "file-1000": _lines("one file, 1,000 a second", 1, 1000),
        "files-100": _lines("100 files, 1 a second each", 100, 1),
        "files-300": _lines("300 files, 3 a second each", 300, 3),
        "new-5": _jobs(5),
        "new-50": _jobs(50),
        "http": _posts("one event a request over HTTP, 8 clients", "http", one_event()),
        "bulk": _posts("one event a bulk request, 8 clients", "bulk", one_document()),
        "otlp": _posts("five records a request by OTLP/HTTP, 8 clients", "otlp", five_records()),
        "otlp-grpc": _posts("five records a request by OTLP/gRPC, 8 clients", "otlp-grpc", five_called()),
        "start": Start("a start and a stop", 1),
        "start-files": Start(f"a start and a stop, {quiet_files:,} quiet files", quiet_files),
        "small": _lines(f"{CORES:g} of a core and {MIB} MB, 100 lines a second", 1, 100, small=True),
    }
