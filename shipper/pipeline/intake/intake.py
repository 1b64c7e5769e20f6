"""Intake: inputs run; what they emit passes the processors and becomes durable under the active revision.

    input ── emit ──> envelope, processors, pack (in a thread) ──> room? ──> spool.enter: batches, entries, positions

`emit` returns when the batch is durable. That is the acknowledgement for the input's peer, and the back-pressure. The
spool alone decides to which revision an event belongs: it stores a batch only if the revision for which the batch was
prepared is still active in that very transaction. A batch that comes too late, or still waits for room at the cut, is
prepared again under the new revision, from what the input emitted. So a cut waits for no batch, and an input that both
revisions share is not interrupted. Only an input with stages stops, for an instant, or for SETTLE_SECONDS while they
hold events that cannot be stored (`stages`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Literal, TypeVar

import msgspec
import trio

from shipper.pipeline import door
from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.intake.chain import Chain, Link, chained
from shipper.pipeline.intake.entrance import Entrance, Route
from shipper.pipeline.intake.envelope import Envelope
from shipper.pipeline.intake.listeners import Listeners
from shipper.pipeline.intake.port import InputCounts, Port
from shipper.pipeline.intake.stages import Opened, Place, open_all
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.libraries import load
from shipper.pipeline.plan import InputPlan, Plan
from shipper.pipeline.sources import Sources
from shipper.plugin import Processor, Source, StageContext
from shipper.process import log, stalls
from shipper.process.environment import REAL, Environment
from shipper.process.groups import contained, failures_apart
from shipper.sdk.aio import Asyncio
from shipper.sdk.codes import Code, of_os_error
from shipper.sdk.errors import NotOrdered, PluginFault, StartFailed, raised_at
from shipper.sdk.meters import Panel
from shipper.sdk.peers import Edge
from shipper.sdk.retry import backoff
from shipper.sdk.tallies import Taken
from shipper.spool.awaited import Answered
from shipper.spool.spool import Spool

_log = log.get(__name__)

Names = TypeVar("Names", bound=Collection[str])

SETTLE_SECONDS = 3.0
"""How long a cut, or a stop, waits for what stages hold."""


class Prepared(msgspec.Struct, frozen=True):
    """What was opened for a revision: its new inputs, and the stages of every input, also of running ones."""

    inputs: dict[str, Running] = msgspec.field(default_factory=dict)
    stages: dict[str, dict[Place, Opened]] = msgspec.field(default_factory=dict)


class Closing(msgspec.Struct, frozen=True):
    """Credentials that an input no longer uses once `closed` is set: all of them, or those that a change removed."""

    credentials: frozenset[str]
    closed: trio.Event

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()


class Running:
    """An input that runs, or is prepared to."""

    def __init__(self, plan: InputPlan, port: Port) -> None:
        self.plan, self.port = plan, port
        self.scope = trio.CancelScope()
        self.opened = trio.CancelScope()
        """Lasts while its source is open. Cancelling it closes the source; the input is opened again after a while."""
        self.withdrawn: list[str] = []
        """The withdrawn ids among its credentials."""
        self.go = trio.Event()
        self.closed = trio.Event()
        self.source: Source | None = None
        self.failure: str | None = None
        self.code: str = Code.OK
        """The code of the failure."""
        self.ended = False
        self.is_quiet = False
        """Whether it was asked to read nothing more, as a cut or a stop is near."""
        self._has_no_figures = self._has_no_edges = False
        port.input = self

    @property
    def relays(self) -> bool:
        """Whether it takes events from other shippers."""
        return self.plan.spec.config.relays

    def figures(self) -> dict[str, int]:
        """Returns the counters of the input and the figures of its source, without those if they are not numbers."""
        counted = self.port.meters.numbers()
        if self.source is None or self._has_no_figures:
            return counted
        try:
            with contained():
                return counted | {str(name): int(number) for name, number in self.source.figures().items()}
        except Exception as error:
            self._has_no_figures = True
            _log.error("an input cannot say its figures", input=self.port.name, error=raised_at(error))
            return counted

    def edges(self) -> Sequence[Edge]:
        """Returns the shippers that the source takes events from; none if it fails to name them."""
        if self.source is None or self._has_no_edges:
            return ()
        try:
            with contained():
                return tuple(Edge(*edge) for edge in self.source.edges())
        except Exception as error:
            self._has_no_edges = True
            _log.error("an input cannot say its edges", input=self.port.name, error=raised_at(error))
            return ()

    def read_again(self) -> None:
        """Closes the source, which is opened again: what it has emitted was not stored."""
        self.opened.cancel("what it has emitted was not stored")

    def answered(self, keys: Sequence[str]) -> None:
        """Tells the source that batches have all their answers."""
        if self.source is not None:
            self._tell(self.source.answered, keys)

    def adopted(self, owners: Collection[str]) -> None:
        """Tells the source that keys of these owners were taken from a destination."""
        if self.source is not None:
            self._tell(self.source.adopted, owners)

    def _tell(self, tell: Callable[[Names], None], names: Names) -> None:
        """Calls a method of the source; if it fails, the input is opened again."""
        try:
            with contained():
                tell(names)
        except Exception as error:
            self.note_failure(error)
            self.opened.cancel("it failed on what it was told")

    def note_failure(self, error: Exception | None) -> None:
        """Shows why it has failed, or that it has not."""
        failure, code = (None, Code.OK) if error is None else (_describe(error), _code(error))
        if failure is not None:
            _log.error("an input failed", input=self.port.name, error=failure)
        if (failure, code) != (self.failure, self.code):
            self.failure, self.code = failure, code
            self.port.show()

    async def quiesce(self) -> None:
        """Lets the source, if it can, stop reading and emit what it has read."""
        if self.source is None or type(self.source).quiesce is Source.quiesce:
            return
        self.is_quiet = True
        try:
            with contained():
                await self.source.quiesce()
        except Exception as error:
            _log.error("an input failed to end its reading", input=self.port.name, error=_describe(error))

    def resume(self) -> None:
        """There was no cut: the source goes on, opened again if it had ended its reading."""
        self.port.stages.resume()
        if self.is_quiet:
            self.is_quiet = False
            self.opened.cancel("there was no cut")


class Intake:
    """The inputs of this process; they live in `nursery`, and stop with it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        spool: Spool,
        keyring: Keyring,
        aio: Asyncio,
        listeners: Listeners,
        on_change: Callable[[], None],
        on_closed: Callable[[], None],
        environment: Environment = REAL,
    ) -> None:
        self.aio, self.listeners, self.environment = aio, listeners, environment
        self.entrance = Entrance(spool, on_change, environment)
        self.on_change, self.on_closed = on_change, on_closed
        self.running: dict[str, Running] = {}
        self.held: dict[str, InputPlan] = {}
        """Inputs of the active revision that read nothing, as they have no output."""
        self.turned_away: Counter[str] = Counter()
        """By input of the active revision, the connections that were closed for lack of room."""
        self.panel = Panel()
        """The own counters of inputs and processors."""
        self.sources = Sources()
        self.taken: dict[str, Taken] = {}
        """By input of the active revision, and of one that is being prepared."""
        self._plan: Plan | None = None
        self._nursery = nursery
        self._keyring = keyring
        spool.on_answered(self._answered)

    def _answered(self, answered: Sequence[Answered]) -> None:
        keys: dict[str, list[str]] = {}
        for input, key in answered:
            keys.setdefault(input, []).append(key)
        for running in self.running.values():
            if running.port.source in keys:
                running.answered(keys[running.port.source])

    # -- make before break ---------------------------------------------------------------------------------------------

    async def prepare(self, plan: Plan) -> Prepared:
        """Opens the inputs and the stages of a plan that do not run yet.

        Raises StartFailed. Then, and on cancel, it closes them again.
        """
        prepared = Prepared()
        try:
            for name, input in plan.inputs.items():
                if not input.outputs:
                    continue
                is_kept = self._is_kept(name, input)
                kept = self.running[name].port.stages.opened if is_kept else {}
                prepared.stages[name] = await self._open_stages(name, input, kept)
                if not is_kept:
                    running = prepared.inputs[name] = Running(input, self._port(name, input))
                    await self._nursery.start(self._run, running, name=f"input {name}")
        except BaseException:
            self.withdraw(prepared)
            raise
        return prepared

    def _port(self, name: str, input: InputPlan) -> Port:
        taken, meters = self.taken.setdefault(name, Taken()), self.panel.of(*_unit(name, input.spec.type))
        port = Port(
            input.spec,
            self._keyring.of(input.credentials),
            entrance=self.entrance,
            listeners=self.listeners,
            aio=self.aio,
            counts=InputCounts(taken, meters, partial(self._turn_away, name)),
        )
        port.on_complete = self.sources.tell
        return port

    def _turn_away(self, name: str, peers: int) -> None:
        self.turned_away[name] += peers

    async def _open_stages(self, name: str, input: InputPlan, kept: Mapping[Place, Opened]) -> dict[Place, Opened]:
        async def start(place: Place, opened: Opened) -> None:
            meters = self.panel.of(*_unit_of(name, place, opened.processor))
            context = StageContext(name, self.aio, meters, self.environment.monotonic)
            await self._nursery.start(opened.run, context, name=f"stage of input {name}")

        return await open_all(input.all_processors(), kept, start)

    def withdraw(self, prepared: Prepared) -> None:
        """Closes what was prepared for a revision that does not become active."""
        for running in prepared.inputs.values():
            running.scope.cancel("the revision did not become active")
        for name, stages in prepared.stages.items():
            kept = self.running[name].port.stages.opened.values() if name in self.running else ()
            for opened in stages.values():
                if opened not in kept:
                    opened.close()

    async def settle(self, plan: Plan) -> None:
        """Before a cut: stores what was read by inputs that end with it, if that takes only a moment.

        It also stores what stages hold of inputs whose way changes with this plan. Until `switch` or `resume`, inputs
        with stages take in nothing.
        """
        with trio.move_on_after(SETTLE_SECONDS):
            async with trio.open_nursery() as nursery:
                for name, running in self.running.items():
                    is_kept = self._is_kept(name, plan.inputs.get(name))
                    flush = not (is_kept and plan.keeps_way(name, self._plan))
                    nursery.start_soon(partial(_settle, running, ends=not is_kept, flush=flush))

    def resume(self) -> None:
        """There was no cut: inputs go on."""
        for running in self.running.values():
            running.resume()

    async def finish(self) -> None:
        """The process stops: stores what was read and what stages hold, if that takes only a moment, and takes in no
        more."""
        with trio.move_on_after(SETTLE_SECONDS):
            async with trio.open_nursery() as nursery:
                for running in self.running.values():
                    nursery.start_soon(partial(_settle, running, ends=True, flush=True))

    def switch(self, plan: Plan, prepared: Prepared, lanes: Mapping[tuple[str, bool], Lane]) -> list[Closing]:
        """The cut: from now on all events enter under `plan`. Returns what is closing.

        `lanes` are by output and whether they are of keyed state.
        """
        closing = []
        for name, running in list(self.running.items()):
            if name in prepared.inputs or name not in plan.inputs or not plan.inputs[name].outputs:
                running.scope.cancel("a newer revision replaced or removed this input")
                closing.append(Closing(frozenset(running.port.credentials), running.closed))
                del self.running[name]
        self.running.update(prepared.inputs)
        self.held = {name: input for name, input in plan.inputs.items() if not input.outputs}
        self.taken = {name: taken for name, taken in self.taken.items() if name in plan.inputs}
        self.turned_away = Counter({name: count for name, count in self.turned_away.items() if name in plan.inputs})
        units = {name: [_unit(name, input.spec.type), *_units(name, input)] for name, input in plan.inputs.items()}
        self.panel.keep(set(chain.from_iterable(units.values())))
        for name, running in self.running.items():
            input = plan.inputs[name]
            changed = input.spec.config != running.plan.spec.config
            before = frozenset(running.port.credentials)
            running.plan = input
            if self._supply(running) or changed:
                closing += self._change(running, before)
            opened = prepared.stages.get(name, {})
            way = self._chain(name, input, opened)
            is_way_kept = self._plan is not None and plan.keeps_way(name, self._plan)
            running.port.switch(
                Route(
                    plan.at,
                    way,
                    {output: lanes[output, False] for output in input.events},
                    Envelope.of(input.spec.config),
                    [lanes[output, True] for output in input.state],
                )
            )
            if running.port.stages.switch(way, opened, is_kept=is_way_kept):
                self._nursery.start_soon(running.port.stages.run)
            running.go.set()
        self.sources.switch({name: (running.plan.spec.config, running.port) for name, running in self.running.items()})
        self._plan = plan
        self.entrance.spool.made_room()
        return closing

    def _chain(self, name: str, input: InputPlan, opened: Mapping[Place, Opened]) -> Chain:
        def link(output: str, number: int, processor: Processor) -> Link:
            place = output, number
            unit = _unit_of(name, place, processor)
            meters = self.panel.of(*unit)
            if place not in opened:
                return Link(processor, meters, unit[0])
            return Link(processor, meters, unit[0], opened[place].stage, opened[place].rest)

        return chained(input.events, input.processors, input.branches, link)

    def resupply(self) -> list[Closing]:
        """Secrets were withdrawn or supplied: inputs go on with those that are held. Returns what is closing."""
        closing = []
        for running in self.running.values():
            before = frozenset(running.port.credentials)
            if self._supply(running):
                closing += self._change(running, before)
        return closing

    def _supply(self, running: Running) -> bool:
        """Gives an input the secrets that are held now; returns whether they changed."""
        before, running.port.credentials = running.port.credentials, self._keyring.of(running.plan.credentials)
        running.withdrawn = sorted(self._keyring.withdrawn.intersection(running.plan.credentials))
        return before != running.port.credentials

    def _change(self, running: Running, before: frozenset[str]) -> list[Closing]:
        """Lets the source use what `running` has now; if it fails, it ends, and the input is opened again after a
        while.

        Returns the credentials that it no longer uses once it says so.
        """
        if running.source is None:
            return []
        try:
            with contained():
                running.source.change(running.plan.spec.config, running.port.credentials)
        except Exception as error:
            running.note_failure(error)
            running.opened.cancel("it could not be changed")
            return []
        if type(running.source).changed is Source.changed:
            return []
        closing = Closing(before.difference(running.port.credentials), trio.Event())
        self._nursery.start_soon(self._settle, running, running.source.changed, closing.closed)
        return [closing]

    def _is_kept(self, name: str, input: InputPlan | None) -> bool:
        running = self.running.get(name)
        if running is None or input is None or running.plan.identity != input.identity:
            return False
        return not running.ended or running.plan.spec.config == input.spec.config

    async def _settle(self, running: Running, changed: Callable[[], Awaitable[None]], closed: trio.Event) -> None:
        """Sets `closed` when a changed input no longer uses anything old; if it cannot say when, at its end."""
        settled = False
        try:
            with failures_apart(running.note_failure):
                await changed()
                settled = True
        finally:
            if not settled:
                with trio.CancelScope(shield=True):  # what cancels this one closes the input too
                    await running.closed.wait()
            closed.set()
            self.on_closed()

    # -- a running input -----------------------------------------------------------------------------------------------

    async def _run(self, running: Running, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Opens the input, waits for the cut, reads; an input that fails later is opened again after a while."""
        waits = backoff(1.0, 60.0, draw=self.environment.draw)
        stalls.unit.set(f"inputs.{running.port.name}")
        try:
            with running.scope:
                while not running.ended:
                    with failures_apart(partial(self._failed, running)), trio.CancelScope() as running.opened:
                        settings, credentials = running.plan.spec.config, running.port.credentials
                        running.port.stages.reopened()
                        await load(f"input {running.port.name}", settings)
                        async with settings.open(running.port) as source:
                            running.source = door.opened(source, Source)
                            task_status.started()
                            task_status = trio.TASK_STATUS_IGNORED
                            await running.go.wait()
                            if (running.plan.spec.config, running.port.credentials) != (settings, credentials):
                                source.change(running.plan.spec.config, running.port.credentials)
                            running.note_failure(None)
                            await source.run()
                            if running.is_quiet:
                                await trio.sleep_forever()
                            await running.port.stages.flush()
                            running.ended = True
                    if not running.ended:
                        running.source = None
                        await trio.sleep(next(waits))
        finally:
            self.listeners.release(running.port)
            running.port.stages.close()
            running.closed.set()
            self.on_closed()
            self.on_change()

    def _failed(self, running: Running, error: Exception) -> None:
        if not running.go.is_set():
            raise _as_start_failed(running, error) from error
        running.note_failure(error)

    def edges(self) -> dict[str, Sequence[Edge]]:
        """Returns, by input that relays, the shippers that it takes events from."""
        return {name: edges for name, running in self.running.items() if (edges := running.edges())}

    async def forget_edge(self, edge: str, keys: Literal["keep", "delete"], input: str | None) -> int:
        """Lets an input forget one of its edges; returns the number of deleted keys. Raises NotOrdered."""
        name, running, source = self._door_of(edge, input)
        deleted, failure = None, None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, running.closed, nursery.cancel_scope)
            try:
                with contained():
                    deleted = int(await source.forget_edge(edge, keys))
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel("the order has ended")
        if failure is not None:
            raise failure
        if deleted is None:
            text = f"input {name} has ended; if it had begun the order, it completes it when it runs again"
            raise NotOrdered(text, code=Code.NOT_RUNNING)
        return deleted

    def _door_of(self, edge: str, input: str | None) -> tuple[str, Running, Source]:
        """Returns the input of an edge that an order names, and its source."""
        doors = {name: (one, one.source) for name, one in self.running.items() if one.source and one.relays}
        named = [name for name, (one, _) in doors.items() if any(each.name == edge for each in one.edges())]
        found = [input] if input is not None else named if len(doors) > 1 else list(doors)
        if len(found) == 1 and found[0] in doors:
            return found[0], *doors[found[0]]
        there = f"inputs that relay: {', '.join(sorted(doors)) or 'none'}"
        raise NotOrdered(f"name the input of edge {edge}; {there}", code=Code.NOTHING_TO_ORDER)

    def inputs(self) -> dict[str, dict[str, int]]:
        """Returns, by input, what it has taken, for metrics."""
        return {name: self.taken[name].view() for name in sorted(self.running) if name in self.taken}


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel("the input has ended")


async def _settle(running: Running, *, ends: bool, flush: bool) -> None:
    if ends:
        running.port.stages.hurry()  # else what it emits now would be held, and it would wait for that
        await running.quiesce()
    await running.port.stages.settle(flush=flush)


def _unit(name: str, type: str) -> tuple[str, str]:
    return f"inputs.{name}", type


def _units(name: str, input: InputPlan) -> list[tuple[str, str]]:
    """Returns the counters of its processors."""
    return [_unit_of(name, place, one) for place, one in input.all_processors().items()]


def _unit_of(name: str, place: Place, processor: Processor) -> tuple[str, str]:
    """Returns the counter name of a processor: of an input, or of an output, whichever input its events came from."""
    output, number = place
    owner = f"outputs.{output}" if output else f"inputs.{name}"
    return f"{owner}.processors.{number}", type(processor).__qualname__


def _as_start_failed(running: Running, error: Exception) -> StartFailed:
    if isinstance(error, StartFailed):
        return StartFailed(log.redacted(str(error)), code=error.code)
    return StartFailed(f"input {running.port.name}: {_describe(error)}", code=_code(error))


def _describe(error: Exception) -> str:
    return log.redacted(str(error)) if isinstance(error, StartFailed | OSError | PluginFault) else raised_at(error)


def _code(error: Exception) -> str:
    if isinstance(error, OSError):
        return of_os_error(error, Code.START_FAILED)
    return error.code if isinstance(error, (StartFailed, PluginFault)) else Code.INTERNAL_ERROR
