"""The costs of a full spool: for a start, an observation, a cut, and a delivery beside it.

    python tests/benchmarks/spools.py [--megabytes 1 100 1000] [--rounds 20]

A log of lines that hardly compress is read for an output where nobody listens, up to each size; beside it, an input and
an output of their own go on. At each size:

disk MB     the files of the spool, as `observed` says it
start       from a new launch to `ready`, time and CPU
observe     from the question to the answer, and CPU
cut         from `policy` to `active` of a revision that changes the dead output's credential, and CPU
pass        one event through the live output, alone: until the input has its 201 (it is durable then), and CPU of
            everything that becomes of it: stored, sent, settled

All of them are to be the same from top to bottom. In earnest, with 20 GB (45 GB of disk):

    python tests/benchmarks/spools.py --megabytes 1 100 1000 20000
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shipper_demo.ports import free_port
from tests.benchmarks.child import Shipper
from tests.benchmarks.figures import Table, progress
from tests.benchmarks.logs import noise_log
from tests.benchmarks.pipeline import (
    PATIENT,
    ROOMY,
    Progress,
    activate,
    bulk_output,
    file_input,
    queued,
    running,
    until_queued,
    workplace,
)
from tests.benchmarks.sink import Sink, sink

HEAD = ["MB", "disk MB", "start ms", "CPU ms", "observe ms", "CPU ms", "cut ms", "CPU ms", "pass ms", "CPU ms", "MiB"]
ONE = b'{"create":{}}\n{"message":"passes by"}\n'


class Spool:
    """A state directory that fills, and the shippers that run on it one after the other."""

    def __init__(self, place: Path, target: Sink) -> None:
        self.place, self.target = place, target
        self.dead, self.door = free_port(), free_port()
        self.revision = self.held = 0

    def fill(self, child: Shipper, megabytes: int) -> None:
        """Until it holds so much, if it does not yet."""
        logs = self.place / "logs"
        logs.mkdir(exist_ok=True)
        here = sum(log.stat().st_size for log in logs.iterdir())
        missing = megabytes * 1_000_000 - here
        if missing > 0:
            part = self.place / "part"
            self.held += noise_log(part, missing)
            part.rename(logs / f"{megabytes}.log")
        self.cut(child)
        until_queued(child, self.held)

    def cut(self, child: Shipper) -> None:
        """A revision with another credential for the dead output, until it is active."""
        self.revision += 1
        inputs = {
            "log": file_input(self.place / "logs" / "*.log", outputs=["dead"]),
            "door": {"type": "elasticsearch", "address": f"127.0.0.1:{self.door}", "outputs": ["live"]},
        }
        dead = bulk_output(self.dead, credential=f"c{self.revision}", backoff=PATIENT)
        outputs = {"dead": dead, "live": bulk_output(self.target.port)}
        activate(child, self.revision, inputs, outputs, queue=ROOMY)

    def pass_one(self, connection: http.client.HTTPConnection) -> None:
        """One event, until it is durable."""
        connection.request("POST", "/_bulk", ONE, {"Content-Type": "application/x-ndjson"})
        answer = connection.getresponse()
        if answer.status != 200 or b'"status":201' not in answer.read():
            raise SystemExit(f"the event was refused: {answer.status}")

    def until_passed(self, child: Shipper, events: int) -> None:
        """Until the live output has delivered and settled so many."""
        patience = Progress(child, f"{events} events passed by")
        while (items := self.target.counts()["items"]) < events or queued(child) > self.held:
            patience.check(items)
            time.sleep(0.005)


def cost(child: Shipper, act: Callable[[], Any], times: int) -> list[str]:
    """Median time and mean CPU of doing something some times, in ms."""
    taken, cpu = [], child.cpu_seconds()
    for _ in range(times):
        begun = time.monotonic()
        act()
        taken.append(time.monotonic() - begun)
    return [f"{1000 * statistics.median(taken):.1f}", f"{1000 * (child.cpu_seconds() - cpu) / times:.1f}"]


def row(spool: Spool, megabytes: int, rounds: int) -> list[str]:
    """Fill, start anew, measure."""
    progress(f"a spool of {megabytes:,} MB: filled")
    with running(spool.place / "state") as child:
        spool.fill(child, megabytes)
    progress(f"a spool of {megabytes:,} MB: measured")
    begun = time.monotonic()
    with running(spool.place / "state") as child:
        start = [f"{1000 * (time.monotonic() - begun):.0f}", f"{1000 * child.cpu_seconds():.0f}"]
        spool.cut(child)
        observe = cost(child, lambda: queued(child), rounds)
        cut = cost(child, lambda: spool.cut(child), max(1, rounds // 4))
        return [f"{megabytes:,}", _disk(child), *start, *observe, *cut, *_passing(spool, child, rounds)]


def _disk(child: Shipper) -> str:
    child.say(type="observe")
    return f"{child.wait('observed')['queue']['disk_bytes'] / 1e6:,.0f}"


def _passing(spool: Spool, child: Shipper, rounds: int) -> list[str]:
    spool.target.reset()
    connection = http.client.HTTPConnection("127.0.0.1", spool.door, timeout=60)
    cpu = child.cpu_seconds()
    took, _ = cost(child, lambda: spool.pass_one(connection), rounds)
    connection.close()
    spool.until_passed(child, rounds)
    return [took, f"{1000 * (child.cpu_seconds() - cpu) / rounds:.1f}", f"{child.peak_mib():,.0f}"]


def measure(megabytes: list[int], rounds: int) -> Table:
    """A row for each size; from the smallest on, in one state directory."""
    with sink() as target, workplace() as place:
        spool = Spool(place, target)
        return Table(HEAD, [row(spool, size, rounds) for size in sorted(megabytes)])


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 100, 1_000], help="of log lines in the spool")
    parser.add_argument("--rounds", type=int, default=20, help="how often each is done")
    options = parser.parse_args()
    table = measure(options.megabytes, options.rounds)
    progress()
    print(table)


if __name__ == "__main__":
    main()
