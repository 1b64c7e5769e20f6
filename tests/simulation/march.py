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
from itertools import count, cycle, islice, takewhile
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from tests.simulation.campaign import Campaign, Tour, tour

SLICE = 50
AHEAD = 3
"""Slices that a worker has been given at most: it need not wait while another one shrinks what failed."""


def march(
    campaign: Campaign,
    *,
    worlds: int | None = None,
    seconds: float | None = None,
    path: Path | None = None,
    jobs: int = 1,
    tell: Callable[[str], object] = print,
    merged: Callable[[], object] = lambda: None,
    make: Callable[[range], Tour] = tour,
    size: int | None = None,
) -> None:
    """Run worlds, from `next_seed` on, until there were enough of them or no time is left to begin another slice.

    `merged` is called after each slice; by then `path` has it. `make` runs a slice, which has `size` worlds at most, or
    `SLICE`.
    """
    slices = _in_time(_slices(campaign.next_seed, worlds, size or SLICE), seconds)
    with closing(_spread(slices, jobs, make) if jobs > 1 else _alone(slices, make)) as tours:
        for sums, told in tours:
            for text in told:
                tell(text)
            campaign.merge(sums)
            if path is not None:
                campaign.save(path)
            merged()


def _slices(first: int, worlds: int | None, size: int) -> Iterator[range]:
    if worlds is None:
        yield from (range(start, start + size) for start in count(first, size))
    else:
        last = first + worlds
        yield from (range(start, min(start + size, last)) for start in range(first, last, size))


def _in_time(slices: Iterator[range], seconds: float | None) -> Iterator[range]:
    ends = time.monotonic() + (seconds if seconds is not None else math.inf)
    return takewhile(lambda _: time.monotonic() < ends, slices)


def _alone(slices: Iterable[range], make: Callable[[range], Tour]) -> Iterator[Tour]:
    gc.collect()
    gc.freeze()
    try:
        yield from map(make, slices)
    finally:
        gc.unfreeze()


def _spread(slices: Iterable[range], jobs: int, make: Callable[[range], Tour]) -> Iterator[Tour]:
    with ExitStack() as owned:
        workers = [_employ(owned, make) for _ in range(jobs)]
        turns = zip(slices, cycle(workers), strict=False)
        at_work = deque(_given(islice(turns, AHEAD * jobs)))
        while at_work:
            yield at_work.popleft().recv()
            at_work.extend(_given(islice(turns, 1)))


def _given(turns: Iterable[tuple[range, Connection]]) -> Iterator[Connection]:
    for seeds, worker in turns:
        worker.send(seeds)
        yield worker


def _employ(owned: ExitStack, make: Callable[[range], Tour]) -> Connection:
    """A worker's pipe. It is ended without mercy: what it has not told is run again."""
    ours, theirs = get_context("spawn").Pipe()
    worker = get_context("spawn").Process(target=_work, args=(theirs, make), daemon=True)
    worker.start()
    theirs.close()
    owned.callback(worker.join)
    owned.callback(worker.terminate)
    return owned.enter_context(ours)


def _work(pipe: Connection, make: Callable[[range], Tour]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(make(pipe.recv()))
