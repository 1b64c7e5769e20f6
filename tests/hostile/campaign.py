"""A long run of hostile frames and requests, in rounds, that may be broken off and taken up again.

    python -m tests.hostile --frames 1000000 --requests 1000000 --seed 7 [--seconds 600]

A round of frames is one sidecar in this process with a new state directory, a round of requests one bulk receiver.
Each frame and each case is drawn from its own number and the seed, so a failure is repeated by its round alone. What is
done is kept in `.cache/`, by the seed; memory that grows from round to round is a failure too.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

FRAMES = 2000
"""In a round."""
CASES = 1000
WRITTEN_AT_ONCE = 250
CONNECTIONS = 8
MOST_GROWTH = 256 << 20


class Sum(msgspec.Struct):
    """What was done of one kind."""

    rounds: int = 0
    done: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0


class Progress(msgspec.Struct):
    """What a seed has behind it."""

    frames: Sum = msgspec.field(default_factory=Sum)
    requests: Sum = msgspec.field(default_factory=Sum)

    @classmethod
    def load(cls, path: Path) -> Progress:
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".new")
        part.write_bytes(msgspec.json.encode(self))
        part.replace(path)


@dataclass(frozen=True, slots=True)
class Failed(Exception):
    """A round failed; `why` is what it saw."""

    kind: Kind
    round: int
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.round}: {self.why}"


async def frames_round(seed: int, round: int, count: int = FRAMES) -> int:
    """Frames to one sidecar; how many there were."""
    numbers = range(round * FRAMES + 1, round * FRAMES + count + 1)
    with TemporaryDirectory(prefix="hostile-") as directory:
        async with talking(Path(directory) / "state") as talk:
            for first in range(0, count, WRITTEN_AT_ONCE):
                part = numbers[first : first + WRITTEN_AT_ONCE]
                await talk.answers([frame(Random(f"{seed}/{number}"), number) for number in part])
    return count


async def requests_round(seed: int, round: int, count: int = CASES) -> int:
    """Connections to one receiver, some at once; how many requests there were."""
    numbers = range(round * CASES + 1, round * CASES + count + 1)
    cases = [(number, case(Random(f"{seed}/{number}"), number)) for number in numbers]
    async with receiving() as receiver, trio.open_nursery() as nursery:
        waiting = iter(cases)

        async def connect() -> None:
            for number, one in waiting:
                await receiver.judge(number, one)

        for _ in range(CONNECTIONS):
            nursery.start_soon(connect)
    return sum(_requests(one) for _, one in cases)


def _requests(case: Case) -> int:
    return case.requests if case.exact else 1


ROUNDS: dict[Kind, Callable[[int, int], object]] = {"frames": frames_round, "requests": requests_round}


def campaign(seed: int, wanted: dict[Kind, int], seconds: float, path: Path) -> Iterator[Progress]:
    """Run rounds of both kinds by turns until there are as many as wanted, or the time is over; raises Failed."""
    progress = Progress.load(path)
    ends = time.monotonic() + seconds
    first = None
    while due := [kind for kind, count in wanted.items() if getattr(progress, kind).done < count]:
        kind = min(due, key=lambda kind: getattr(progress, kind).done / wanted[kind])
        run_round(seed, kind, progress)
        progress.save(path)
        yield progress
        first = first or peak()
        if peak() - first > MOST_GROWTH:
            raise Failed(kind, getattr(progress, kind).rounds, f"memory grew from {first} to {peak()} bytes")
        if time.monotonic() > ends:
            return


def run_round(seed: int, kind: Kind, progress: Progress) -> None:
    """The next round of a kind."""
    done: Sum = getattr(progress, kind)
    begun = time.monotonic()
    try:
        done.done += trio.run(ROUNDS[kind], seed, done.rounds)  # type: ignore[arg-type]
    except BaseExceptionGroup as group:
        wrong, rest = group.split(lambda error: not isinstance(error, KeyboardInterrupt))
        if wrong is None:
            raise KeyboardInterrupt from rest
        raise Failed(kind, done.rounds, _leaf(wrong)) from group
    except AssertionError as error:
        raise Failed(kind, done.rounds, str(error)) from error
    done.seconds += time.monotonic() - begun
    done.rounds += 1


def _leaf(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def peak() -> int:
    """The most memory that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
