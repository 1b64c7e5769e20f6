"""Stages: processors that are opened, and may keep something from one batch to the next.

Who runs a stage calls it for one input, one call at a time, in any thread:

    process, process, …, flush, commit        what it gave is stored, together with the input's positions
    process, process, …, rollback             nothing of it was stored; the same events may come again

So a stage has two duties: to say when what it holds is `due`, and to be after `rollback` as it was after the last
`commit`. A stage that only holds events has nothing left at a `commit`, since `flush` came before: it forgets all at a
`rollback`. One that remembers keys keeps them in a `Ledger`. It counts in `commit`, so that nothing counts twice.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from shipper.sdk.aio import Asyncio
from shipper.sdk.event import Batch
from shipper.sdk.meters import Meters

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Part(NamedTuple):
    """Events, and the names of the outputs that they are for; None: all that they were for before."""

    batch: Batch
    outputs: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class StageContext:
    """What the shipper offers to one stage."""

    name: str
    """Of the input."""
    aio: Asyncio
    meters: Meters = field(default_factory=Meters, repr=False, compare=False)
    """What it counts of itself; kept over revisions."""
    now: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)
    """Seconds of a clock that only goes forward. Any thread."""


class Stage:
    """An open processor, made by `Processor.open`; the methods that it does not need it leaves as they are."""

    def process(self, part: Part) -> Sequence[Part]:
        """What goes on of these events now; each part with outputs among those of the input.

        A part that says None is for the outputs of the one that came. Events keep their columns; each gets its id when
        it is stored, by its place in its part. If it raises, all events that came go on, marked.
        """
        raise NotImplementedError

    def flush(self) -> Sequence[Part]:
        """All that it still holds, so that it holds nothing; what is new in it gets the envelope of the input."""
        return ()

    @property
    def due(self) -> float | None:
        """When, by `StageContext.now`, what it holds has to be stored; None while it holds nothing.

        A time that has passed means at once: so a stage that is full keeps within its bounds.
        """
        return None

    def commit(self) -> None:
        """All that it gave is stored: from here on nothing is taken back."""

    def rollback(self) -> None:
        """Nothing since the last `commit` was stored: be as it was then."""


class Ledger(Generic[K, V]):
    """A mapping whose changes since the last `commit` can be taken back.

    It keeps at most `most` keys; those that were not put for longest are forgotten first. Between two commits there may
    be as many again, until it is `full`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._changes: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._kept.keys() | self._changes.keys())

    @property
    def full(self) -> bool:
        """Whether a commit is due."""
        return len(self._changes) >= self._most

    def get(self, key: K) -> V | None:
        """The value, or None if there is none, or none any more."""
        found = self._changes.get(key)
        return self._kept.get(key) if found is None else found

    def put(self, key: K, value: V) -> None:
        """Set a value that is not None."""
        self._changes[key] = value

    def commit(self, is_over: Callable[[V], bool] = lambda value: False) -> None:
        """Keep the changes, and forget the oldest: those beyond the bound, and as many as are over."""
        for key, value in self._changes.items():
            self._kept[key] = value
            self._kept.move_to_end(key)
        self._changes = {}
        while self._kept and (len(self._kept) > self._most or is_over(next(iter(self._kept.values())))):
            self._kept.popitem(last=False)

    def rollback(self) -> None:
        """Be as after the last commit."""
        self._changes = {}
