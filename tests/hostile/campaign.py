"""A long run of hostile frames and requests, in rounds, that may be broken off and taken up again.

    python -m tests.hostile --frames 1000000 --requests 1000000 --seed 7 [--seconds 600] [--jobs 2]

Rounds of both kinds are given to worker processes by turns, and their outcomes are added up in the order in which they
were given out: so the state is a number of rounds for each kind, however many processes there were, and a run that is
broken off repeats what it had ahead. A round that fails is kept with its reason, and the campaign goes on; memory that
grows from round to round is a failure too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path

import msgspec

from tests.hostile.rounds import SIZES, Kind, Outcome, Sent, be_quiet, run_round

MOST_GROWTH = 256 << 20

Run = Callable[[int, Kind, int], Outcome]


class Failure(msgspec.Struct):
    """A round that failed, and what it saw."""

    kind: Kind
    round: int
    reason: str


class Sum(msgspec.Struct):
    """What was done of one kind; `seconds` of all processes together."""

    rounds: int = 0
    seconds: float = 0.0
    sent: Sent = msgspec.field(default_factory=Sent)

    @property
    def rate(self) -> float:
        """Frames or requests a second, of one process."""
        return self.sent.done / self.seconds if self.seconds else 0.0


class Progress(msgspec.Struct):
    """What a seed has behind it; `peak` is the most memory that a process had, in bytes."""

    seed: int
    sums: dict[Kind, Sum] = msgspec.field(default_factory=lambda: {"frames": Sum(), "requests": Sum()})
    failures: list[Failure] = msgspec.field(default_factory=list)
    peak: int = 0

    @classmethod
    def load(cls, path: Path, seed: int) -> Progress:
        """What the file says, or a new one; raises ValueError if it is of another seed."""
        progress = msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls(seed)
        if progress.seed != seed:
            raise ValueError(f"{path} is of seed {progress.seed}")
        return progress

    def save(self, path: Path) -> None:
        """Keep it, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".new")
        part.write_bytes(msgspec.json.encode(self))
        part.replace(path)

    def add(self, outcome: Outcome) -> None:
        """One round more; of one that failed nothing is counted but itself."""
        kind = self.sums[outcome.kind]
        kind.rounds += 1
        self.peak = max(self.peak, outcome.peak)
        if outcome.failure is not None:
            self.failures.append(Failure(outcome.kind, outcome.round, outcome.failure))
            return
        kind.seconds += outcome.seconds
        kind.sent.add(outcome.sent)

    def attempted(self, kind: Kind, begun: int) -> int:
        """Frames or requests, if all the rounds that have begun are sound; at least a round's size for each other."""
        failed = sum(failure.kind == kind for failure in self.failures)
        return self.sums[kind].sent.done + (begun - self.sums[kind].rounds + failed) * SIZES[kind]


def march(
    progress: Progress, wanted: dict[Kind, int], seconds: float, jobs: int = 1, run: Run = run_round
) -> Iterator[Outcome]:
    """Run rounds until there are as many frames and requests as wanted, or no round may begin any more; add them up."""
    first: dict[int, int] = {}
    with closing(_outcomes(progress.seed, _due(progress, wanted, time.monotonic() + seconds), jobs, run)) as outcomes:
        for outcome in outcomes:
            before = first.setdefault(outcome.process, outcome.peak)
            if outcome.failure is None and outcome.peak - before > MOST_GROWTH:
                outcome.failure = f"memory grew from {before} to {outcome.peak} bytes"
                first[outcome.process] = outcome.peak
            progress.add(outcome)
            yield outcome


def _due(progress: Progress, wanted: dict[Kind, int], ends: float) -> Iterator[tuple[Kind, int]]:
    """The rounds to begin, one after the other, each of the kind that is behind."""
    begun = {kind: progress.sums[kind].rounds for kind in wanted}
    while time.monotonic() < ends:
        attempted = {kind: progress.attempted(kind, begun[kind]) for kind in wanted}
        due = [kind for kind in wanted if attempted[kind] < wanted[kind]]
        if not due:
            return
        kind = min(due, key=lambda kind: attempted[kind] / wanted[kind])
        yield kind, begun[kind]
        begun[kind] += 1


def _outcomes(seed: int, due: Iterator[tuple[Kind, int]], jobs: int, run: Run) -> Generator[Outcome, None, None]:
    """In the order of the rounds; one more is begun than there are processes, so that none is idle.

    Where a process dies, the rounds that were under way run once more, each alone: the one that kills fails then.
    """
    waiting: deque[tuple[Kind, int]] = deque()
    while True:
        with ExitStack() as owned:
            pool = _pool(jobs, owned)
            futures: deque[Future[Outcome]] = deque()
            try:
                while True:
                    while len(waiting) <= jobs and (work := next(due, None)) is not None:
                        waiting.append(work)
                        futures.append(pool.submit(run, seed, *work))
                    if not waiting:
                        return
                    outcome = futures.popleft().result()
                    waiting.popleft()
                    yield outcome
            except BrokenProcessPool:
                pass
        while waiting:
            yield _alone(seed, *waiting.popleft(), run)


def _alone(seed: int, kind: Kind, number: int, run: Run) -> Outcome:
    with ExitStack() as owned:
        try:
            return _pool(1, owned).submit(run, seed, kind, number).result()
        except BrokenProcessPool:
            return Outcome(kind, number, failure="a process died of it")


def _pool(jobs: int, owned: ExitStack) -> ProcessPoolExecutor:
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=be_quiet)
    owned.callback(pool.shutdown, cancel_futures=True)
    return pool
