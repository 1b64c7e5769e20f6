"""The cost of a hop, of its barrier, of a resync, and of edges that are connected and have little or nothing to say.

    python -m tests.benchmarks.relay [--only hop,idle,parts,barrier,resync] [--runs 3] [--lines 500000] …

hop: direct      a log into bulk requests, by one shipper
     edge        the same log, by a shipper that relays it
     principal   what that one relays into bulk requests, at the same time
idle             one principal with so many edges over TLS, all driven from this process: a heartbeat of each every 25 s
parts            the same with a part a second of each edge, of one line or five: what the principal spends on one,
                 delivery into bulk requests included, and when it is answered
barrier          200 events of an edge wait at a backend that answers after 150 ms, behind a principal that acknowledges
                 what is delivered, and a revision with another credential is active at the edge: from the instant at
                 which the backend answers the last request, noted by itself, to the instant at which the supervisor of
                 the edge has read `drained`
resync           an edge and its principal have so many keys; the link between them, which counts bytes, is down until
                 the edge has noticed, and up again: what passes until nothing does for two seconds, and what both
                 processes spend on it; in turns without a change, and with 10 keys that changed meanwhile

The aims: a side of a hop costs at most 1.3 times what the direct way costs; 1,000 idle edges cost at most 2 % of a core
and 100 MB, and with a line a second each 0.7 of a core and 250 MB, 0.6 ms a part, each answered within 100 ms (p99);
`drained` comes within 30 ms (p99); the resync of 100,000 keys takes 64 KiB and a second of a processor. The kinds of
runs of a hop take turns, each with fresh processes and empty state directories. CPU is that of the whole process,
system time included; of a hop, from the policy to the moment when nothing waits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shipper_demo.ports import free_port
from tests.benchmarks import far_barrier, resync
from tests.benchmarks.child import Shipper
from tests.benchmarks.doors import Clock, Cost, door, relay_output
from tests.benchmarks.figures import Table, milliseconds, progress, spread
from tests.benchmarks.job import access_log
from tests.benchmarks.pipeline import (
    IMPATIENT,
    activate,
    bulk_output,
    file_input,
    running,
    until_settled,
    workplace,
)
from tests.benchmarks.sessions import Session, post_parts, sessions
from tests.benchmarks.sink import Sink, sink

AIM_FACTOR = 1.3
AIM_MIB = 100e6 / (1 << 20)
AIM_SHARE = 0.02
AIM_PART_MS, AIM_PARTS_SHARE, AIM_PARTS_MIB, AIM_ANSWER_MS = 0.6, 0.7, 250e6 / (1 << 20), 100
HEARTBEAT = 25.0


@dataclass(frozen=True)
class Idle:
    """Of a principal with idle edges."""

    edges: int
    share: float
    """Of a core."""
    grown_mib: float


# -- a hop -------------------------------------------------------------------------------------------------------------


def measure(log: Path, lines: int, target: Sink) -> dict[str, Cost]:
    """One run of each kind, by its name."""
    return {"direct": direct(log, lines, target), **hop(log, lines, target)}


def direct(log: Path, lines: int, target: Sink) -> Cost:
    """From a file into bulk requests."""
    target.reset()
    with workplace() as directory, running(directory / "state") as child:
        clock = Clock(child)
        activate(child, 1, {"log": file_input(log)}, {"main": bulk_output(target.port)})
        until_settled(child, target, lines)
        return clock.stop()


def hop(log: Path, lines: int, target: Sink) -> dict[str, Cost]:
    """The same over a principal."""
    target.reset()
    with (
        workplace() as directory,
        running(directory / "principal") as principal,
        running(directory / "edge") as edge,
    ):
        port, name = free_port(), "berlin"
        clocks = {"edge": Clock(edge), "principal": Clock(principal)}
        door(principal, port, {name: {"credentials": [name]}}, {"main": bulk_output(target.port)})
        activate(edge, 1, {"log": file_input(log)}, {"main": relay_output(port, name, backoff=IMPATIENT)})
        until_settled(principal, target, lines)
        until_settled(edge, target, lines)
        return {side: clock.stop() for side, clock in clocks.items()}


# -- edges that have nothing to say ------------------------------------------------------------------------------------


def idle(edges: int, seconds: float) -> Idle:
    """Connect so many edges, and see what a while of heartbeats costs."""
    with workplace() as directory, running(directory / "state") as child:
        archive = {"type": "file", "path": str(directory / "archive.ndjson")}
        with sessions(child, directory, edges, {"main": archive}) as those:
            for session in those:  # the first one on a connection costs more than those that repeat it
                session.heartbeat()
            share = _share(those, child, seconds)
            return Idle(edges, share, child.resident_mib() - those.before_mib)


def _share(sessions: list[Session], child: Shipper, seconds: float) -> float:
    """Heartbeats at even distances, as of edges that were not started together."""
    clock, begun, number = Clock(child), time.monotonic(), 0
    while (now := time.monotonic() - begun) < seconds:
        while number * HEARTBEAT / len(sessions) <= now:
            sessions[number % len(sessions)].heartbeat()
            number += 1
        progress(f"{len(sessions)} idle edges: {now:.0f} s of {seconds:.0f}")
        time.sleep(0.01)
    return clock.stop().cpu / seconds


# -- edges that send little --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Of a principal to which many edges send small parts."""

    parts: int
    cpu: float
    """Seconds of the whole process, delivery included."""
    seconds: float
    pss_mib: float
    delays: Sequence[float]
    """Seconds until each answer."""

    def row(self, edges: int, events: int) -> list[str]:
        """A row of the table."""
        each, share = f"{1000 * self.cpu / self.parts:.2f}", f"{self.cpu / self.seconds:.2f}"
        return [f"{edges:,} edges, {events} a part", each, share, f"{self.pss_mib:.0f}", *milliseconds(self.delays)]


def parts(target: Sink, edges: int, events: int, seconds: float) -> Parts:
    """Each of so many edges sends a part a second with so many lines, which go on in bulk requests."""
    target.reset()
    with workplace() as directory, running(directory / "state") as child:
        with sessions(child, directory, edges, {"main": bulk_output(target.port)}) as those:
            early = post_parts(those, 2.0, events)  # the first on a connection costs more
            clock = Clock(child)
            delays = post_parts(those, seconds, events)
            cost, pss = clock.stop(), child.pss_mib()
        until_settled(child, target, (len(early) + len(delays)) * events)
        return Parts(len(delays), cost.cpu, cost.seconds, pss, delays)


# -- the table ---------------------------------------------------------------------------------------------------------


def hops(runs: list[dict[str, Cost]], lines: int) -> Table:
    """Medians, and each cost as a multiple of the direct one of the same run."""
    rows = []
    for name in runs[0]:
        costs = [run[name] for run in runs]
        factors = [run[name].cpu / run["direct"].cpu for run in runs]
        cpu = spread([cost.cpu / lines * 1e6 for cost in costs], ".2f")
        peak = spread([cost.peak_mib for cost in costs])
        rows.append([name, cpu, spread([lines / cost.seconds for cost in costs]), peak, spread(factors, ".2f")])
    return Table(["", "CPU µs / event", "events / s", "peak MiB", f"× direct (aim {AIM_FACTOR})"], rows)


def hop_table(options: argparse.Namespace) -> Table:
    log = access_log(options.lines)
    runs = []
    with sink() as target:
        for number in range(options.runs):
            progress(f"hop: run {number + 1} of {options.runs}")
            runs.append(measure(log, options.lines, target))
    return hops(runs, options.lines)


def idle_table(options: argparse.Namespace) -> Table:
    found = idle(options.edges, options.seconds)
    rows = [[f"{found.edges:,}", f"{found.share:.2%}", f"{found.grown_mib:.1f}"]]
    return Table(["idle edges", f"of a core (aim {AIM_SHARE:.0%})", f"MiB more (aim {AIM_MIB:.0f})"], rows)


def parts_table(options: argparse.Namespace) -> Table:
    rows = []
    with sink() as target:
        for edges, events in ((12, 1), (12, 5), (options.edges, 1)):
            progress(f"{edges} edges, {events} lines a part")
            rows.append(parts(target, edges, events, options.seconds).row(edges, events))
    head = [
        "",
        f"CPU ms / part (aim {AIM_PART_MS})",
        f"of a core (aim {AIM_PARTS_SHARE})",
        f"PSS MiB (aim {AIM_PARTS_MIB:.0f})",
    ]
    return Table([*head, "p50 ms", f"p99 ms (aim {AIM_ANSWER_MS})", "max ms"], rows)


def barrier_table(options: argparse.Namespace) -> Table:
    with sink() as target:
        return far_barrier.table(far_barrier.drains(target, options.rotations))


def resync_table(options: argparse.Namespace) -> Table:
    with sink() as target:
        return resync.table(resync.resyncs(target, options.keys, options.runs), options.keys)


PARTS = {"hop": hop_table, "idle": idle_table, "parts": parts_table, "barrier": barrier_table, "resync": resync_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts of it, with commas between")
    parser.add_argument("--runs", type=int, default=3, help="of a hop, and of a resync")
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0, help="for which edges are idle, or send parts")
    parser.add_argument("--rotations", type=int, default=200)
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    only = options.only.split(",")
    if unknown := set(only) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in only:
        table = PARTS[name](options)
        progress()
        print(table, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
