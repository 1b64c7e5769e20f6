"""Drains: their barriers, and the orders that end those which cannot end by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from functools import partial

from shipper.spool import doubt, drain_orders, forward, revisions
from shipper.spool.drain_orders import Order, Step
from shipper.spool.ground import Part, query, urgent
from shipper.spool.revisions import LaneRow
from shipper.spool.seal import Damaged
from shipper.values import Revision


class Drains(Part):
    """Drains."""

    settle_barrier = urgent(revisions.settle_barrier)
    settle_reached = urgent(revisions.settle_reached)
    never_reached = query(forward.never_reached)
    doubts = urgent(doubt.lanes)
    place = urgent(drain_orders.place)
    standing = urgent(drain_orders.standing)

    async def place_rebind(self, source: int, upto: int, old: str, new: str) -> tuple[Order, LaneRow]:
        """Stores an order to rebind to the lane with the credential `new` in place of `old`, which is made if absent.

        Raises `drain_orders.Gone`, `drain_orders.Released` or `drain_orders.InDoubt`.
        """
        return await self.ground.urgent(lambda db: drain_orders.place_rebind(db, self.sealer, source, upto, old, new))

    async def place_forward(
        self,
        lane: int,
        *,
        upto: int | None = None,
        revision: Revision | None = None,
        closed: Collection[int] = (),
        unasked: bool = False,
    ) -> tuple[Order, list[LaneRow]]:
        """Stores an order to forward to the current lane of the output; returns all lanes too. Raises NotForwarded."""

        def place(db: sqlite3.Connection) -> tuple[Order, list[LaneRow]]:
            order = forward.place_forward(db, lane, upto=upto, revision=revision, closed=closed, unasked=unasked)
            return order, revisions.lanes(db, self.sealer)

        return await self.ground.urgent(place)

    async def step(self, order: Order) -> Step:
        """Carries out one bounded step of an order; call it until the order is done."""
        ground = self.ground
        limits, now = ground.limits.dead_letters, ground.now()
        op = partial(drain_orders.step, sealer=self.sealer, order=order, limits=limits, now=now)
        try:
            step, figures = await ground.urgent(ground.counted(op))
        except Damaged:
            await ground.repair_once()
            step, figures = await ground.urgent(ground.counted(partial(op, repaired=True)))
        for lane, change in step.settled:
            figures.settled(lane, change)
        for entry, others in step.moved:
            assert order.target is not None
            figures.rebound(entry, others, order.lane, order.target)
        ground.settled(change for _, change in step.settled)
        return step
