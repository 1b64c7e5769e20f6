"""The latency of a line from its file to the destination, at rest and under load.

    python tests/benchmarks/latency.py [--seconds 10] [--capacity EVENTS/S] [--lines 1000000]
    python tests/benchmarks/latency.py --rates 100 2000 20000 --flush 0ms 50ms 100ms

A line is written, read, sealed, made durable, sent and accepted: from the instant at which it was due in its file to
the instant at which the sink has read the request that it is in, on one clock. First it is measured what the shipper
can move (a log that is there already), then a producer appends a share of that, in steps of 5 ms, on a schedule that
waits for nobody; every step has one line whose arrival is noted. Aim: at half load, 99 of 100 within 50 ms.

At 90 % of the capacity producer, shipper and sink want more than two cores have; what `late` shows is time for which
the producer itself did not get a processor, and it is part of the delays.

With `--rates`, it is measured at so many events a second instead, with each `flush` of the output.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figures import Table, milliseconds, progress
from tests.benchmarks.job import access_log
from tests.benchmarks.pipeline import activate, bulk_output, file_input, running, until_settled, workplace
from tests.benchmarks.producer import Schedule, append
from tests.benchmarks.sink import Sink, sink

AIM_MS = 50
SHARES = (0.01, 0.5, 0.9)


@dataclass(frozen=True)
class Load:
    """What a load did: `cpu` is of the shipper, in seconds, over the time that the load took."""

    share: float
    schedule: Schedule
    delays: list[float]
    seconds: float
    cpu: float
    flush: str = ""
    together: float = 0.0
    """Events in a request."""

    def cells(self) -> list[str]:
        """A row of the table."""
        aim = f"p99 ≤ {AIM_MS}" if self.share == 0.5 else ""
        rate, late = f"{self.schedule.lines / self.seconds:,.0f}", f"{1000 * self.schedule.late:,.1f}"
        return [f"{self.share:.0%}", rate, *milliseconds(self.delays), f"{self.cpu / self.seconds:.0%}", late, aim]


def capacity(target: Sink, lines: int) -> float:
    """Events a second, with a log that is there already."""
    log = access_log(lines)
    target.reset()
    with workplace() as place, running(place / "state") as child:
        begun = time.monotonic()
        activate(child, 1, {"log": file_input(log)}, {"main": bulk_output(target.port)})
        until_settled(child, target, lines)
        return lines / (time.monotonic() - begun)


def measure(target: Sink, share: float, rate: float, seconds: float, flush: str = "") -> Load:
    """One load on a shipper of its own."""
    options = {"flush": flush} if flush else {}
    target.reset()
    target.note_probes()
    with workplace() as place, running(place / "state") as child:
        log: Path = place / "app.log"
        log.touch()
        activate(child, 1, {"log": file_input(log)}, {"main": bulk_output(target.port, **options)})
        begun, cpu = time.monotonic(), child.cpu_seconds()
        schedule = append(log, share * rate, seconds)
        took, used = time.monotonic() - begun, child.cpu_seconds() - cpu
        until_settled(child, target, schedule.lines)
        together = schedule.lines / target.counts()["requests"]
        return Load(share, schedule, schedule.delays(target.probes()), took, used, flush, together)


def report(loads: list[Load]) -> Table:
    """Times in milliseconds."""
    return Table(
        ["load", "events/s", "p50 ms", "p99 ms", "max ms", "CPU", "late ms", "aim"], [x.cells() for x in loads]
    )


def report_flushes(target: Sink, rates: Sequence[float], flushes: Sequence[str], seconds: float) -> Table:
    """Measures the size of requests, and the latency."""
    rows = []
    for rate in rates:
        for flush in flushes:
            progress(f"{rate:,.0f} events/s, flush {flush}, {seconds:.0f} s")
            load = measure(target, 1.0, rate, seconds, flush)
            cpu = f"{load.cpu / load.seconds:.0%}"
            rows.append([f"{rate:,.0f}", flush, f"{load.together:,.0f}", *milliseconds(load.delays), cpu])
    progress()
    return Table(["events/s", "flush", "events/request", "p50 ms", "p99 ms", "max ms", "CPU"], rows)


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--capacity", type=float, help="events a second that count as all it can (default: measured)")
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the log that the capacity is measured with")
    parser.add_argument("--rates", type=float, nargs="+", help="events a second, instead of shares of the capacity")
    parser.add_argument("--flush", nargs="+", default=["0ms", "50ms"], help="of the output, for each of the rates")
    options = parser.parse_args()
    with sink() as target:
        if options.rates:
            print(report_flushes(target, options.rates, options.flush, options.seconds))
            return
        progress("how much can it move?")
        rate = options.capacity or capacity(target, options.lines)
        loads = []
        for share in SHARES:
            progress(f"{share:.0%} of {rate:,.0f} events/s, {options.seconds:.0f} s")
            loads.append(measure(target, share, rate, options.seconds))
    progress()
    print(f"capacity {rate:,.0f} events/s\n{report(loads)}")


if __name__ == "__main__":
    main()
