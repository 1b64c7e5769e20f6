"""What small requests bring: the emissions of one input that come together are stored together.

    emit ──> waiting ──┬── nothing is being stored: at once ────────────────────────────┐
                       └── else when that has ended, all that have gathered meanwhile ──┴──> one transaction

To process, seal, store and settle a batch costs more than all else of a request with one event. So batches of a group
that are of one kind become one batch. Nobody waits for a timer, and no task stands between the transaction and those
that wait for it.

Each emission has its own answer. An invalid one is refused before it gathers. If a group as a whole has no room, or
cannot be processed, its emissions are stored one after the other. One that is cancelled leaves the group, unless that
is being stored already. The time of arrival, which events get that have none, is kept to 50 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import outcome
import trio

from shipper.pipeline.intake.stages import Emission
from shipper.sdk import joining
from shipper.sdk.errors import anew
from shipper.sdk.event import Batch
from shipper.spool.queue import NotActive

MOST_EMISSIONS = 256
"""The most emissions of a group."""
MOST_WEIGHT = 1 << 20
"""The most bytes that the events of a group have, each with all its fields, unless it is a single emission."""
AT_ONCE = timedelta(milliseconds=50)

Ended = Callable[[outcome.Outcome[object]], None]


class Owner(Protocol):
    """What a gathering needs of the running input."""

    @property
    def most_gathered(self) -> int:
        """The most bytes of a group, unless it is a single emission."""

    def begin(self, group: Sequence[Emission], ended: Ended) -> bool:
        """Begins to store emissions, and calls `ended`, now or later; returns False if none can be stored now."""


class Gathering:
    """The emissions of one input that wait until others are stored."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._waiting: deque[Emission] = deque()
        self._is_storing = self._goes_on = False
        self._alone = 0
        """How many of those that wait are stored alone, since they failed together."""

    async def enter(self, emission: Emission) -> bool:
        """Stores an emission without positions, with those that come with it; returns False if it must run again.

        Raises Backpressure and PluginFault; nothing of the emission is stored then.
        """
        self._waiting.append(emission)
        self._go_on()
        try:
            await emission.ended.wait()
        except trio.Cancelled:
            with suppress(ValueError):
                self._waiting.remove(emission)
            raise
        if emission.error is not None:
            raise anew(emission.error)
        return emission.is_stored

    def _go_on(self) -> None:
        if self._goes_on:  # of a group nothing is left to store: the loop below goes on to the next one
            return
        self._goes_on = True
        while self._waiting and not self._is_storing:
            self._is_storing = True
            group = self._next()
            try:
                if not self._owner.begin(group, partial(self._ended, group)):
                    self._end(group, is_stored=False)
            except Exception as error:
                self._failed(group, error)
        self._goes_on = False

    def _next(self) -> list[Emission]:
        group = [self._waiting.popleft()]
        if self._alone:
            self._alone -= 1
            return group
        size, weight = group[0].size, group[0].weight if self._waiting else 0
        while self._waiting and len(group) < MOST_EMISSIONS:
            size, weight = size + self._waiting[0].size, weight + self._waiting[0].weight
            if size > self._owner.most_gathered or weight > MOST_WEIGHT:
                break
            group.append(self._waiting.popleft())
        return group

    def _ended(self, group: Sequence[Emission], end: outcome.Outcome[object]) -> None:
        if not isinstance(end, outcome.Error):
            self._end(group, is_stored=True)
        elif isinstance(end.error, NotActive):
            self._end(group, is_stored=False)
        else:
            self._end(group, error=end.error)
        self._go_on()

    def _end(self, group: Sequence[Emission], *, is_stored: bool = False, error: BaseException | None = None) -> None:
        self._is_storing = False
        for emission in group:
            emission.end(is_stored=is_stored, error=error)

    def _failed(self, group: Sequence[Emission], error: Exception) -> None:
        """Has emissions that failed together stored one by one."""
        if len(group) == 1:
            self._end(group, error=error)
            return
        self._is_storing = False
        self._waiting.extendleft(reversed(group))
        self._alone = len(group)


def together(group: Sequence[Emission]) -> Iterator[tuple[datetime, list[Batch]]]:
    """Yields the batches of emissions that came at about one time, those of one kind as one, and that time."""
    left = deque(group)
    while left:
        arrived = left[0].arrived
        kinds: dict[object, list[Batch]] = {}
        while left and left[0].arrived - arrived < AT_ONCE:
            for batch in left.popleft().batches:
                kinds.setdefault(joining.kind(batch), []).append(batch)
        yield arrived, [joining.strung(batches) for batches in kinds.values()]
