"""`drain.deadline`: how long a barrier may wait before `drain.on_deadline`.

A barrier's clock counts the monotonic time in which the process ran and the lane might send (`hold`); it is kept in the
spool, so that a restart neither restarts nor skips it. The settings are those of the newest active revision; one that
shortens the deadline takes effect no earlier than its own deadline after its own `active`. If the dead-letter store is
full and may drop nothing, the remaining events wait, and the order is repeated only when the store has room again.

Forwarded events have the whole deadline again, and are forwarded once more only if their output has another
destination by then; otherwise, and without such an output, they are held.

A look counts the time since the last look, for each clock that ran then: so a deadline is never early, and late by a
tick, or by the time in which the process was stopped or could not look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import trio

from shipper.pipeline.delivery.delivery import Delivery
from shipper.process import log
from shipper.revisions.orders import Orders, StoreFull
from shipper.revisions.rollout import Rollout
from shipper.spool import clock, dead_letters
from shipper.spool.clock import Clock, Reading
from shipper.spool.ground import Ground
from shipper.spool.limits import OnDeadline

_log = log.get(__name__)

TICK = 1.0


class Deadlines:
    """Watches open barriers; `problem` describes one that still waits past its deadline."""

    def __init__(
        self,
        *,
        ground: Ground,
        rollout: Rollout,
        delivery: Delivery,
        orders: Orders,
        on_change: Callable[[], None],
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self.problem: str | None = None
        self._full: dict[Clock, tuple[int, dead_letters.Limits]] = {}
        """By drain, the size and the limits of the dead-letter store when it took no more of it."""
        self._seen: dict[Clock, float] = {}
        """The running clocks, and the moment up to which each is counted."""
        self._ground, self._rollout, self._delivery = ground, rollout, delivery
        self._orders, self._on_change, self._now = orders, on_change, now

    async def run(self) -> None:
        """Looks at the clocks while there is a deadline; without one this costs nothing."""
        while True:
            deadline = self._ground.limits.deadline
            tick = TICK if deadline is None else min(TICK, max(0.05, deadline / 4))
            began = self._now()
            await trio.sleep(tick)
            self.slept(tick, taken=self._now() - began)
            await self.look()

    def slept(self, seconds: float, *, taken: float) -> None:
        """Ignores the excess of a sleep that took much longer: the process was stopped, for example by SIGSTOP."""
        if taken - seconds > TICK:
            self._seen = {one: since + taken - seconds for one, since in self._seen.items()}

    async def look(self) -> None:
        """Counts the time that passed, and ends late drains."""
        limits = self._ground.limits
        reading = Reading(None, {}) if limits.deadline is None else await self._read()
        barriers = reading.barriers()
        if limits.deadline is None or not barriers:
            self._seen, self._full = {}, {}
            self._set_problem(None)
        elif reading.effective(limits.deadline) and limits is self._ground.limits:  # else a cut came meanwhile
            late = [barrier for barrier, waited in barriers.items() if waited >= limits.deadline]
            await self._end(late, limits.deadline, limits.on_deadline)

    async def _read(self) -> Reading:
        """Advances the running clocks, and returns all clocks."""
        running, now = self._running_lanes(), self._now()
        passed = {one: now - since for one, since in self._seen.items() if one.lane in running}
        if passed:
            reading = await self._ground.store.do(partial(clock.advance, seconds=passed))
        else:
            reading = await self._ground.store.read(clock.read)
        is_active = reading.active == self._rollout.stages.active  # otherwise a cut has not reached `active` yet
        after = self._now()
        self._seen = {
            one: now if one in passed else after
            for one in reading.clocks
            if one.lane in running and (is_active or one in passed)
        }
        return reading

    def _running_lanes(self) -> set[int]:
        """Returns the lanes whose time counts; 0 is the clock of a deadline."""
        return {0} | {lane.id for lane in self._delivery.lanes.values() if lane.link.may_begin()}

    async def _end(self, late: Sequence[Clock], deadline: float, ending: OnDeadline) -> None:
        """Ends late drains as the policy demands."""
        problem = f"a drain is past its deadline of {deadline:g} s" if late else None
        if late and ending == "forward":
            held = await self._forward(late)
            problem = None if held is None else f"{problem}, and {held}"
        elif late and (ending == "dead_letter" or ending == "drop"):
            done = await self._order(ending, late)
            problem = None if done else f"{problem}, and the dead-letter store is full"
        self._set_problem(problem)

    async def _forward(self, late: Iterable[Clock]) -> str | None:
        """Returns why a drain is held, or None; costs one query where nothing can be forwarded."""
        held = None
        for lane, place in dict(sorted(late)).items():  # the highest of several in one lane
            problem = await self._orders.forward_lane(lane, upto=place)
            if problem is None:
                _log.warning("a drain reached its deadline", lane=lane, on_deadline="forward")
            held = held or problem
        return held

    async def _order(self, ending: Literal["dead_letter", "drop"], late: Iterable[Clock]) -> bool:
        """Returns whether the dead-letter store had room; otherwise tries again when the store has changed."""
        held = await self._letters() if ending == "dead_letter" else None
        waiting = [drain for drain in late if held is None or self._full.get(drain) != held]
        for drain in waiting:
            _log.warning("a drain reached its deadline", lane=drain.lane, on_deadline=ending)
            try:
                await self._orders.end_lane(ending, drain.lane, drain.seq)
                self._full.pop(drain, None)
            except StoreFull:
                self._full[drain] = await self._letters()
        return self._full.keys().isdisjoint(late)

    async def _letters(self) -> tuple[int, dead_letters.Limits]:
        return await self._ground.store.read(dead_letters.held_bytes), self._ground.limits.dead_letters

    def _set_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._on_change()
