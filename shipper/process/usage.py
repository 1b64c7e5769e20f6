"""What this process uses of its host, by the names that Prometheus gives to it (`process_*`).

Read from `/proc/self` and the kernel's clocks alone, since the service sees nothing else of `/proc`; a figure that
cannot be read is left out.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_SELF = Path("/proc/self")


def usage() -> dict[str, float]:
    """Returns the figures of this moment."""
    return dict(_known())


def _known() -> Iterator[tuple[str, float]]:
    for name, figure in _FIGURES.items():
        with suppress(OSError, ValueError, IndexError):
            yield name, figure()


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _pages(column: int) -> float:
    return float(int((_SELF / "statm").read_text().split()[column]) * os.sysconf("SC_PAGE_SIZE"))


def _started() -> float:
    """Returns the Unix time of the start, from its ticks since the boot; the name before them may hold anything."""
    ticks = int((_SELF / "stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


_FIGURES: Mapping[str, Callable[[], float]] = {
    "cpu_seconds": _cpu_seconds,
    "virtual_memory_bytes": lambda: _pages(0),
    "resident_memory_bytes": lambda: _pages(1),
    "start_time_seconds": _started,
    "open_fds": lambda: float(len(os.listdir(_SELF / "fd"))),
    "max_fds": lambda: float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
}
