"""Orders of a supervisor, and of `drain.on_deadline`, that end a drain which cannot end by itself.

An order names lanes with an unsettled barrier. For each it first ends what is under way there, then runs in bounded
steps; it is durable before it runs, so it resumes after a crash. Letters that give way to it are counted as those that
give way to a rejected event; where none may, it ends with StoreFull, and the rest waits as before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple

import trio

from shipper import log
from shipper.delivery import Delivery
from shipper.errors import ShipperError
from shipper.keyring import Keyring
from shipper.messages import Revision
from shipper.spool.orders import Name, Order, Released
from shipper.spool.revisions import LaneKey
from shipper.spool.spool import Spool

_log = log.get(__name__)

FULL = (
    "the dead-letter store is full; what fitted is written, the rest still waits:"
    " delete letters, or raise dead_letters.max_bytes, and order it again"
)


class NothingToOrder(ShipperError):
    """The order names nothing; the text lists what there is."""


class StoreFull(ShipperError):
    """An order ended early, since the dead-letter store may drop nothing (`hold`) and has no room."""


class _Barrier(NamedTuple):
    """What entered under an older revision stands below it."""

    place: int
    revision: Revision


class Orders:
    """Carries out orders, one at a time. `settled` is called when barriers may have become settled."""

    def __init__(self, *, spool: Spool, delivery: Delivery, keyring: Keyring, settled: Callable[[], None]) -> None:
        self._spool, self._delivery, self._keyring, self._settled = spool, delivery, keyring, settled
        self._one = trio.Lock()

    async def resume(self) -> None:
        """Carry on with orders that a crash interrupted."""
        for order in await self._spool.standing_orders():
            try:
                await self._carry_out(order)
            except StoreFull as error:
                _log.warning("an order ended early", output=self._output(order.lane), error=str(error))

    async def end(self, name: Name, revision: Revision, output: str | None) -> None:
        """Dead-letter or drop what entered under a revision and still waits below a barrier.

        Raises NothingToOrder or StoreFull.
        """
        lasts = await self._barriers()
        figures = self._spool.figures.by_revision(lasts)
        waiting = [(at, lane, self._output(lane)) for at, lane, _ in figures if at < lasts[lane].revision]
        waiting += [(revision, lane, self._output(lane)) for lane in await self._spool.doubts() if lane in lasts]
        lanes = sorted({lane for at, lane, holder in waiting if at == revision and output in (None, holder)})
        if not lanes:
            raise NothingToOrder(f"nothing drains there; what drains: {_listed(waiting)}")
        for lane in lanes:
            await self._place(Order(name, lane, lasts[lane].place, revision=revision))

    async def end_lane(self, name: Name, lane: int, upto: int) -> None:
        """The same for all that stands below a barrier of one lane. Raises StoreFull."""
        await self._place(Order(name, lane, upto))

    async def rebind(self, source: str, target: str) -> None:
        """Bind what waits for one credential to another, same destination. Raises NothingToOrder.

        What damage made doubtful is not moved: its barriers would wait in the other lane.
        """
        lasts = await self._barriers()
        lanes = [lane for lane in self._delivery.lanes.values() if lane.key.credential == source and lane.id in lasts]
        if source == target:
            raise NothingToOrder(f"`{source}` is bound to itself already: name another credential as the target")
        if not lanes:
            known = sorted({lane.key.credential or "" for lane in self._delivery.lanes.values() if lane.id in lasts})
            raise NothingToOrder(
                f"nothing that drains is bound to `{source}`; there is: {', '.join(known) or 'nothing'}"
            )
        credential = self._keyring.get(target)
        if credential is None:
            raise NothingToOrder(
                f"credential `{target}` is not held: no active policy and no queued event refers to it"
            )
        doubtful = await self._spool.doubts()
        for lane in lanes:
            if lane.id in doubtful:
                raise NothingToOrder(f"output {lane.key.output} is damaged: only `drop` or `dead_letter` end its drain")
            if credential.shape not in lane.output.takes:
                raise NothingToOrder(f"output {lane.key.output} takes no credential of shape {credential.shape}")
            key = LaneKey(lane.key.output, lane.key.type, lane.key.destination, target)
            try:
                order, row = await self._spool.place_rebind(lane.id, lasts[lane.id].place, key)
            except Released:
                raise NothingToOrder(f"credential `{target}` was released meanwhile, and may be revoked") from None
            self._delivery.ensure(row, lane.output)
            await self._carry_out(order)
            await lane.ended_or_active()

    async def _place(self, order: Order) -> None:
        await self._carry_out(await self._spool.place_order(order))

    async def _carry_out(self, order: Order) -> None:
        """Run a durable order, with nothing under way on the lanes it touches."""
        async with self._one, AsyncExitStack() as quiet:
            for id in (order.lane, order.target):
                lane = self._delivery.lanes.get(id) if id is not None else None
                if lane is not None:
                    await quiet.enter_async_context(lane.suspended())
            full = await self._run(order)
        if order.lane not in self._delivery.lanes:
            await self._delivery.settle_unopened(order.lane)
        if order.lane in self._delivery.lanes:  # perhaps only since the order began
            self._delivery.lanes[order.lane].look()
        if order.target in self._delivery.lanes:
            self._delivery.lanes[order.target].poke()
        self._settled()
        if full:
            raise StoreFull(FULL)

    async def _run(self, order: Order) -> bool:
        """Whether the dead-letter store was full before the end."""
        dropped = 0
        while True:
            step = await self._spool.step_order(order)
            dropped += step.letters_dropped
            self._delivery.count(order.lane, "letters_dropped", step.letters_dropped)
            if step.done:
                if dropped:
                    _log.warning("old dead letters gave way to an order", letters=dropped)
                return step.full

    async def _barriers(self) -> dict[int, _Barrier]:
        """By lane, its last unsettled barrier."""

        def last(db: sqlite3.Connection) -> dict[int, _Barrier]:
            rows = db.execute("SELECT lane, max(seq), epoch, revision FROM barrier GROUP BY lane").fetchall()
            return {lane: _Barrier(place, Revision(epoch, number)) for lane, place, epoch, number in rows}

        return await self._spool.query(last)

    def _output(self, lane: int) -> str:
        return self._delivery.lanes[lane].key.output if lane in self._delivery.lanes else ""


def _listed(waiting: Iterable[tuple[Revision, int, str]]) -> str:
    return ", ".join(f"revision {revision} of output {output}" for revision, _, output in waiting) or "nothing"
