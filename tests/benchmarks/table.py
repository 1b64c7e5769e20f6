"""What was measured, as a table for people and as JSON for programs."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.benchmarks.measure import Run

_QUEUES = {"memory": "memory queue", "disk": "disk queue", "synced": "synced queue"}


@dataclass
class Entry:
    """All runs of one peer with one queue and one compression."""

    peer: str
    version: str
    queue: str
    compression: str
    runs: list[Run] = field(default_factory=list)
    starts: list[Run] = field(default_factory=list)
    """Runs of one line: what a launch and a stop cost."""
    syncs: int | None = None
    counted: Run | None = None
    """The run whose syncs were counted."""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.peer}, {_QUEUES[self.queue]}"

    def median(self, figure: str) -> float:
        """The median of one figure over the runs."""
        return statistics.median([float(getattr(run, figure)) for run in self.runs])

    def spread(self, figure: str) -> str:
        """The median of one figure, with the least and the most."""
        values = [float(getattr(run, figure)) for run in self.runs]
        return f"{self.median(figure):,.0f} ({min(values):,.0f}–{max(values):,.0f})"

    def faults(self) -> str:
        """What went wrong, in which run; no figure of such a run is worth anything."""
        named = [(f"run {n}", run) for n, run in enumerate(self.runs, 1)]
        named += [(f"start {n}", run) for n, run in enumerate(self.starts, 1)]
        named += [("syncs", self.counted)] if self.counted is not None else []
        return "; ".join(f"{name}: {', '.join(run.faults)}" for name, run in named if run.faults)


_HEADINGS = ("", "events / CPU second", "ours", "events / second", "ours", "peak MiB", "start", "bytes", "syncs", "")


def table(entries: list[Entry]) -> str:
    """Entries of one compression; `ours` is the shipper's figure as a multiple of the row's."""
    ours = next((entry for entry in entries if entry.peer == "shipper"), None)
    return _aligned([_HEADINGS, *(_row(entry, ours) for entry in entries)])


def _row(entry: Entry, ours: Entry | None) -> tuple[str, ...]:
    return (
        entry.name,
        entry.spread("per_cpu_second"),
        _ratio("per_cpu_second", ours, entry),
        entry.spread("per_second"),
        _ratio("per_second", ours, entry),
        f"{entry.median('peak_mib'):,.0f}",
        f"{statistics.median([run.cpu for run in entry.starts]):.2f}" if entry.starts else "",
        f"{entry.median('wire_bytes') / entry.runs[0].lines:,.0f}",
        "" if entry.syncs is None else f"{entry.syncs:,}",
        entry.faults(),
    )


def _ratio(figure: str, ours: Entry | None, theirs: Entry) -> str:
    if ours is None or ours is theirs or not theirs.median(figure):
        return ""
    return f"{ours.median(figure) / theirs.median(figure):.2f} ×"


def _aligned(rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as they must be; the first and the last to the left, figures to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    lines = [
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def as_json(entries: list[Entry]) -> list[dict[str, Any]]:
    """Every run with every figure, the derived ones too."""
    return [
        asdict(entry)
        | {"runs": [asdict(run) | _derived(run) for run in entry.runs], "starts": [asdict(run) for run in entry.starts]}
        for entry in entries
    ]


def _derived(run: Run) -> dict[str, Any]:
    return {"per_second": run.per_second, "per_cpu_second": run.per_cpu_second, "faults": run.faults}
