"""Dead letters, and the orders that requeue them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

from shipper.spool import dead_letters, origins, requeue
from shipper.spool.figures import Figures
from shipper.spool.ground import Ground, Part, query, urgent
from shipper.values import DeadLetterFigures, DeadLetterReason


class Letters(Part):
    """Dead letters."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.freed = 0
        """Rises whenever dead letters may have room again: some were deleted, or the limit changed."""
        self._on_freed: list[Callable[[], None]] = []

    find = query(requeue.find)
    active = query(requeue.outputs)
    place = urgent(requeue.place)
    standing = urgent(requeue.standing)
    forget = urgent(requeue.forget)

    async def figures(self) -> DeadLetterFigures:
        return await self.store.read(partial(dead_letters.figures, now=self.ground.now()))

    async def reasons(self) -> list[DeadLetterReason]:
        return await self.store.read(partial(dead_letters.reasons, now=self.ground.now()))

    async def page(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Returns opened letters; see `dead_letters.page`."""
        return await self.store.read(lambda db: dead_letters.page(db, self.sealer, after, limit))

    async def delete(self, upto: int) -> int:
        """Deletes letters; see `dead_letters.delete`."""
        deleted = await self.ground.urgent(lambda db: dead_letters.delete(db, upto))
        self.free()
        return deleted

    async def step(self, order: requeue.Requeue, room: requeue.Room) -> requeue.Step:
        """Carries out one bounded step of an order. Raises Backpressure while the disk is full or failing."""
        ground, now = self.ground, self.ground.now()

        def run(db: sqlite3.Connection) -> requeue.Step:
            origins.keep(db, self.sealer, ground.drawn)
            return requeue.step(db, self.sealer, ground.origin, order, room, now)

        step = _count(await self.store.append(ground.counted(run), _count, wait=False))
        if step.requeued:
            self.free()
        return step

    def on_freed(self, callback: Callable[[], None]) -> None:
        """Registers a callback that runs when `freed` has risen."""
        self._on_freed.append(callback)

    def free(self) -> None:
        """Tells that there may be room again."""
        self.freed += 1
        for callback in self._on_freed:
            callback()


def _count(counted: tuple[requeue.Step, Figures]) -> requeue.Step:
    step, figures = counted
    for revision, lane, batch in step.entered:
        figures.add(revision, frozenset({lane}), batch.events, batch.size)
    return step
