"""A campaign goes on: slices of its seeds are run, here or in worker processes, and merged in the order of the seeds.

That order makes sums and report the same for any number of jobs, and lets a campaign that was stopped, by Ctrl-C or by
a crash of the machine, go on behind the last slice that was merged; what else was under way is run again.

Each worker has a pipe and takes every n-th slice. Its pipe ends with this process, and so does the worker, however this
process dies; a worker that dies ends the march. A pool of the standard library does neither.
"""

from __future__ import annotations

import gc
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import count, cycle, islice, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from tests.march.kind import Kind
from tests.march.sums import Sums
from tests.march.tour import Tour, tour

AHEAD = 3
"""Slices that a worker has been given at most: it need not wait while another one shrinks what failed."""


def march(
    kind: Kind,
    sums: Sums,
    *,
    rounds: int | None = None,
    seconds: float | None = None,
    path: Path | None = None,
    jobs: int = 1,
    tell: Callable[[str], object] = print,
    merged: Callable[[], object] = lambda: None,
) -> None:
    """Run rounds, from `next_seed` on, until there were enough of them or no time is left to begin another slice.

    `merged` is called after each slice; by then `path` has it.
    """
    slices = _in_time(_slices(sums.next_seed, rounds, kind.slice), seconds)
    with closing(_spread(slices, jobs, kind) if jobs > 1 else _alone(slices, kind)) as tours:
        for some, told in tours:
            for text in told:
                tell(text)
            sums.merge(some)
            if path is not None:
                sums.save(path)
            merged()


def _slices(first: int, rounds: int | None, size: int) -> Iterator[range]:
    if rounds is None:
        yield from (range(start, start + size) for start in count(first, size))
    else:
        last = first + rounds
        yield from (range(start, min(start + size, last)) for start in range(first, last, size))


def _in_time(slices: Iterator[range], seconds: float | None) -> Iterator[range]:
    ends = time.monotonic() + (seconds if seconds is not None else math.inf)
    return takewhile(lambda _: time.monotonic() < ends, slices)


def _alone(slices: Iterable[range], kind: Kind) -> Iterator[Tour]:
    gc.collect()
    gc.freeze()
    try:
        yield from map(partial(tour, kind), slices)
    finally:
        gc.unfreeze()


def _spread(slices: Iterable[range], jobs: int, kind: Kind) -> Iterator[Tour]:
    with ExitStack() as owned:
        workers = [_employ(owned, kind) for _ in range(jobs)]
        turns = zip(slices, cycle(workers), strict=False)
        at_work = deque(_given(islice(turns, AHEAD * jobs)))
        while at_work:
            yield at_work.popleft().recv()
            at_work.extend(_given(islice(turns, 1)))


def _given(turns: Iterable[tuple[range, Connection]]) -> Iterator[Connection]:
    for seeds, worker in turns:
        worker.send(seeds)
        yield worker


def _employ(owned: ExitStack, kind: Kind) -> Connection:
    """A worker's pipe. It is ended without mercy: what it has not told is run again."""
    ours, theirs = get_context("spawn").Pipe()
    worker = get_context("spawn").Process(target=_work, args=(theirs, kind), daemon=True)
    worker.start()
    theirs.close()
    owned.callback(worker.join)
    owned.callback(worker.terminate)
    return owned.enter_context(ours)


def _work(pipe: Connection, kind: Kind) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(tour(kind, pipe.recv()))
