"""Rates: how fast the counters of status documents rise, from two documents and the time between them. Pure.

Counters start at 0 with each process. Where one is lower than before, the process was restarted between the two
documents, and there is no rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

Counter: TypeAlias = tuple[str, str, str]
"""The table of the document, the name in it, and the figure."""

WINDOW_SECONDS = 10.0
"""A rate is over this time, or over less where there is no older document."""
FORGOTTEN_SECONDS = 60.0
"""Documents of that age are too old for a rate."""
_APART_SECONDS = 1.0
_MOST = 16


class Sample(NamedTuple):
    """The counters of a document, and when it was made, in seconds of any clock that never goes back."""

    at: float
    counters: Mapping[Counter, float]
    tables: frozenset[str] = frozenset()
    """The tables that the document has: what is missing in one of them is 0."""


def sample(document: Mapping[str, Any], at: float) -> Sample:
    """Returns the sample of a document: of `/status`, or of `shipper status --json`."""
    counters = dict(_counters(document))
    given = {name for name in ("inputs", "counters", "outputs") if document.get(name) is not None}
    there = {table for table, of in _OF.items() if of in given} | {table for table, _, _ in counters}
    return Sample(at, counters, frozenset(there))


class Rates:
    """The rates between two samples; none are known without the earlier one."""

    def __init__(self, now: Sample, before: Sample | None = None) -> None:
        self._now, self._before = now.counters, before.counters if before is not None else {}
        self._tables = before.tables if before is not None else frozenset()
        self._seconds = now.at - before.at if before is not None else 0.0

    def of(self, table: str, name: str, figure: str) -> float | None:
        """Returns how much a counter rises in a second, or None if that is not known."""
        change = self.change(table, name, figure)
        return change if change is None or change >= 0 else None

    def change(self, table: str, name: str, figure: str) -> float | None:
        """Returns the change in a second of a figure that may fall as well."""
        key = (table, name, figure)
        if self._seconds <= 0 or key not in self._now or table not in self._tables:
            return None
        return (self._now[key] - self._before.get(key, 0.0)) / self._seconds


NO_RATES = Rates(Sample(0.0, {}))


class Samples:
    """The last samples, for any number of readers that look at any time; a bounded number."""

    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=_MOST)

    def rates(self, document: Mapping[str, Any], at: float) -> Rates:
        """Returns the rates up to this document, and keeps its sample for later ones."""
        now = sample(document, at)
        while self._kept and at - self._kept[0].at > FORGOTTEN_SECONDS:
            self._kept.popleft()
        while len(self._kept) > 1 and at - self._kept[1].at >= WINDOW_SECONDS:
            self._kept.popleft()
        before = next((old for old in self._kept if at - old.at >= _APART_SECONDS), None)
        if not self._kept or at - self._kept[-1].at >= _APART_SECONDS:
            self._kept.append(now)
        return Rates(now, before)


_OF = {"inputs": "inputs", "counters": "counters", "outputs": "outputs", "responses": "outputs", "failures": "outputs"}
"""The tables of samples, and those of the document that they are in."""


def _counters(document: Mapping[str, Any]) -> Iterator[tuple[Counter, float]]:
    for table in ("inputs", "counters"):
        for name, figures in (document.get(table) or {}).items():
            yield from (((table, name, figure), number) for figure, number in figures.items())
    for name, seen in (document.get("outputs") or {}).items():
        yield ("outputs", name, "requests"), seen.get("requests", 0)
        yield ("outputs", name, "seconds"), seen.get("seconds", 0.0)
        for table in ("responses", "failures"):
            yield from (((table, name, figure), number) for figure, number in (seen.get(table) or {}).items())
    observed = document.get("observed") or document
    if queue := observed.get("queue"):
        yield ("queue", "", "events"), queue["events"]
        yield ("queue", "", "bytes"), queue.get("bytes", 0)
    for drain in observed.get("draining") or ():
        for output, waiting in drain["outputs"].items():
            yield ("draining", f"{drain.get('epoch', 0)}:{drain['revision']}", output), waiting["events"]
