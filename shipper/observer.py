"""Looks at all parts and makes the `observed` of this moment."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

import trio

from shipper import health
from shipper.delivery import Delivery
from shipper.health import LaneView
from shipper.intake import Intake, Running
from shipper.lane import Lane
from shipper.messages import READ_TO_THE_END, DeadLetterFigures, Draining, Observed, QueueFigures, Revision, State, Unit
from shipper.rollout import Rollout
from shipper.spool.schema import BARRIER
from shipper.spool.spool import Spool

READ_SECONDS = 1.0
STALLED_SECONDS = 5.0

Ages = dict[tuple[int, Revision], float]
Barriers = dict[int, Revision]
"""By lane, the revision that put its last open barrier: what entered under older ones stands below."""


class Observer:
    """`deadline_problem` says whether a drain is past its deadline."""

    def __init__(
        self,
        *,
        spool: Spool,
        intake: Intake,
        delivery: Delivery,
        rollout: Rollout,
        deadline_problem: Callable[[], str | None],
        wanted: Callable[[], list[str]],
    ) -> None:
        self._spool, self._intake, self._delivery, self._rollout = spool, intake, delivery, rollout
        self._deadline_problem, self._wanted = deadline_problem, wanted
        self._letters = DeadLetterFigures()
        self._ages: Ages = {}
        self._barriers: Barriers = {}

    async def look(self, stopping: State | None = None) -> Observed:
        """The state of the whole. While the disk does not answer, figures that stand there are those of before."""
        lanes = dict(self._delivery.lanes)
        failure = self._failure()
        if failure is None:
            with trio.move_on_after(READ_SECONDS):
                self._ages, self._barriers = await self._read(list(lanes))
                self._letters = await self._spool.dead_letters()
        views = {id: _view(lane) for id, lane in lanes.items()}
        units = self._units(views, failure or "")
        state, message = health.overall(
            units,
            failure=failure,
            running=self._rollout.plan is not None,
            configuring=self._rollout.is_configuring,
        )
        return Observed(
            state=stopping or state,
            message=message,
            revisions=self._rollout.stages,
            draining=self._draining(views),
            units=units,
            queue=self._queue(),
            dead_letters=self._letters,
            credentials_in_use=self._rollout.in_use,
            credentials_wanted=self._wanted(),
        )

    def _failure(self) -> str | None:
        stalled = self._spool.store.stalled_seconds()
        if self._spool.store.problem is None and stalled > STALLED_SECONDS:
            return f"the disk has not answered for {stalled:.0f} s"
        return self._spool.store.problem or self._spool.store.unread

    def _units(self, views: dict[int, LaneView], failure: str) -> list[Unit]:
        full = self._full_message(views) if self._intake.is_full else ""
        inputs = [_input_unit(name, running, full, failure) for name, running in sorted(self._intake.running.items())]
        inputs += [
            Unit(f"inputs.{name}", "input", plan.spec.type, "DEGRADED", "it has no output, so it reads nothing")
            for name, plan in sorted(self._intake.held.items())
        ]
        outputs = health.output_units(views.values(), self._delivery.unreadable)
        outputs = [self._with_dropped_letters(unit) for unit in outputs]
        problem = self._deadline_problem()
        if problem is not None:
            outputs = [
                Unit(unit.id, unit.kind, unit.type, "DEGRADED", f"{problem}; {unit.message}".rstrip("; "))
                if any(view.output == unit.id.partition(".")[2] and self._has_barrier(view) for view in views.values())
                else unit
                for unit in outputs
            ]
        return inputs + outputs

    def _with_dropped_letters(self, unit: Unit) -> Unit:
        """A full dead-letter store that drops its oldest is no healthy one, until somebody makes room."""
        dropped = self._delivery.counters().get(unit.id.partition(".")[2], {}).get("letters_dropped", 0)
        if not dropped or self._letters.bytes < self._spool.terms.letters.max_bytes // 2:
            return unit
        message = f"the dead-letter store is full: {dropped} old letters were dropped"
        return Unit(unit.id, unit.kind, unit.type, "DEGRADED", f"{message}; {unit.message}".rstrip("; "))

    async def _read(self, lanes: list[int]) -> tuple[Ages, Barriers]:
        """When the first event of each revision entered that a lane still holds; and the barriers."""
        revisions = [(lane, revision) for revision, lane, _ in self._spool.figures.by_revision(lanes)]

        def read(db: sqlite3.Connection) -> tuple[Ages, Barriers]:
            found = {pair: _first_at(db, *pair) for pair in revisions}
            last = db.execute("SELECT lane, epoch, revision FROM barrier ORDER BY lane, seq").fetchall()
            ages = {pair: at for pair, at in found.items() if at is not None}
            return ages, {lane: Revision(epoch, number) for lane, epoch, number in last}

        return await self._spool.query(read)

    def _has_barrier(self, lane: LaneView) -> bool:
        """Retired, or active again over an older barrier."""
        return not lane.active or lane.id in self._barriers

    def _drains(self, lane: LaneView, revision: Revision) -> bool:
        """Whether what entered under a revision stands below a barrier of this lane."""
        return not lane.active or (lane.id in self._barriers and revision < self._barriers[lane.id])

    def _draining(self, views: dict[int, LaneView]) -> list[Draining]:
        figures = self._spool.figures
        waiting = figures.by_revision(list(views))
        amounts = [
            (revision, lane, amount) for revision, lane, amount in waiting if self._drains(views[lane], revision)
        ]
        totals = figures.revisions({(revision, lane) for revision, lane, _ in amounts})
        first: dict[Revision, float] = {}
        for revision, lane, _ in amounts:
            at = self._ages.get((lane, revision), time.time())
            first[revision] = min(first.get(revision, at), at)
        return health.draining(views, amounts, totals, first, time.time())

    def _queue(self) -> QueueFigures:
        total = self._spool.figures.total()
        oldest = min(self._ages.values(), default=None) if total.events else None
        return QueueFigures(
            events=total.events,
            bytes=total.bytes,
            limit_bytes=self._intake.max_bytes,
            oldest_seconds=0.0 if oldest is None else round(max(0.0, time.time() - oldest), 3),
            disk_bytes=self._spool.store.disk_bytes(),
        )

    def _full_message(self, views: dict[int, LaneView]) -> str:
        most = max(views, key=lambda id: self._spool.figures.of_lanes([id]).bytes, default=None)
        holder = "" if most is None else f", output {views[most].output} holds the most"
        return f"the queue is full{holder}; intake waits"


def _first_at(db: sqlite3.Connection, lane: int, revision: Revision) -> float | None:
    row = db.execute(
        "SELECT at FROM todo WHERE lane = ? AND kind != ? AND (epoch, revision) = (?, ?) ORDER BY seq LIMIT 1",
        (lane, BARRIER, *revision),
    ).fetchone()
    return None if row is None else float(row[0])


def _view(lane: Lane) -> LaneView:
    return LaneView(lane.id, lane.key.output, lane.key.type, lane.active, lane.problem)


def _input_unit(name: str, running: Running, full: str, failure: str) -> Unit:
    """`full` and `failure`: why the queue, or the disk, takes nothing now."""
    type = running.plan.spec.type
    if running.failure is not None:
        return Unit(f"inputs.{name}", "input", type, "FAILED", running.failure)
    if running.ended:
        rest = f", but {running.port.problem}" if running.port.problem else ""
        return Unit(f"inputs.{name}", "input", type, "STOPPED", READ_TO_THE_END + rest)
    waits = full if running.port.waiting else failure if running.port.storing else ""
    problem = running.port.problem or waits
    return Unit(f"inputs.{name}", "input", type, "DEGRADED" if problem else "HEALTHY", problem)
