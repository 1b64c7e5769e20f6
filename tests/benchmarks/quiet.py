"""What a quiet host pays: few lines, small requests, new files, a start; the shipper, and its peers beside it.

    python -m tests.benchmarks.quiet                                     all loads, the shipper alone, 20 s each
    python -m tests.benchmarks.quiet --only file-10 file-100 --runs 3
    python -m tests.benchmarks.quiet --peer --fetch                      beside rsyslog, the Collector, and Fluent Bit
    python -m tests.benchmarks.quiet --peer fluent-bit=/opt/fluent-bit rsyslog

It prints tables in Markdown: a load a row, a product with one of its queues a column, medians with the least and the
most. quiet_loads.py says how a load is measured. The shipper is `shipper supervise` with its sidecar, as it comes. Of a
product, all processes count: their user and system time as the kernel tells it, and their memory (PSS). The products
take turns. A line that did not come, or came twice, and a request that was refused are named on the standard error, and
the exit status is 1.

The small host is a cgroup, which needs root.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import spread
from tests.benchmarks.peers.peer import QUEUES, Unavailable
from tests.benchmarks.peers.shipper import Supervised
from tests.benchmarks.posts import Refused
from tests.benchmarks.quiet_loads import COST, FIGURES, Load, Measured, Product, Start, loads
from tests.benchmarks.sink import Sink, sink
from tests.benchmarks.throughput import found

COMPARED = ("rsyslog", "fluent-bit", "otelcol")


@dataclass(frozen=True)
class Row:
    """A load, and what each product did with it."""

    load: Load | Start
    runs: dict[str, list[Measured]]
    """By product."""

    def cells(self, figure: str, columns: Sequence[str]) -> list[str]:
        """One figure; nothing for a product that has none."""
        name = f"{self.load.label}, {self.load.unit}" if figure == COST else self.load.label
        return [
            name,
            *(_cell([run.figures[figure] for run in self.runs[column] if figure in run.figures]) for column in columns),
        ]

    def faults(self) -> list[str]:
        """What went wrong; no figure of such a run is worth anything."""
        wrong = [(name, run.faults) for name, runs in self.runs.items() for run in runs if run.faults]
        return [f"failed: {self.load.label}: {name}: {', '.join(faults)}" for name, faults in wrong]


def products(options: argparse.Namespace) -> list[Product]:
    """The shipper, and each wanted peer that is here."""
    peers = found(options.peers, _say) if options.peers else []
    ours = Product(Supervised(Path(sys.executable)), "synced")
    return [ours, *(Product(peer, queue) for peer in peers for queue in peer.queues if queue in options.queues)]


def measure(load: Load | Start, options: argparse.Namespace, target: Sink) -> Row:
    """One load, the products in turns."""
    row = Row(load, defaultdict(list))
    for turn in range(options.runs):
        for product in options.products:
            if load.source in product.peer.sources:
                run = _run(load, product, target, options.seconds)
                row.runs[product.name].append(run)
                figures = [f"{name}: {', '.join(f'{value:.1f}' for value in of)}" for name, of in run.figures.items()]
                _say(f"{load.label}, {product.name}, run {turn + 1} of {options.runs}: {'; '.join(figures)}")
    return row


def _run(load: Load | Start, product: Product, target: Sink, seconds: float) -> Measured:
    """One run; it has no figures if its clients were refused."""
    try:
        return load.measure(product, target, seconds)
    except Refused as error:
        return Measured({}, [str(error)])


def report(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The tables, and what they were measured on."""
    return "\n\n".join([*(table for figure in FIGURES if (table := _table(figure, rows, columns))), _machine()])


def _table(figure: str, rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Of all loads that have this figure."""
    lines = [cells for row in rows if any((cells := row.cells(figure, columns))[1:])]
    lines = [[figure, *columns], ["---"] * (len(columns) + 1), *lines] if lines else []
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(values: Sequence[tuple[float, ...]]) -> str:
    """One figure, or two such as p50 and p99, each with its spread."""
    return ", ".join(spread(each, _form(median(each))) for each in zip(*values, strict=True))


def _form(value: float) -> str:
    """Two digits that say something."""
    return ",.2f" if value < 1 else ",.1f" if value < 10 else ",.0f"


def _machine() -> str:
    names = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    system = f"{platform.platform()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {names[0] if names else 'unknown'}; {system}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; `chosen` has the loads, `products` who does them."""
    names = tuple(loads(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="LOAD", help=", ".join(names))
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    parser.add_argument("--runs", type=int, default=1, help="of each load with each product")
    parser.add_argument("--files", type=int, default=5000, help="quiet ones of a start")
    parser.add_argument(
        "--peer", nargs="*", metavar="NAME[=PATH]", help=f"beside these, or all that are here: {', '.join(COMPARED)}"
    )
    parser.add_argument("--queues", nargs="+", choices=QUEUES, default=["memory", "synced"], help="of the peers")
    parser.add_argument("--fetch", action="store_true", help="fetch absent peers from package registries first")
    options = parser.parse_args(arguments)
    options.chosen = [load for name, load in loads(options.files).items() if name in options.only]
    options.peers = None
    if options.peer is not None:
        named = dict(text.partition("=")[::2] for text in options.peer or COMPARED)
        if unknown := named.keys() - {*COMPARED}:
            parser.error(f"--peer: unknown: {', '.join(sorted(unknown))}")
        paths = {name: Path(path).absolute() for name, path in named.items() if path}
        options.peers = argparse.Namespace(only=tuple(named), peer=paths, fetch=options.fetch)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit status is 1 if a line was lost, or came twice, or a product did not end in order."""
    options = parsed(arguments)
    options.products = products(options)
    rows = []
    with sink() as target:
        for load in options.chosen:
            try:
                rows.append(measure(load, options, target))
            except Unavailable as error:
                _say(f"left out: {load.label}: {error}")
    print(report(rows, [product.name for product in options.products]))
    faults = [fault for row in rows for fault in row.faults()]
    for fault in faults:
        _say(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
