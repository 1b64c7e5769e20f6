"""Figures as the drivers print them: medians, spreads, aims, in aligned columns; and what is under way meanwhile."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of all do not exceed; of few values, the largest rather than none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """The median, and between what the values lie."""
    median = format(statistics.median(values), form)
    return median if len(values) == 1 else f"{median} ({min(values):{form}} to {max(values):{form}})"


def milliseconds(seconds: Sequence[float]) -> list[str]:
    """Three cells: p50, p99, the longest."""
    return [f"{1000 * percentile(seconds, share):,.1f}" for share in (0.5, 0.99, 1.0)]


@dataclass(frozen=True)
class Table:
    """Rows of text below a head; the first column is aligned to the left, all others to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(self._line(cells, widths) for cells in lines)

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        first, *others = zip(cells, widths, strict=True)
        aligned = [f"{cell:>{width}}" for cell, width in others]
        return "  ".join([f"{first[0]:<{first[1]}}", *aligned]).rstrip()


def progress(text: str = "") -> None:
    """What is under way, in one line of a terminal; nothing elsewhere. No text takes it away."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
