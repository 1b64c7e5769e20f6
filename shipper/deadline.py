"""`drain.deadline`: how long a barrier may wait before `drain.on_deadline`.

A barrier's clock counts the monotonic time in which the process ran and held the lane's credential; it is kept in the
spool, so that a restart neither restarts nor skips it. The settings are those of the newest active revision; one that
shortens the deadline takes effect no earlier than its own deadline after its own `active`. Where the dead-letter store
is full and may drop nothing, what did not fit waits until somebody makes room there; only then it is tried again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Literal

import trio

from shipper import log
from shipper.delivery import Delivery
from shipper.keyring import Keyring
from shipper.orders import Orders, StoreFull
from shipper.rollout import Rollout
from shipper.spool import letters
from shipper.spool.spool import Spool

_log = log.get(__name__)

TICK = 1.0
Waited = tuple[int, int, float]
Action = Literal["dead_letter", "drop"]


class Deadlines:
    """Watches open barriers; `problem` says that one is past its deadline and still waits."""

    def __init__(
        self,
        *,
        spool: Spool,
        rollout: Rollout,
        delivery: Delivery,
        keyring: Keyring,
        orders: Orders,
        on_change: Callable[[], None],
    ) -> None:
        self.problem: str | None = None
        self._full: tuple[int, letters.Limits] | None = None
        """What the dead-letter store held, and might hold, when it took no more."""
        self._known: float | None = None
        self._from = 0.0
        self._spool, self._rollout, self._delivery = spool, rollout, delivery
        self._keyring, self._orders, self._on_change = keyring, orders, on_change

    async def run(self) -> None:
        """Count while there is a deadline; without one, or without retired lanes, this costs nothing."""
        while True:
            started = trio.current_time()
            await trio.sleep(self._tick())
            if self._deadline() is not None and any(not lane.active for lane in self._delivery.lanes.values()):
                await self._count(trio.current_time() - started)
            elif self.problem is not None:
                self._set_problem(None)

    def _deadline(self) -> float | None:
        plan = self._rollout.plan
        return None if plan is None else plan.policy.drain.deadline

    def _tick(self) -> float:
        deadline = self._deadline()
        return TICK if deadline is None else min(TICK, max(0.05, deadline / 4))

    async def _count(self, seconds: float) -> None:
        lanes = [
            lane.id
            for lane in self._delivery.lanes.values()
            if lane.key.credential is None or lane.key.credential in self._keyring
        ]
        deadline, plan = self._deadline(), self._rollout.plan
        waited, held = await self._spool.store.do(_add(lanes, seconds))
        late = [barrier for barrier in waited if barrier[2] >= (deadline or 0)]
        if plan is None or deadline is None or trio.current_time() < self._effective(deadline):
            return
        action = plan.policy.drain.on_deadline
        problem = f"a drain is past its deadline of {deadline:g} s" if late else None
        if late and action != "hold":
            full = action == "dead_letter" and self._full == (held, self._spool.terms.letters)
            full = full or not await self._end(action, late)
            problem = f"{problem}, and the dead-letter store is full" if full else None
        self._set_problem(problem)

    async def _end(self, action: Action, late: Sequence[Waited]) -> bool:
        """False if the dead-letter store has no room for all of it."""
        try:
            for lane, seq, _ in late:
                _log.warning("a drain reached its deadline", lane=lane, on_deadline=action)
                await self._orders.end_lane(action, lane, seq)
        except StoreFull:
            self._full = await self._spool.query(letters.held_bytes), self._spool.terms.letters
            return False
        return True

    def _effective(self, deadline: float) -> float:
        """When the deadline begins to count: at once, unless the newest revision shortened it."""
        if deadline != self._known:
            shortened = self._known is not None and deadline < self._known
            self._known, self._from = deadline, self._rollout.since + deadline if shortened else 0.0
        return self._from

    def _set_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self._on_change()


def _add(lanes: list[int], seconds: float) -> Callable[[sqlite3.Connection], tuple[list[Waited], int]]:
    """Returns what each barrier has waited, and the bytes of the dead letters."""

    def add(db: sqlite3.Connection) -> tuple[list[Waited], int]:
        db.executemany("UPDATE barrier SET waited = waited + ? WHERE lane = ?", [(seconds, lane) for lane in lanes])
        return db.execute("SELECT lane, seq, waited FROM barrier").fetchall(), letters.held_bytes(db)

    return add
