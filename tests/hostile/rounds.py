"""One round: some thousand frames to one sidecar, or connections to one receiver, and what came of them.

A round of frames is one sidecar in this process with a new state directory, a round of requests one bulk receiver.
Each frame and each case is drawn from the seed of its round and its own number.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import trio

from tests.hostile.frames import frame
from tests.hostile.receiver import receiving
from tests.hostile.requests import Case, case
from tests.hostile.talk import talking
from tests.march.kind import Drawn, Told, Violation
from tests.march.played import kind, violations

FRAMES, CONNECTIONS = 2000, 1000
"""In a round."""
WRITTEN_AT_ONCE = 250
AT_ONCE = 8
"""Connections."""
MOST_GROWTH = 256 << 20
"""Bytes of memory that a process takes beyond what it had after its first round."""


async def frames_round(seed: int, count: int = FRAMES) -> Told:
    """Frames to one sidecar; raises AssertionError for the first that is not answered as it deserves."""
    kinds: Counter[str] = Counter()
    with TemporaryDirectory(prefix="hostile-") as directory:
        async with talking(Path(directory) / "state") as talk:
            for at in range(1, 1 + count, WRITTEN_AT_ONCE):
                numbers = range(at, min(at + WRITTEN_AT_ONCE, 1 + count))
                frames = [frame(Random(f"{seed}/{number}"), number) for number in numbers]
                await talk.answers(frames)
                kinds.update(f"frame: {frame.kind}" for frame in frames)
    return Told((), kinds, Counter(frames=kinds.total()))


async def requests_round(seed: int, count: int = CONNECTIONS) -> Told:
    """Connections to one receiver, some at once; raises AssertionError as `frames_round` does."""
    cases = [(number, case(Random(f"{seed}/{number}"), number)) for number in range(1, 1 + count)]
    async with receiving() as receiver, trio.open_nursery() as nursery:
        waiting = iter(cases)

        async def connect() -> None:
            for number, one in waiting:
                await receiver.judge(number, one)

        for _ in range(AT_ONCE):
            nursery.start_soon(connect)
    done = Counter(f"connection: {one.kind}" for _, one in cases)
    done.update({_ANSWERS.get(status, f"answer: {status}"): times for status, times in receiver.answered.items()})
    return Told((), done, Counter(connections=count, requests=sum(_requests(one) for _, one in cases)))


_ANSWERS = {0: "answer: none, and closed", -1: "answer: waited for more"}


def _requests(case: Case) -> int:
    return case.requests if case.exact else 1


@dataclass(frozen=True)
class Round(Drawn):
    """Of frames by an even seed, else of requests."""

    seed: int


def run(drawn: Round) -> Told:
    """One round, whatever comes of it."""
    with _quiet():
        try:
            told = trio.run(requests_round if drawn.seed % 2 else frames_round, drawn.seed)
        except Exception as error:  # KeyboardInterrupt is none, and a group with one neither
            told = Told(violations(error))
    if _peak() - _peak_at_first() > MOST_GROWTH:
        grown = Violation("memory", f"it grew from {_peak_at_first()} to {_peak()} bytes")
        return replace(told, violations=[*told.violations, grown])
    return told


@contextmanager
def _quiet() -> Iterator[None]:
    """Without standard error: the sidecar logs a line for each policy that it refuses."""
    ours = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_peak_at_first = cache(_peak)
ROUNDS = kind("python -m tests.hostile", Round, run)
