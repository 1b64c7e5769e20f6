"""A plugin's own figures, with names of its own: for `observed` and metrics, in memory only.

    self._lost = context.meters.counter("datagrams_lost", "Datagrams that the kernel dropped.")
    self._lost.add(newly_lost(listener) or 0)

The figures belong to a unit and its type: a newer revision continues those of the previous one, until the unit is gone.
All methods may be called from any thread. Names are few and fixed by the plugin: never make one from data of a peer or
an event.
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
"""The most figures of one unit."""
MOST_BOUNDS: Final = 32
LONGEST_HELP: Final = 200
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_RESERVED = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
"""Suffixes that Prometheus uses for the parts of a metric."""


class Counter:
    """A number that only grows."""

    kind: Final = "counter"

    def __init__(self, help: str) -> None:
        self.help = help
        self._lock = threading.Lock()
        self._value = 0

    def add(self, number: int = 1) -> None:
        """Adds a number; raises ValueError for a negative one."""
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
    """A present number."""

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
    """A distribution of numbers."""

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
        """How many numbers were observed."""
        return sum(self._buckets)

    def view(self) -> dict[str, Any]:
        """As JSON; `buckets` has for each bound the count of numbers up to it."""
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
    """The figures of one unit. The same name returns the same figure.

    Raises ValueError for a malformed name (small letters, digits and _ are allowed), for one of another kind, or for
    one too many.
    """

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}
        self._lock = threading.Lock()

    def counter(self, name: str, help: str) -> Counter:
        """Returns a number that only grows; `help` is a sentence for people."""
        return self._get(name, Counter, help)

    def gauge(self, name: str, help: str) -> Gauge:
        """Returns a present number, such as that of connected peers."""
        return self._get(name, Gauge, help)

    def histogram(self, name: str, help: str, bounds: Sequence[float] = BOUNDS) -> Histogram:
        """Returns a distribution of numbers, such as seconds; `bounds` are those of its buckets."""
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
        """Returns whole numbers by name; for a histogram the count."""
        return {name: meter.number for name, meter in list(self._meters.items())}

    def view(self) -> dict[str, dict[str, Any]]:
        """Returns the figures by name, as JSON."""
        return {name: meter.view() for name, meter in list(self._meters.items())}


class Panel:
    """The figures of all units, by their ids and types."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Meters] = {}

    def of(self, unit: str, type: str) -> Meters:
        """Returns the figures of a unit; makes them if absent."""
        return self._of.setdefault((unit, type), Meters())

    def keep(self, units: Collection[tuple[str, str]]) -> None:
        """Removes the figures of all other units."""
        self._of = {unit: meters for unit, meters in self._of.items() if unit in units}

    def view(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Returns the figures by unit and name, as JSON; without units that have none."""
        return {unit: view for (unit, _), meters in sorted(self._of.items()) if (view := meters.view())}


_here = threading.local()


def meters() -> Meters:
    """Returns the figures of this processor within `Processor.process`; elsewhere figures that are not shown."""
    found: Meters | None = getattr(_here, "meters", None)
    return Meters() if found is None else found


@contextmanager
def measured(by: Meters) -> Iterator[None]:
    """Makes `meters()` return these within the block, in this thread."""
    before, _here.meters = getattr(_here, "meters", None), by
    try:
        yield
    finally:
        _here.meters = before
