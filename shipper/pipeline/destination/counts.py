"""What outputs have counted since the process started, over all of their lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from shipper.sdk.meters import Meters, Panel
from shipper.sdk.tallies import Requests
from shipper.spool.revisions import LaneKey

MOST_PAST = 100
"""The most outputs without a lane whose counters are still shown."""


class OutputCounts:
    """Counters by output."""

    def __init__(self) -> None:
        self.requests: dict[str, Requests] = {}
        """By output with a lane."""
        self.panel = Panel()
        """By output with a lane, its own counters."""
        self._past: dict[str, Counter[str]] = {}
        """By output, the counters of its lanes that are gone; the output that was counted last is last."""

    def requests_of(self, key: LaneKey) -> Requests:
        """Returns where requests of a lane's output are counted."""
        return self.requests.setdefault(key.output, Requests())

    def meters_of(self, key: LaneKey) -> Meters:
        """Returns the own counters of a lane's output."""
        return self.panel.of(*_unit(key))

    def gone(self, key: LaneKey, counters: Mapping[str, int], others: Iterable[LaneKey]) -> None:
        """A lane is gone, and these are left."""
        there = list(others)
        if all(other.output != key.output for other in there):
            del self.requests[key.output]
        self.panel.keep(set(map(_unit, there)))
        self.keep(key.output, counters)

    def keep(self, output: str, counts: Mapping[str, int]) -> None:
        """Keeps the counters of a removed output for the next scrape, for a bounded number of outputs."""
        past = self._past.pop(output, Counter())
        past.update(counts)
        self._past[output] = past
        gone = [name for name in self._past if name not in self.requests]
        for name in gone[:-MOST_PAST]:
            del self._past[name]

    def sums(self, counters: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
        """Returns, by output, the final answers by kind and the retries; `counters` are those of its lanes."""
        sums = {output: past.copy() for output, past in self._past.items()}
        for output, counter in counters:
            sums.setdefault(output, Counter()).update(counter)
        return {output: dict(counter) for output, counter in sums.items()}


def _unit(key: LaneKey) -> tuple[str, str]:
    return f"outputs.{key.output}", key.type
