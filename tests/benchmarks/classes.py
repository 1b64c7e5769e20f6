"""The throughput of the shipper, by class of work.

    python tests/benchmarks/classes.py [--runs 3] [--lines 1000000] [--only http tls …]

Each run is a fresh shipper with an empty state directory. The clock and the CPU of the whole process run from the
policy to the moment when no event waits for an answer; the start is not in them (`barrier.py` has it). What feeds and
what receives runs beside it on the same machine.

http, gzip, tls     a log of access lines into bulk requests: plain, compressed, over TLS
receiver            bulk requests of four clients, into bulk requests
otlp, otlp-json     a log of access lines by OTLP over HTTP, in protobuf and in JSON
otlp-to-bulk        OTLP over HTTP of four clients, into bulk requests
otlp-to-otlp        the same into OTLP over HTTP
nginx, json         a log whose lines a `parse` processor takes apart
drop, nginx-drop …  the processors and chains of `chains`; the cost is that of a line read
syslog, counted     messages of RFC 5424 over a TCP connection, as lines and counted; `forwarded` those of RFC 3164
udp                 datagrams of syslog, 20,000 and 50,000 a second for 30 s: how many arrive
files               10,000 files of 200 lines
large               lines of 64 KiB
slow                1,000 files with a line each second, for 30 s: what that costs, and how late the lines come
sets                ten inputs, ten data sets, trickle and catch-up: ten files whose lines come in turns, 200 a second,
                    for 30 s to a destination that answers, then for as long to one that hangs and comes back; beside
                    the same with one data set, of which requests and CPU of an event are at most 1.3 times
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shipper_demo.ports import free_port
from tests.benchmarks.chains import LOADS, Load
from tests.benchmarks.clients import export, rounded, ship
from tests.benchmarks.figures import Table, milliseconds, progress, spread
from tests.benchmarks.job import access_log
from tests.benchmarks.logs import json_log, large_log, small_logs
from tests.benchmarks.pipeline import (
    activate,
    bulk_output,
    file_input,
    otlp_output,
    queued,
    running,
    until_settled,
    workplace,
)
from tests.benchmarks.producer import trickle
from tests.benchmarks.sink import Sink, sink
from tests.benchmarks.syslogs import datagrams, stream
from tests.benchmarks.terminator import terminator

AIM_MIB = 100
RATES = 20_000, 50_000
"""Of `udp`, in datagrams a second."""
INPUTS, TURNS = 10, 20
"""Of `sets`: inputs with a file each, and lines of each file in a second."""


@dataclass(frozen=True)
class Sizes:
    """How much of each class."""

    lines: int = 1_000_000
    files: int = 10_000
    large: int = 5_000
    sources: int = 1_000
    seconds: float = 30.0


@dataclass(frozen=True)
class Job:
    """A load: an input, its number of events, and the task that feeds it."""

    input: Mapping[str, Any]
    events: int
    feed: Callable[[], None] = lambda: None
    output: Mapping[str, Any] = field(default_factory=dict)
    tls: bool = False
    outputs: Sequence[str] = ("main",)
    read: int | None = None
    """Lines that are read, if they are not as many as the events that arrive; the cost is that of one."""
    sends: Callable[..., Mapping[str, Any]] = bulk_output
    """Makes the output's settings from a port and `output`."""


@dataclass(frozen=True)
class Run:
    """The cost of one run."""

    events: int
    seconds: float
    cpu: float
    peak_mib: float


def jobs(sizes: Sizes, directory: Path) -> dict[str, Callable[[], Job]]:
    """The classes that have an end; a job is prepared when it is its turn."""

    def parse(log: Path, format: str) -> Job:
        return Job(file_input(log, processors=[{"type": "parse", "format": format}]), sizes.lines)

    def plain(**more: Any) -> Job:
        return Job(file_input(access_log(sizes.lines)), sizes.lines, **more)

    def chain(load: Load) -> Job:
        input = file_input(load.log(sizes.lines), processors=load.processors, **load.input)
        return Job(input, load.arriving(sizes.lines), outputs=load.outputs, read=sizes.lines)

    def receiver() -> Job:
        port = free_port()
        input = {"type": "elasticsearch", "address": f"127.0.0.1:{port}"}
        return Job(input, rounded(sizes.lines), feed=lambda: ship(port, sizes.lines))

    def syslog(**how: Any) -> Job:
        port = free_port()
        input = {"type": "syslog", "addresses": [f"tcp://127.0.0.1:{port}"]}
        return Job(input, sizes.lines, feed=lambda: stream(port, sizes.lines, **how))

    def otlp(**more: Any) -> Job:
        port = free_port()
        input = {"type": "otlp", "grpc": None, "http": f"127.0.0.1:{port}"}
        return Job(input, rounded(sizes.lines), feed=lambda: export(port, sizes.lines), **more)

    def files() -> Job:
        if not any(directory.iterdir()):
            small_logs(directory, sizes.files, 200)
        return Job(file_input(directory / "*.log"), sizes.files * 200)

    return {
        "http": plain,
        "gzip": lambda: plain(output={"compression": "gzip"}),
        "tls": lambda: plain(tls=True),
        "receiver": receiver,
        "otlp": lambda: plain(sends=otlp_output),
        "otlp-json": lambda: plain(sends=otlp_output, output={"encoding": "json"}),
        "otlp-to-bulk": otlp,
        "otlp-to-otlp": lambda: otlp(sends=otlp_output),
        "nginx": lambda: parse(access_log(sizes.lines), "nginx"),
        "json": lambda: parse(json_log(sizes.lines), "json"),
        "syslog": syslog,
        "counted": lambda: syslog(counted=True),
        "forwarded": lambda: syslog(form="3164"),
        "files": files,
        **{name: partial(chain, load) for name, load in LOADS.items()},
        "large": lambda: Job(file_input(large_log(sizes.large)), sizes.large),
    }


def measure(job: Job, target: Sink) -> Run:
    """Ship it once."""
    target.reset()
    with workplace() as place, _front(job, target, place) as (port, root), running(place / "state") as child:
        tls = {"scheme": "https", "tls": {"ca": str(root)}} if job.tls else {}
        output = job.sends(port, **tls, **job.output)
        begun, cpu = time.monotonic(), child.cpu_seconds()
        activate(child, 1, {"source": job.input}, dict.fromkeys(job.outputs, output))
        job.feed()
        until_settled(child, target, job.events)
        return Run(job.read or job.events, time.monotonic() - begun, child.cpu_seconds() - cpu, child.peak_mib())


def _front(job: Job, target: Sink, place: Path) -> AbstractContextManager[tuple[int, Path]]:
    return terminator(target.port, place) if job.tls else nullcontext((target.port, place))


def cells(name: str, runs: list[Run]) -> list[str]:
    """A row of the table."""
    return [
        name,
        spread([run.events / run.seconds for run in runs]),
        spread([run.events / run.cpu for run in runs]),
        spread([1e6 * run.cpu / run.events for run in runs], ",.2f"),
        spread([run.peak_mib for run in runs]),
    ]


def slow(target: Sink, sources: int, seconds: float) -> list[str]:
    """Many files that grow slowly: a row of its own table."""
    target.reset()
    target.note_probes()
    with workplace() as place, running(place / "state") as child:
        logs = [place / f"{number:06d}.log" for number in range(sources)]
        for number, log in enumerate(logs):
            log.write_text(f"container {number} started\n")
        activate(child, 1, {"source": file_input(place / "*.log")}, {"main": bulk_output(target.port)})
        until_settled(child, target, sources)
        begun, cpu = time.monotonic(), child.cpu_seconds()
        schedule = trickle(logs, seconds)
        used, took = child.cpu_seconds() - cpu, time.monotonic() - begun
        until_settled(child, target, sources + schedule.lines)
        share, each = f"{used / took:.0%}", f"{1e6 * used / schedule.lines:,.0f}"
        together = f"{(sources + schedule.lines) / target.counts()['requests']:.1f}"
        delays = milliseconds(schedule.delays(target.probes()))
        return [f"{sources:,} slow files", share, each, together, f"{child.peak_mib():,.0f}", *delays]


def udp(target: Sink, rate: int, seconds: float) -> list[str]:
    """Datagrams at a rate: a row of their own table."""
    target.reset()
    port = free_port()
    with workplace() as place, running(place / "state") as child:
        input = {"type": "syslog", "addresses": [f"udp://127.0.0.1:{port}"]}
        activate(child, 1, {"source": input}, {"main": bulk_output(target.port)})
        cpu, sent = child.cpu_seconds(), datagrams(port, rate, seconds)
        arrived = -1
        while arrived < (arrived := target.counts()["items"]) or queued(child):
            time.sleep(1)
        each = 1e6 * (child.cpu_seconds() - cpu) / max(1, arrived)
        return [f"{sent / seconds:,.0f}", f"{arrived / sent:.2%}", f"{each:,.2f}", f"{child.peak_mib():,.0f}"]


def sets(target: Sink, count: int, seconds: float) -> list[list[str]]:
    """Ten inputs with so many data sets: a row while lines trickle, and one of what waited for the destination."""
    target.reset()
    with workplace() as place, running(place / "state") as child:
        logs = [place / f"{number}.log" for number in range(INPUTS)]
        for log in logs:
            log.write_text("started\n")
        inputs = {
            f"in{number}": file_input(log, data_stream={"dataset": f"app{number % count}"})
            for number, log in enumerate(logs)
        }
        activate(child, 1, inputs, {"main": bulk_output(target.port)})
        until_settled(child, target, arrived := INPUTS)
        rows = []
        for name, hangs in (("trickle", False), ("catch-up", True)):
            requests, cpu = target.counts()["requests"], child.cpu_seconds()
            with target.hung() if hangs else nullcontext():
                lines = trickle(logs * TURNS, seconds).lines
                waited = child.cpu_seconds() - cpu
            until_settled(child, target, arrived := arrived + lines)
            each, all_cpu = (target.counts()["requests"] - requests) / lines, child.cpu_seconds() - cpu
            late = f"{1e6 * (all_cpu - waited) / lines:,.0f}" if hangs else ""
            rows.append(
                [
                    f"{count} data set{'s' * (count > 1)}, {name}",
                    f"{1e3 * each:,.1f}",
                    f"{1e6 * all_cpu / lines:,.0f}",
                    late,
                ]
            )
        return rows


def main() -> None:
    """Parse the command line, run, print."""
    sizes = Sizes()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lines", type=int, default=sizes.lines, help="of http, gzip, tls, receiver, nginx, json")
    parser.add_argument("--files", type=int, default=sizes.files, help="of 200 lines each")
    parser.add_argument("--large", type=int, default=sizes.large, help="lines of 64 KiB")
    parser.add_argument("--sources", type=int, default=sizes.sources, help="files that grow by a line a second")
    parser.add_argument(
        "--seconds", type=float, default=sizes.seconds, help="for which they grow, and those of sets and udp"
    )
    parser.add_argument("--only", nargs="+", metavar="CLASS", help="these classes (default: all)")
    options = parser.parse_args()
    sizes = Sizes(options.lines, options.files, options.large, options.sources, options.seconds)
    with sink() as target, workplace() as directory:
        print(report(sizes, options.runs, options.only, target, directory))


def report(sizes: Sizes, runs: int, only: list[str] | None, target: Sink, directory: Path) -> str:
    """Run the classes, and show what they did."""
    chosen = {name: job for name, job in jobs(sizes, directory).items() if only is None or name in only}
    rows = []
    for name, prepare in chosen.items():
        done: list[Run] = []
        for number in range(runs):
            progress(f"{name}: run {number + 1} of {runs}")
            done.append(measure(prepare(), target))
        rows.append(cells(name, done))
    tables = []
    if rows:
        tables.append(Table(["class", "events/s", "events/CPU s", "CPU µs/event", f"MiB (aim ≤ {AIM_MIB})"], rows))
    if only is None or "slow" in only:
        progress(f"{sizes.sources:,} slow files, {sizes.seconds:.0f} s")
        head = ["class", "CPU", "CPU µs/event", "events/request", "MiB", "p50 ms", "p99 ms", "max ms"]
        tables.append(Table(head, [slow(target, sizes.sources, sizes.seconds)]))
    if only is None or "udp" in only:
        progress(f"datagrams, {sizes.seconds:.0f} s at each rate")
        head = ["datagrams/s", "arrived", "CPU µs/event", "MiB"]
        tables.append(Table(head, [udp(target, rate, sizes.seconds) for rate in RATES]))
    if only is None or "sets" in only:
        progress(f"ten inputs, one data set and ten, {sizes.seconds:.0f} s each")
        head = ["class", "requests / 1,000 events", "CPU µs/event", "of these after the outage"]
        tables.append(Table(head, [row for count in (1, INPUTS) for row in sets(target, count, sizes.seconds)]))
    progress()
    return "\n\n".join(map(str, tables))


if __name__ == "__main__":
    main()
