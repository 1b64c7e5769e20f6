"""What a plugin counts of itself, by names of its own: for `observed` and metrics, in memory only.

    self._lost = context.meters.counter("datagrams_lost", "Datagrams that the kernel dropped.")
    self._lost.add(newly_lost(listener) or 0)

The figures belong to a unit and its type: those of a newer revision go on from those of the one before it, until the
unit is gone. All of it may be called from any thread. Names are few and fixed by the plugin: never make one from what a
peer or an event says.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any, Final, TypeVar

from shipper.sdk.tallies import BOUNDS

MOST: Final = 32
"""Figures of one unit."""
MOST_BOUNDS: Final = 32
LONGEST_HELP: Final = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_RESERVED = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
"""Endings that Prometheus gives to the parts of a metric."""


class Counter:
    """A number that grows."""

    kind: Final = "counter"

    def __init__(self, help: str) -> None:
        self.help = help
        self._lock = threading.Lock()
        self._value = 0

    def add(self, number: int = 1) -> None:
        """Raises ValueError for less than nothing."""
        if number < 0:
            raise ValueError("a counter only grows")
        with self._lock:
            self._value += number

    @property
    def number(self) -> int:
        return self._value

    def view(self) -> dict[str, Any]:
        """As JSON."""
        return {"kind": self.kind, "help": self.help, "value": self._value}


class Gauge:
    """A number as it is now."""

    kind: Final = "gauge"

    def __init__(self, help: str) -> None:
        self.help = help
        self._value = 0.0

    def set(self, number: float) -> None:
        self._value = float(number)

    @property
    def number(self) -> int:
        return int(self._value)

    def view(self) -> dict[str, Any]:
        """As JSON."""
        return {"kind": self.kind, "help": self.help, "value": self._value}


class Histogram:
    """How many numbers were how large."""

    kind: Final = "histogram"

    def __init__(self, help: str, bounds: Sequence[float]) -> None:
        self.help, self._bounds = help, bounds
        self._lock = threading.Lock()
        self._sum = 0.0
        self._buckets = [0] * (len(bounds) + 1)

    def observe(self, number: float) -> None:
        bucket = bisect_left(self._bounds, number)
        with self._lock:
            self._sum += number
            self._buckets[bucket] += 1

    @property
    def number(self) -> int:
        """How many there were."""
        return sum(self._buckets)

    def view(self) -> dict[str, Any]:
        """As JSON; `buckets` has for each bound how many were not above it."""
        with self._lock:
            counts, total = list(accumulate(self._buckets)), self._sum
        return {
            "kind": self.kind,
            "help": self.help,
            "sum": total,
            "buckets": list(zip([*map(str, self._bounds), "+Inf"], counts, strict=True)),
        }


Meter = Counter | Gauge | Histogram
_M = TypeVar("_M", Counter, Gauge, Histogram)


class Meters:
    """The figures of one unit. A name that is asked for again gives the same one.

    Raises ValueError for a name that is none (small letters, digits and _), that is of another kind already, or that is
    one too many.
    """

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}
        self._lock = threading.Lock()

    def counter(self, name: str, help: str) -> Counter:
        """A number that grows; `help` is a sentence for people."""
        return self._get(name, Counter, help)

    def gauge(self, name: str, help: str) -> Gauge:
        """A number as it is now, such as how many peers are connected."""
        return self._get(name, Gauge, help)

    def histogram(self, name: str, help: str, bounds: Sequence[float] = BOUNDS) -> Histogram:
        """How large numbers are, such as seconds; `bounds` are those of its buckets."""
        if not 0 < len(bounds) <= MOST_BOUNDS or any(one >= other for one, other in pairwise(bounds)):
            raise ValueError(f"bounds are at most {MOST_BOUNDS} numbers, each larger than the one before")
        return self._get(name, Histogram, help, tuple(map(float, bounds)))

    def _get(self, name: str, kind: type[_M], help: str, *more: Any) -> _M:
        found = self._meters.get(name)
        if found is None:
            with self._lock:
                found = self._meters.get(name) or self._made(name, kind, help, *more)
        if not isinstance(found, kind):
            raise ValueError(f"the figure {name} is a {found.kind} already")
        return found

    def _made(self, name: str, kind: type[_M], help: str, *more: Any) -> _M:
        if not _NAME.fullmatch(name) or name.endswith(_RESERVED):
            raise ValueError(f"the name of a figure is of a-z, 0-9 and _, and does not end in {', '.join(_RESERVED)}")
        if not help.isprintable() or len(help) > LONGEST_HELP:
            raise ValueError(f"the help of a figure is one line of at most {LONGEST_HELP} characters")
        if len(self._meters) >= MOST:
            raise ValueError(f"a unit has at most {MOST} figures")
        made = self._meters[name] = kind(help, *more)
        return made

    def numbers(self) -> dict[str, int]:
        """By name, in whole numbers; of a histogram how many there were."""
        return {name: meter.number for name, meter in list(self._meters.items())}

    def view(self) -> dict[str, dict[str, Any]]:
        """By name, as JSON."""
        return {name: meter.view() for name, meter in list(self._meters.items())}


class Panel:
    """The figures of all units, by their ids and types."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Meters] = {}

    def of(self, unit: str, type: str) -> Meters:
        """Those of a unit; new ones if there are none."""
        return self._of.setdefault((unit, type), Meters())

    def keep(self, units: Collection[tuple[str, str]]) -> None:
        """Forget all others."""
        self._of = {unit: meters for unit, meters in self._of.items() if unit in units}

    def view(self) -> dict[str, dict[str, dict[str, Any]]]:
        """By unit and name, as JSON; of units without figures nothing."""
        return {unit: view for (unit, _), meters in sorted(self._of.items()) if (view := meters.view())}


_here = threading.local()


def meters() -> Meters:
    """Within `Processor.process`: the figures of this processor. Elsewhere: some that nobody looks at."""
    found: Meters | None = getattr(_here, "meters", None)
    return Meters() if found is None else found


@contextmanager
def measured(by: Meters) -> Iterator[None]:
    """Within the block `meters()` are these, in this thread."""
    before, _here.meters = getattr(_here, "meters", None), by
    try:
        yield
    finally:
        _here.meters = before
