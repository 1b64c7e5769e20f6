"""The check of stages refuses each fault by a sentence, and accepts the right twin of the stage that has it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from shipper.plugin import Batch, Part, Processor, Stage, StageContext
from shipper.testing import check_stage

BATCHES = [Batch.documents([b'{"message":"%d"}' % number]) for number in range(3)]
WINDOW = 5.0


class Hold(Processor, frozen=True):
    """Holds events for a while; without a fault it is right."""

    fault: str = ""

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        yield _Hold(self.fault, context)


class _Hold(Stage):
    def __init__(self, fault: str, context: StageContext) -> None:
        self._fault, self._now = fault, context.now
        self._held: list[Part] = []
        self._count = self._committed = 0
        self._due: float | None = None

    def process(self, part: Part) -> Sequence[Part]:
        if self._fault == "changes while it reads":
            self._held.append(part)
        part.batch.own()
        if self._fault == "loses":
            self._held.clear()
        if self._fault != "changes while it reads":
            self._held.append(part)
        self._due = self._due or self._clock() + WINDOW
        if self._fault == "doubles":
            return [part]
        return []

    def _clock(self) -> float:
        if self._fault == "has a clock of its own":
            return time.monotonic()
        return 5000.0 if self._fault == "does not look" else self._now()

    def flush(self) -> Sequence[Part]:
        held, self._held, self._due = self._held, [], None
        self._count += len(held)
        if self._fault == "counts from the last commit":
            return [part._replace(batch=part.batch.share({"n": self._count})) for part in held]
        return held

    @property
    def due(self) -> float | None:
        return self._due

    def commit(self) -> None:
        self._committed = self._count

    def rollback(self) -> None:
        if self._fault != "keeps over a rollback":
            self._held = []
        self._due = None
        self._count = 0 if self._fault == "counts from the last commit" else self._committed


async def test_a_right_stage_is_accepted() -> None:
    assert await check_stage(Hold(), BATCHES, filters=False) == list(map(Part, BATCHES))


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("doubles", "3 events go on twice to the same output"),
        ("loses", "2 of 3 events were lost"),
        ("changes while it reads", "a batch on which it failed left a trace"),
        ("keeps over a rollback", "what was taken back left a trace"),
        ("counts from the last commit", "a rollback does not restore the state of the last commit"),
        ("has a clock of its own", r"it has a clock of its own \(time.monotonic\)"),
        ("does not look", "its `due` does not follow `StageContext.now`"),
    ],
)
async def test_a_stage_with_a_fault_is_refused(fault: str, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        await check_stage(Hold(fault), BATCHES, filters=False)
