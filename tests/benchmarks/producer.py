"""Applications that log at a given pace, on an absolute schedule.

A producer that pauses when the machine pauses never sees what the pause cost (coordinated omission). So a line is due
at its own instant, whatever became of those before it, and its delay counts from there; when the producer is late, that
counts too, and `Schedule.late` says how much of it there was.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from tests.benchmarks.job import access_lines

STEP = 0.005
LINES_OF_SHORT = 5
_LIFE = 3.0
_DIFFERENT = 20_000


@dataclass
class Schedule:
    """What was written: how many lines, and when those with a probe were due."""

    lines: int = 0
    due: dict[int, float] = field(default_factory=dict)
    late: float = 0.0
    """By how much the producer missed an instant, at most."""

    def delays(self, arrived: dict[int, float]) -> list[float]:
        """From the instant at which a line with a probe was due to its arrival; KeyError for one that is missing."""
        return [arrived[number] - due for number, due in self.due.items()]

    def _wrote(self, lines: int, number: int, due: float) -> None:
        self.lines += lines
        self.due[number] = due
        self.late = max(self.late, time.monotonic() - due)


def instants(every: float, count: int) -> Iterator[tuple[int, float]]:
    """`count` numbers from 0, each at its instant; those that are late come without a pause."""
    start = time.monotonic() + every
    for number in range(count):
        due = start + number * every
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        yield number, due


def append(log: Path, rate: float, seconds: float) -> Schedule:
    """Append `rate` lines a second to a log, in steps of 5 ms; the last line of a step bears its number.

    Lines of one step are due together, so the last one is what waits longest.
    """
    lines = [line.encode() for line in access_lines(_DIFFERENT)]
    block, ends = b"".join(lines), [0, *accumulate(map(len, lines))]
    schedule, every = Schedule(), max(STEP, 1 / rate)
    with log.open("ab", buffering=0) as file:
        for number, due in instants(every, int(seconds / every)):
            wanted = round(rate * every * (number + 1)) - schedule.lines - 1
            plain = max(0, min(wanted, _DIFFERENT - 1))
            first = schedule.lines % (_DIFFERENT - plain)
            file.write(block[ends[first] : ends[first + plain]] + _probe(number))
            schedule._wrote(plain + 1, number, due)
    return schedule


def trickle(logs: Sequence[Path], seconds: float) -> Schedule:
    """One line a second into each of many logs, each with its number, at instants spread over the second; into one that
    is named several times, as many."""
    files = {log: os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for log in {*logs}}
    schedule = Schedule()
    try:
        for number, due in instants(1 / len(logs), int(seconds * len(logs))):
            os.write(files[logs[number % len(logs)]], _probe(number))
            schedule._wrote(1, number, due)
    finally:
        for file in files.values():
            os.close(file)
    return schedule


def short_lived(directory: Path, rate: float, seconds: float) -> Schedule:
    """`rate` new files a second, each written at once and deleted when it is three seconds old; until all are gone."""
    schedule, files = Schedule(), deque[tuple[float, Path]]()
    for number, due in instants(1 / rate, int(seconds * rate)):
        numbers = range(number * LINES_OF_SHORT, (number + 1) * LINES_OF_SHORT)
        log = directory / f"job-{number}.log"
        log.write_bytes(b"".join(map(_probe, numbers)))
        for each in numbers:
            schedule._wrote(1, each, due)
        files.append((due + _LIFE, log))
        while files and files[0][0] <= time.monotonic():
            files.popleft()[1].unlink()
    for end, log in files:
        time.sleep(max(0.0, end - time.monotonic()))
        log.unlink()
    return schedule


def _probe(number: int) -> bytes:
    return b'10.1.2.3 - - "GET /~probe:%d HTTP/1.1" 200 1234 "-" "curl/8.5.0"\n' % number
