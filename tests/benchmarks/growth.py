"""Checks that the cost of an event does not grow with backlogs, files and revisions.

    python tests/benchmarks/growth.py [--megabytes 100 1000] [--files 1 100 1000 10000] [--revisions 200] [--only …]

backlog      a log is read while nobody listens at the destination, then the destination comes: CPU of one event into
             the spool, and out of it from the first request on
files        the same number of lines in one file and in ever more, and what these files cost when nothing happens
revisions    each with another credential, so with a lane of its own, and 100 lines: from `policy` to `active`, to
             `drained`, CPU of it all, and memory; at the beginning, in the middle, at the end
held         the same while nobody listens, so that all lanes stay; then the destination comes, and all of them drain

The spool's size has a driver of its own: `spools.py`. All of it in earnest, with 10 GB (30 GB of disk, 10 minutes):

    python tests/benchmarks/growth.py --megabytes 100 1000 10000 --lines 2000000
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from shipper_demo.ports import free_port
from tests.benchmarks.child import Shipper
from tests.benchmarks.figures import Table, progress
from tests.benchmarks.logs import big_log, small_logs
from tests.benchmarks.pipeline import (
    PATIENT,
    ROOMY,
    Progress,
    activate,
    bulk_output,
    file_input,
    running,
    until_queued,
    until_settled,
    workplace,
)
from tests.benchmarks.rotation import Rotation
from tests.benchmarks.sink import Sink, sink

IDLE_SECONDS = 3.0
LINES_A_REVISION = 100
WINDOW = 10


class Spent:
    """CPU and time of a shipper since this was made."""

    def __init__(self, child: Shipper) -> None:
        self._child = child
        self._cpu, self._begun = child.cpu_seconds(), time.monotonic()

    def cells(self, events: int) -> list[str]:
        """CPU µs an event, and events a second."""
        seconds, cpu = time.monotonic() - self._begun, self._child.cpu_seconds() - self._cpu
        return [f"{1e6 * cpu / events:.2f}", f"{events / seconds:,.0f}"]


# -- backlog -----------------------------------------------------------------------------------------------------------


def backlog(megabytes: int) -> list[str]:
    """In and out again: a row."""
    port = free_port()
    with workplace() as place, running(place / "state") as child:
        progress(f"a backlog of {megabytes:,} MB: written")
        lines = big_log(place / "app.log", megabytes * 1_000_000)
        os.sync()  # else the spool's first fsync waits for the disk to have the log
        progress(f"a backlog of {megabytes:,} MB: into the spool")
        spent = Spent(child)
        outputs = {"main": bulk_output(port, backoff=PATIENT)}
        activate(child, 1, {"log": file_input(place / "app.log")}, outputs, queue=ROOMY)
        until_queued(child, lines)
        into = spent.cells(lines)
        progress(f"a backlog of {megabytes:,} MB: out of the spool")
        with sink(port) as target:
            until_first(child, target)
            spent = Spent(child)
            until_settled(child, target, lines)
            return [f"{megabytes:,} MB", f"{lines:,}", *into, *spent.cells(lines), f"{child.peak_mib():,.0f}"]


def until_first(child: Shipper, target: Sink) -> None:
    """Until something comes: that the shipper waits between its attempts is no cost of an event."""
    patience = Progress(child, "a backlog was shipped")
    while not target.counts()["requests"]:
        patience.check(0)
        time.sleep(0.005)


# -- files -------------------------------------------------------------------------------------------------------------


def files(count: int, lines: int) -> list[str]:
    """So many lines in so many files: a row."""
    progress(f"{count:,} files")
    with sink() as target, workplace() as place, running(place / "state") as child:
        logs = place / "logs"
        logs.mkdir()
        events = small_logs(logs, count, max(1, lines // count))
        spent = Spent(child)
        activate(child, 1, {"log": file_input(logs / "*.log")}, {"main": bulk_output(target.port)})
        until_settled(child, target, events)
        moved = spent.cells(events)
        cpu = child.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        idle = (child.cpu_seconds() - cpu) / IDLE_SECONDS
        return [f"{count:,}", f"{events // count:,}", *moved, f"{100 * idle:.2f}", f"{child.peak_mib():,.0f}"]


# -- revisions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """One revision: seconds from `policy`, CPU seconds, and the resident set after it."""

    active: float
    drained: float
    cpu: float
    mib: float


def turn(rotation: Rotation, *, drains: bool) -> Turn:
    """The next revision, and some lines that enter under it."""
    child = rotation.child
    cpu, begun = child.cpu_seconds(), time.monotonic()
    active = rotation.turn()
    drained = rotation.until_drained() - begun if drains else 0.0
    rotation.write(LINES_A_REVISION)
    if not drains:
        until_queued(child, rotation.lines)
    return Turn(active, drained, child.cpu_seconds() - cpu, child.resident_mib())


def windows(turns: Sequence[Turn], name: str) -> list[list[str]]:
    """The medians of the first, the middle and the last revisions: rows."""
    size = min(WINDOW, len(turns))
    firsts = dict.fromkeys((0, (len(turns) - size) // 2, len(turns) - size))
    return [_row(f"{name} {first + 1} to {first + size}", turns[first : first + size]) for first in firsts]


def _row(name: str, turns: Sequence[Turn]) -> list[str]:
    times = [1000 * median([getattr(turn, field) for turn in turns]) for field in ("active", "drained", "cpu")]
    return [name, *[f"{value:.1f}" if value else "" for value in times], f"{turns[-1].mib:,.0f}"]


def revisions(count: int) -> list[list[str]]:
    """Each drains before the next one: rows."""
    with sink() as target, workplace() as place, running(place / "state") as child:
        rotation = Rotation(child, place, target.port)
        turns = []
        for number in range(count):
            progress(f"revision {number + 1} of {count}")
            turns.append(turn(rotation, drains=True))
        until_settled(child, target, rotation.lines)
        return windows(turns, "drained each")


def held(count: int) -> list[list[str]]:
    """None drains until the end: rows."""
    port = free_port()
    with workplace() as place, running(place / "state") as child:
        rotation = Rotation(child, place, port, PATIENT)
        turns = []
        for number in range(count):
            progress(f"revision {number + 1} of {count}, all held")
            turns.append(turn(rotation, drains=False))
        with sink(port) as target:
            until_first(child, target)
            cpu, begun = child.cpu_seconds(), time.monotonic()
            progress(f"{count} lanes drain")
            drained = rotation.until_drained() - begun
            until_settled(child, target, rotation.lines)
            end = Turn(0.0, drained, child.cpu_seconds() - cpu, child.peak_mib())
        return [*windows(turns, "held"), _row("held, then all drain", [end])]


# -- the command -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1_000], help="sizes of backlogs")
    parser.add_argument("--files", type=int, nargs="+", default=[1, 100, 1_000, 10_000])
    parser.add_argument("--lines", type=int, default=500_000, help="in all these files together")
    parser.add_argument("--revisions", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=["backlog", "files", "revisions"], help="default: all")
    options = parser.parse_args()
    for table in tables(options.megabytes, options.files, options.lines, options.revisions, options.only):
        progress()
        print(f"{table}\n", flush=True)


def tables(
    megabytes: Sequence[int], counts: Sequence[int], lines: int, number: int, only: Sequence[str] | None
) -> list[Table]:
    """Those that are asked for, as they come; in each, a column of cost is to be the same from top to bottom."""
    heads: dict[str, tuple[list[str], Callable[[], list[list[str]]]]] = {
        "backlog": (
            ["backlog", "events", "in: CPU µs", "events/s", "out: CPU µs", "events/s", "peak MiB"],
            lambda: [backlog(size) for size in megabytes],
        ),
        "files": (
            ["files", "lines each", "CPU µs", "events/s", "idle %", "peak MiB"],
            lambda: [files(count, lines) for count in counts],
        ),
        "revisions": (
            ["revisions", "active ms", "drained ms", "CPU ms", "MiB"],
            lambda: [*revisions(number), *held(number)],
        ),
    }
    return [Table(head, rows()) for name, (head, rows) in heads.items() if only is None or name in only]


if __name__ == "__main__":
    main()
