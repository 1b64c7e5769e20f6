"""Makes the `observed` of the moment from all parts."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import orjson
import trio

from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.intake.intake import Intake, Running
from shipper.process.environment import REAL, Environment
from shipper.process.stalls import Modules, Stalls
from shipper.protocol.messages import EdgeFigures, Observed, PrincipalFigures, QueueFigures, State, Unit
from shipper.revisions.rollout import Rollout
from shipper.sdk.codes import Code, Why
from shipper.sdk.state import Quota
from shipper.spool.spool import Spool
from shipper.status import ages, blame, health, relays
from shipper.status.ages import Ages, Pair
from shipper.status.calm import Calm
from shipper.status.health import LaneView
from shipper.values import DeadLetterFigures, DeadLetterReason, Revision, StateFigures

READ_SECONDS = 1.0
READ_TO_THE_END = "read to the end"
NO_OUTPUT = "it has no output, so it reads nothing"
STALLED_SECONDS = 5.0
KEYED_SECONDS = 5.0
"""Between two counts of the keys."""
REASONS_SECONDS = 5.0
"""Between two looks at the reasons of the dead letters."""

Barriers = dict[int, Revision]
"""By active lane, the revision of its last open barrier: events of older revisions are below it."""


class Observer:
    """`deadline_problem` returns the problem of a drain past its deadline."""

    def __init__(
        self,
        *,
        spool: Spool,
        intake: Intake,
        delivery: Delivery,
        rollout: Rollout,
        deadline_problem: Callable[[], Why | None],
        wanted: Callable[[], list[str]],
        environment: Environment = REAL,
    ) -> None:
        self._now = environment.wall
        self._spool, self._intake, self._delivery, self._rollout = spool, intake, delivery, rollout
        self._deadline_problem, self._wanted = deadline_problem, wanted
        self._letters = DeadLetterFigures()
        self._reasons: Sequence[DeadLetterReason] = ()
        self._reasons_at = -math.inf
        self._keyed, self._keyed_at = StateFigures(), -math.inf
        self._holdings: Mapping[str, Quota] = {}
        self._ages = Ages()
        self.stalls = Stalls(self._blamed, environment=environment)
        """Run it beside."""
        self._barriers: Barriers = {}
        self._calm = Calm()

    async def look(self, stopping: State | None = None) -> Observed:
        """Returns the state of the whole. While the disk does not answer, figures from the disk are the last known."""
        lanes = dict(self._delivery.lanes)
        failure = self._failure()
        if failure is None:
            with trio.move_on_after(READ_SECONDS):
                await self._read(lanes)
                await self._read_letters()
                await self._read_keyed()
        views = {id: _view(lane) for id, lane in lanes.items()}
        figures, ages = self._spool.figures, self._ages
        draining, left_out = health.drains(views, figures, self._barriers, ages.oldest_of, self._now())
        now = trio.current_time()
        units = self._calm.units(self._units(views, failure), now, stopping=stopping is not None)
        whole = health.overall(
            units,
            failure=self._calm.failure(failure, now),
            running=self._rollout.plan is not None,
            configuring=self._rollout.is_configuring,
        )
        listed = health.most_important(units)
        observed = Observed(
            state=stopping or whole.state,
            message=whole.message,
            code=whole.code,
            revisions=self._rollout.stages,
            draining=draining,
            draining_left_out=left_out,
            units=listed,
            units_left_out=len(units) - len(listed),
            queue=self._queue(),
            dead_letters=self._letters,
            dead_letter_reasons=self._reasons,
            credentials_in_use=self._rollout.in_use,
            credentials_wanted=self._wanted(),
            credentials_accepted=self._delivery.pool.accepted(),
            keyed=self._keyed if self._keyed.keys else msgspec.UNSET,
            lease_seconds=self._delivery.pool.means.lease.seconds,
            confirms=self._delivery.confirms(),
        )
        return relays.with_bounds(observed, self.edges(), self.principals())

    def edges(self) -> list[EdgeFigures]:
        """Returns the figures of all edges; their keys as they were counted last."""
        return relays.edges(self._intake.edges(), self._holdings)

    def principals(self) -> list[PrincipalFigures]:
        """Returns the figures of all outputs that relay, by their names; what drains counts for its output."""
        lanes: dict[str, list[Lane]] = {}
        for lane in sorted(self._delivery.lanes.values(), key=lambda lane: (lane.key.output, not lane.active, lane.id)):
            if lane.link.output.relays:
                lanes.setdefault(lane.key.output, []).append(lane)
        return [self._principal(output, those) for output, those in lanes.items()]

    def _principal(self, output: str, lanes: Sequence[Lane]) -> PrincipalFigures:
        waits = [self._spool.figures.waits(lane.id) for lane in lanes]
        since = self._ages.oldest(lane.id for lane in lanes)
        oldest = None if since is None else self._now() - since
        return relays.principal(output, lanes[0].link.principal(), lanes[0].problem, waits, oldest)

    def _failure(self) -> Why | None:
        store = self._spool.store
        if store.problem is not None:
            return Why(store.problem, store.code)
        stalled = store.stalled_seconds()
        if stalled > STALLED_SECONDS:
            return Why(f"the disk has not answered for {stalled:.0f} s", Code.DISK_SILENT)
        return None if store.unread is None else Why(store.unread, Code.NO_DESCRIPTORS)

    def _units(self, views: dict[int, LaneView], failure: Why | None) -> list[Unit]:
        full = Why(self._full_message(views), Code.QUEUE_FULL) if self._intake.entrance.is_full else None
        inputs = [_input_unit(name, running, full, failure) for name, running in sorted(self._intake.running.items())]
        inputs += [
            Unit(f"inputs.{name}", "input", plan.spec.type, "DEGRADED", NO_OUTPUT, code=Code.NO_OUTPUT)
            for name, plan in sorted(self._intake.held.items())
        ]
        outputs = health.output_units(views.values(), self._delivery.unreadable)
        counters = self._delivery.counters()
        outputs = [self._with_dropped_letters(self._with_figures(unit), counters) for unit in outputs]
        problem = self._deadline_problem()
        if problem is not None:
            late = {f"outputs.{view.output}" for view in views.values() if self._has_barrier(view)}
            outputs = [health.also(unit, *problem) if unit.id in late else unit for unit in outputs]
        return self._with_stalls(inputs + outputs)

    def _with_stalls(self, units: list[Unit]) -> list[Unit]:
        """Adds the problem of a plugin that holds up the event loop to its unit."""
        module = self.stalls.module
        if module is None:
            return units
        at_fault = blame.units(module, self._plugins())
        if self.stalls.unit in at_fault:
            at_fault = {self.stalls.unit}
        problem = f"{module} held up all others for {self.stalls.seconds:.0f} s or more"
        return [health.also(unit, problem, Code.PLUGIN_FAULT) if unit.id in at_fault else unit for unit in units]

    def _blamed(self, modules: Modules) -> str | None:
        return blame.blamed(modules, set().union(*self._plugins().values()))

    def _plugins(self) -> dict[str, set[str]]:
        """Returns the modules of the plugins of each unit."""
        plugins = {
            f"outputs.{link.key.output}": {type(link.output).__module__}
            for link in list(self._delivery.pool.links.values())
        }
        for name, running in list(self._intake.running.items()):
            processors = running.plan.all_processors().values()
            plugins[f"inputs.{name}"] = {type(one).__module__ for one in (running.plan.spec.config, *processors)}
        return plugins

    def _with_figures(self, unit: Unit) -> Unit:
        """Returns the unit with the figures of its plugin, if it has any."""
        numbers = self._delivery.pool.counts.panel.of(unit.id, unit.type).numbers() if unit.type else {}
        return msgspec.structs.replace(unit, figures=numbers) if numbers else unit

    def _with_dropped_letters(self, unit: Unit, counters: Mapping[str, Mapping[str, int]]) -> Unit:
        """Returns the unit with the problem of a full dead-letter store, while it drops letters of the unit."""
        dropped = counters.get(unit.id.partition(".")[2], {}).get("letters_dropped", 0)
        if not dropped or self._letters.bytes < self._spool.limits.dead_letters.max_bytes // 2:
            return unit
        message = f"the dead-letter store is full: {dropped} old letters were dropped"
        return health.also(unit, message, Code.DEAD_LETTERS_FULL)

    async def _read(self, lanes: Mapping[int, Lane]) -> None:
        """Reads outdated ages, and the last barrier of each active lane."""
        outdated = self._ages.outdated(self._spool.figures, lanes)
        active = [id for id, lane in lanes.items() if lane.active]

        def read(db: sqlite3.Connection) -> tuple[dict[Pair, float], Barriers]:
            return ages.read(db, outdated), _last_barriers(db, active)

        found, self._barriers = await self._spool.store.read(read)
        self._ages.note(outdated, found)

    async def _read_letters(self) -> None:
        """Their reasons every few seconds, since they are counted; the first at once."""
        self._letters = await self._spool.letters.figures()
        is_due = trio.current_time() >= self._reasons_at + REASONS_SECONDS
        if not self._letters.events:
            self._reasons = ()
        elif is_due or not self._reasons:
            self._reasons = await self._spool.letters.reasons()
            self._reasons_at = trio.current_time()

    async def _read_keyed(self) -> None:
        """Every few seconds, since they are counted."""
        if trio.current_time() >= self._keyed_at + KEYED_SECONDS:
            self._keyed = await self._spool.state.figures()
            self._holdings = await self._spool.state.holdings() if self._intake.edges() else {}
            self._keyed_at = trio.current_time()

    def _has_barrier(self, lane: LaneView) -> bool:
        """Whether the lane is retired, or active again above an open barrier."""
        return not lane.active or lane.id in self._barriers

    def _queue(self) -> QueueFigures:
        total = self._spool.figures.total()
        oldest = self._ages.oldest() if total.events else None
        return QueueFigures(
            events=total.events,
            bytes=total.bytes,
            limit_bytes=self._intake.entrance.max_bytes,
            oldest_seconds=0.0 if oldest is None else round(max(0.0, self._now() - oldest), 3),
            disk_bytes=self._spool.store.disk_bytes(),
        )

    def _full_message(self, views: dict[int, LaneView]) -> str:
        most = max(views, key=lambda id: self._spool.figures.of_lanes([id]).bytes, default=None)
        holder = "" if most is None else f", output {views[most].output} holds the most"
        return f"the queue is full{holder}; intake waits"


def _last_barriers(db: sqlite3.Connection, lanes: Collection[int]) -> Barriers:
    rows = db.execute(
        "SELECT lane, epoch, revision FROM barrier WHERE lane IN (SELECT value FROM json_each(?)) ORDER BY lane, seq",
        (orjson.dumps(list(lanes)).decode(),),
    )
    return {lane: Revision(epoch, number) for lane, epoch, number in rows.fetchall()}


def _view(lane: Lane) -> LaneView:
    key = lane.key
    return LaneView(
        lane.id,
        key.output,
        key.type,
        lane.active,
        lane.problem,
        key.credentials,
        key.destination,
        lane.is_held,
        lane.code,
        lane.failing,
    )


def _input_unit(name: str, running: Running, full: Why | None, failure: Why | None) -> Unit:
    """`full` and `failure`: why the queue, or the disk, takes no events now."""
    state, message, code = _input_state(running, full, failure)
    figures = running.figures() or msgspec.UNSET
    return Unit(f"inputs.{name}", "input", running.plan.spec.type, state, message, figures, code)


def _passed_by(fault: str | None) -> str | None:
    return None if fault is None else f"{fault}: events pass it by, unchanged and tagged"


def _input_state(running: Running, full: Why | None, failure: Why | None) -> tuple[State, str, str]:
    port = running.port
    if running.failure is not None:
        return "FAILED", running.failure, running.code
    if running.withdrawn:
        return "DEGRADED", f"credential {running.withdrawn[0]} was withdrawn", Code.CREDENTIAL_WITHDRAWN
    if running.ended and port.problem:
        return "STOPPED", f"{READ_TO_THE_END}, but {port.problem}", port.code
    if running.ended:
        return "STOPPED", READ_TO_THE_END, Code.END_OF_INPUT
    if fault := port.fault or _passed_by(port.stages.fault):
        return "DEGRADED", fault, Code.PLUGIN_FAULT
    if port.problem:
        return "DEGRADED", port.problem, port.code
    waits = full if port.waiting else failure if port.storing else None
    return ("HEALTHY", "", Code.OK) if waits is None else ("DEGRADED", *waits)
