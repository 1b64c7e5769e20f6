"""Stages: processors that are opened, and may keep state from one batch to the next.

A stage is called for one input, one call at a time, in any thread:

    process, process, …, flush, commit        its results are stored, together with the input's positions
    process, process, …, rollback             none of its results was stored; the same events may come again

So a stage has two duties: `due` returns when its held events must be stored, and `rollback` restores the state after
the last `commit`. A stage that only holds events is empty at a `commit`, since `flush` came before, and drops all at a
`rollback`. One that remembers keys keeps them in a `Ledger`. Meters are updated in `commit`, so that nothing counts
twice.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from shipper.sdk import hooks
from shipper.sdk.aio import Asyncio
from shipper.sdk.event import Batch
from shipper.sdk.meters import Meters

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Part(NamedTuple):
    """Events, and the names of their outputs; None: unchanged."""

    batch: Batch
    outputs: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class StageContext:
    """The shipper's services for one stage."""

    name: str
    """The name of the input."""
    aio: Asyncio
    meters: Meters = field(default_factory=Meters, repr=False, compare=False)
    """The stage's own figures; kept over revisions."""
    now: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)
    """Returns the seconds of a monotonic clock. Any thread."""


class Stage:
    """An open processor, yielded by `Processor.open`. Its class defines `process`, and the other methods if it needs
    them."""

    def __init_subclass__(cls) -> None:
        """Refuses a name that is nearly one of these: see `shipper.sdk.hooks`."""
        super().__init_subclass__()
        hooks.check(cls, Stage)

    def process(self, part: Part) -> Sequence[Part]:
        """Returns the events to pass on now; each part with outputs among those of the input.

        A part with outputs None keeps those of the given part. Events keep their columns; each gets its id when it is
        stored, by its place in its part. If this raises, it is called again with parts of the given events, and those
        on which it fails are passed on as they came, tagged. So none of them may be in the stage's state then: they
        would count, or come out of `flush`, a second time. Do what can fail first, such as reading the events, and
        change the state after it.
        """
        raise NotImplementedError

    def flush(self) -> Sequence[Part]:
        """Returns all held events, and holds none after that; new events get the envelope of the input."""
        return ()

    @property
    def due(self) -> float | None:
        """Returns when, by `StageContext.now`, its held events must be stored; None while it holds none.

        A time in the past means at once: so a full stage keeps within its bounds.
        """
        return None

    def commit(self) -> None:
        """All its results are stored: they are not rolled back any more."""

    def rollback(self) -> None:
        """Restores the state after the last `commit`: nothing since then was stored."""


class Ledger(Generic[K, V]):
    """A mapping whose changes since the last `commit` can be rolled back.

    It keeps at most `most` keys, and forgets the least recently put first. Between two commits there may be as many
    again, until it is `full`.
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
        """Returns the value, or None."""
        found = self._changes.get(key)
        return self._kept.get(key) if found is None else found

    def put(self, key: K, value: V) -> None:
        """Sets a value that is not None."""
        self._changes[key] = value

    def commit(self, is_over: Callable[[V], bool] = lambda value: False) -> None:
        """Keeps the changes, and forgets the oldest keys: those beyond the bound, and those that are over."""
        for key, value in self._changes.items():
            self._kept[key] = value
            self._kept.move_to_end(key)
        self._changes = {}
        while self._kept and (len(self._kept) > self._most or is_over(next(iter(self._kept.values())))):
            self._kept.popitem(last=False)

    def rollback(self) -> None:
        """Restores the state after the last commit."""
        self._changes = {}
