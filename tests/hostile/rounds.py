"""One round: some thousand frames to one sidecar, or connections to one receiver, and what came of them.

A round of frames is one sidecar in this process with a new state directory, a round of requests one bulk receiver.
Each frame and each case is drawn from its own number and the seed, so a failure is repeated by its round alone.
"""

from __future__ import annotations

import logging
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec
import trio

from tests.hostile.frames import frame
from tests.hostile.receiver import receiving
from tests.hostile.requests import Case, case
from tests.hostile.talk import talking

Kind = Literal["frames", "requests"]

SIZES: dict[Kind, int] = {"frames": 2000, "requests": 1000}
"""Frames, and connections, in a round."""
WRITTEN_AT_ONCE = 250
CONNECTIONS = 8


class Sent(msgspec.Struct):
    """What was drawn and sent: how many frames or requests, how many of each kind, and the statuses answered."""

    done: int = 0
    connections: int = 0
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    answers: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, other: Sent) -> None:
        self.done += other.done
        self.connections += other.connections
        self.kinds = Counter(self.kinds) + Counter(other.kinds)
        self.answers = Counter(self.answers) + Counter(other.answers)


class Outcome(msgspec.Struct):
    """A round; `failure` says what went wrong, and `peak` the most memory that its process ever had, in bytes."""

    kind: Kind
    round: int
    sent: Sent = msgspec.field(default_factory=Sent)
    seconds: float = 0.0
    failure: str | None = None
    process: int = 0
    peak: int = 0


async def frames_round(seed: int, round: int, count: int = SIZES["frames"]) -> Sent:
    """Frames to one sidecar; raises AssertionError for the first that is not answered as it deserves."""
    first = round * SIZES["frames"] + 1
    sent = Sent()
    with TemporaryDirectory(prefix="hostile-") as directory:
        async with talking(Path(directory) / "state") as talk:
            for at in range(first, first + count, WRITTEN_AT_ONCE):
                numbers = range(at, min(at + WRITTEN_AT_ONCE, first + count))
                frames = [frame(Random(f"{seed}/{number}"), number) for number in numbers]
                await talk.answers(frames)
                sent.add(Sent(len(frames), kinds=Counter(frame.kind for frame in frames)))
    return sent


async def requests_round(seed: int, round: int, count: int = SIZES["requests"]) -> Sent:
    """Connections to one receiver, some at once; raises AssertionError as `frames_round` does."""
    first = round * SIZES["requests"] + 1
    cases = [(number, case(Random(f"{seed}/{number}"), number)) for number in range(first, first + count)]
    async with receiving() as receiver, trio.open_nursery() as nursery:
        waiting = iter(cases)

        async def connect() -> None:
            for number, one in waiting:
                await receiver.judge(number, one)

        for _ in range(CONNECTIONS):
            nursery.start_soon(connect)
    answers = Counter({_ANSWERS.get(status, str(status)): times for status, times in receiver.answered.items()})
    return Sent(sum(_requests(one) for _, one in cases), count, Counter(one.kind for _, one in cases), answers)


_ANSWERS = {0: "closed without an answer", -1: "waited for more"}


def _requests(case: Case) -> int:
    return case.requests if case.exact else 1


_ROUNDS: dict[Kind, Callable[[int, int], Awaitable[Sent]]] = {"frames": frames_round, "requests": requests_round}


def run_round(seed: int, kind: Kind, round: int) -> Outcome:
    """One round of a seed, whatever comes of it."""
    outcome = Outcome(kind, round, process=os.getpid())
    begun = time.monotonic()
    try:
        outcome.sent = trio.run(_ROUNDS[kind], seed, round)
    except BaseExceptionGroup as group:
        wrong, rest = group.split(lambda error: not isinstance(error, KeyboardInterrupt))
        if wrong is None:
            raise KeyboardInterrupt from rest
        outcome.failure = _reason(wrong)
    except Exception as error:
        outcome.failure = _reason(error)
    outcome.seconds = time.monotonic() - begun
    outcome.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return outcome


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:4000]


def be_quiet() -> None:
    """In a process of its own: the sidecar logs a line for each policy that it refuses."""
    logging.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
