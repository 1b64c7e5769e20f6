"""The order to requeue dead letters, for a destination that rejected events and would accept them now.

    wanted ── which letters? ──> durable ──> steps, each within the room of the queue ──> lanes look

It moves letters into the queue (`spool.requeue`), and their lanes deliver them. It never waits for room in the queue or
on the disk: it ends early, and reports how many letters are left.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import trio

from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.intake.intake import Intake
from shipper.process import log
from shipper.revisions.orders import NothingToOrder
from shipper.sdk.codes import Code
from shipper.sdk.errors import Backpressure, ShipperError
from shipper.spool.parts.letters import Letters
from shipper.spool.requeue import STEP_BYTES, End, Requeue, Step, Wanted

_log = log.get(__name__)


class Requeued(NamedTuple):
    """The number of letters that entered the queue, and of those that stay since they are damaged."""

    requeued: int
    damaged: int


class EndedEarly(ShipperError):
    """The order ended before all letters were requeued; the text has their number, and the cause."""

    code = Code.QUEUE_FULL


class Requeuing:
    """Carries out requeues, one at a time."""

    def __init__(self, *, letters: Letters, intake: Intake, delivery: Delivery) -> None:
        self._letters, self._intake, self._delivery = letters, intake, delivery
        self._one = trio.Lock()

    async def resume(self) -> None:
        """Resumes orders that a crash interrupted."""
        for order in await self._letters.standing():
            try:
                done = await self._carry_out(order)
                _log.info("dead letters entered the queue again", letters=done.requeued)
            except ShipperError as error:
                _log.warning("an order ended early", error=str(error))

    async def requeue(self, wanted: Wanted) -> Requeued:
        """Puts the wanted letters into the queue again. Raises NothingToOrder or EndedEarly."""
        found = await self._letters.find(wanted)
        if not found.outputs:
            there = (await self._letters.find(Wanted())).outputs
            raise NothingToOrder(f"no dead letter matches: nothing was requeued; there are {_listed(there)}")
        active = await self._letters.active()
        if gone := {output: count for output, count in found.outputs.items() if output not in active}:
            raise NothingToOrder(f"nothing was requeued: there are {_listed(gone)}, {_not_one_of(active)}")
        order = Requeue(wanted._replace(upto=min(wanted.upto, found.upto)), self._intake.entrance.max_bytes)
        return await self._carry_out(await self._letters.place(order))

    async def _carry_out(self, order: Requeue) -> Requeued:
        """Runs a durable order."""
        requeued = damaged = 0
        async with self._one:
            while True:
                try:
                    step = await self._step(order)
                except Backpressure as problem:
                    await self._letters.forget(order)
                    raise EndedEarly(await self._left(order, requeued, str(problem)), code=problem.code) from None
                requeued, damaged = requeued + step.requeued, damaged + step.damaged
                order = step.order
                if step.end == "done":
                    return Requeued(requeued, damaged)
                if step.end is not None:
                    text = await self._left(order, requeued, await self._why(step.end))
                    raise EndedEarly(text, code=Code.QUEUE_FULL if step.end == "full" else Code.NOTHING_TO_ORDER)

    async def _step(self, order: Requeue) -> Step:
        with self._intake.entrance.room(STEP_BYTES, order.max_bytes) as room:
            step = await self._letters.step(order, room)
        for _, lane, _ in step.entered:
            if lane in self._delivery.lanes:
                self._delivery.lanes[lane].look()
        return step

    async def _why(self, end: End) -> str:
        if end == "full":
            return "the queue holds as much as queue.max_bytes allows"
        return f"the next one is of an output {_not_one_of(await self._letters.active())}"

    async def _left(self, order: Requeue, requeued: int, why: str) -> str:
        left = sum((await self._letters.find(order.wanted)).outputs.values())
        return f"{why}; {requeued} dead letters were requeued, {left} are left: order it again for them"


def _listed(outputs: dict[str, int]) -> str:
    return ", ".join(f"{count} of output {output}" for output, count in outputs.items()) or "none"


def _not_one_of(active: Collection[str]) -> str:
    return f"which is not in the active revision; its outputs are: {', '.join(active) or 'none'}"
