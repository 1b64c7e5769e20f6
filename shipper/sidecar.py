"""The process `shipper run`: opens all parts, runs the conversation, and ends in order.

    standard input ──> Conversation ──> Rollout ──> Intake (inputs) ──> Spool ──> Delivery (lanes)
    standard output <── Outbox <── acks, observed

Lifetimes are nested, outermost first: the outbox, the spool, the asyncio thread, delivery, intake. A stop cancels
intake, waits for delivery until the deadline, and cancels it; accepted events are durable all the time.
"""

from __future__ import annotations

import base64
import binascii
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from shipper import __version__
from shipper.control.actions import Actions
from shipper.control.conversation import Conversation, Observing, Performing
from shipper.control.door import Door
from shipper.control.local import Local
from shipper.control.outbox import Outbox
from shipper.control.pipes import Stdin, Stdout
from shipper.control.tapping import Tapping, points
from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.destination.lease import Lease
from shipper.pipeline.destination.pool import Means
from shipper.pipeline.intake.intake import Intake
from shipper.pipeline.intake.listeners import Listeners
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.plan import digest
from shipper.policy.registry import Registry
from shipper.process import log
from shipper.process.environment import REAL, Environment
from shipper.process.signal import Signal
from shipper.protocol.messages import CAPABILITIES, VERSION, Hello, Observed, QueueFigures, Ready, State, Stopped
from shipper.revisions.deadline import Deadlines
from shipper.revisions.forwarding import Forwarding
from shipper.revisions.offer import Offer
from shipper.revisions.orders import Orders
from shipper.revisions.requeue import Requeuing
from shipper.revisions.rollout import Rollout
from shipper.revisions.statements import Refused
from shipper.sdk.aio import Asyncio, open_asyncio
from shipper.sdk.codes import Code, Why
from shipper.sdk.errors import Problem, StartFailed, StateBusy, StateLocked
from shipper.spool.disk import Disk
from shipper.spool.keys import StateKey
from shipper.spool.spool import Spool, open_spool
from shipper.status import export, health
from shipper.status.http import serve_status
from shipper.status.observer import Observer
from shipper.values import DeadLetterFigures, Revisions

_log = log.get(__name__)

FLUSH_SECONDS = 2.0
AT_ONCE_SECONDS = 0.5
"""The time to write queued messages after a second signal."""
LOOK_SECONDS = 0.5
"""The interval of checks, while stopping, whether all waiting events are held."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    state: Path
    http: str | None = None
    otlp: export.Settings | None = None
    """Where own metrics and log go."""
    is_asked: bool = False
    """Whether people may ask this process (`control.local`)."""


@contextmanager
def signals() -> Iterator[AsyncIterator[int]]:
    """Yields the signals that stop this process; they were blocked since its start."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        yield received


@dataclass(frozen=True, slots=True)
class Outside:
    """The environment of the process, except for the resources of plugins and the HTTP server."""

    stdin: Stdin
    stdout: Stdout
    environment: Environment = REAL
    disk: Disk = field(default_factory=Disk)
    signals: Callable[[], AbstractContextManager[AsyncIterator[object]]] = signals
    asyncio: Callable[[], AbstractAsyncContextManager[Asyncio]] = open_asyncio
    plugins: Callable[[], Registry] = Registry.installed


async def run(options: Options, outside: Outside) -> int:
    """Runs until it is stopped; returns the exit status of the protocol."""
    outbox = Outbox(outside.stdout)
    conversation = Conversation(outside.stdin, outbox)
    status = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        await nursery.start(_heed_signals, outside, conversation, nursery.cancel_scope)
        status = await _converse(options, outside, conversation, outbox)
        with trio.move_on_after(FLUSH_SECONDS):
            await outbox.flushed()
        nursery.cancel_scope.cancel("the process ends")
    return status


async def _heed_signals(
    outside: Outside,
    conversation: Conversation,
    process: trio.CancelScope,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Treats the first signal as a `stop`; the second cancels shipping at once, since accepted events are durable.

    After AT_ONCE_SECONDS the rest is cancelled too.
    """
    with outside.signals() as received:
        task_status.started()
        await anext(received)
        conversation.interrupt()
        await anext(received)
        conversation.serving.cancel("stopped at once by a second signal")
        process.deadline = trio.current_time() + AT_ONCE_SECONDS


async def _converse(options: Options, outside: Outside, conversation: Conversation, outbox: Outbox) -> int:
    greeting = await conversation.hello()
    if greeting is None:
        outbox.say(Stopped(clean=True, undelivered=0))
        return 0
    line, hello = greeting
    if hello.protocol != VERSION:
        conversation.error(line, f"hello.protocol: must be {VERSION}, not {hello.protocol}", Code.UNKNOWN_PROTOCOL)
        return 78
    try:
        keys = _state_keys(hello)
    except ValueError as error:
        conversation.error(line, f"hello.state_keys: {error}", Code.STATE_KEYS_INVALID)
        return 78
    try:
        is_new = not options.state.exists()
        async with open_spool(options.state, keys, disk=outside.disk, environment=outside.environment) as spool:
            if is_new and spool.store.local_state_key:
                _log.info("made state.key, which seals the state directory; a key of your own can take its place")
            with conversation.serving:
                await _ship(options, outside, hello, conversation, outbox, spool)
            return _stopped(outbox, spool)
    except StateLocked as error:
        await _refuse_all(hello, conversation, outbox, str(error))
        outbox.say(Stopped(clean=True, undelivered=0))
        return 0
    except (StateBusy, StartFailed) as error:
        _log.error(str(error))
        conversation.error(line, str(error), error.code)
        return 75 if isinstance(error, StateBusy) else 1


def _state_keys(hello: Hello) -> list[StateKey] | None:
    if not hello.state_keys:
        return None
    try:
        return [StateKey(text.id, base64.b64decode(text.key, validate=True)) for text in hello.state_keys]
    except binascii.Error:
        raise ValueError("a key is 32 bytes in base64") from None


async def _refuse_all(hello: Hello, conversation: Conversation, outbox: Outbox, cause: str) -> None:
    """Reports a locked directory, at once and periodically, and nacks every policy."""

    def refuse(offer: Offer) -> None:
        problem = Problem("", 1, 1, cause, code=Code.LOCKED)
        conversation.say(Refused(offer.at, digest(offer.text), "locked", [problem]), lambda: None)

    async def look(stopping: State | None) -> Observed:
        return _locked(cause)

    _log.error(cause)
    outbox.say(_locked(cause))
    with trio.move_on_after(FLUSH_SECONDS):  # before answers to lines that came with `hello`
        await outbox.flushed()
    observing = Observing(conversation.observed, hello.heartbeat_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(observing.run, look)
        await conversation.locked(refuse, observing.heed)
        nursery.cancel_scope.cancel("the shipper stops")


def _locked(cause: str) -> Observed:
    return Observed(
        state="FAILED",
        message=cause,
        code=Code.LOCKED,
        revisions=Revisions(),
        draining=(),
        units=(),
        queue=QueueFigures(events=0, bytes=0, limit_bytes=0, oldest_seconds=0.0, disk_bytes=0),
        dead_letters=DeadLetterFigures(),
        credentials_in_use=(),
        credentials_wanted=(),
    )


async def _ship(
    options: Options, outside: Outside, hello: Hello, conversation: Conversation, outbox: Outbox, spool: Spool
) -> None:
    """Runs all parts of a process that owns its state directory."""
    environment = outside.environment
    async with (
        outside.asyncio() as aio,
        _exporting(options, aio, environment) as exporter,
        trio.open_nursery() as delivering,
    ):
        async with trio.open_nursery() as taking_in:
            registry = outside.plugins()
            known = await spool.revisions.fingerprints()
            keyring = Keyring(spool.store.sealer.fingerprint, known, registry, environment.in_thread)
            observing = Observing(conversation.observed, hello.heartbeat_seconds)
            lease = Lease(environment.boottime, is_needed=hello.lease)
            parts = _Parts(
                environment, aio, spool, keyring, registry, lease, conversation, observing, delivering, taking_in
            )
            await parts.restore()
            if exporter is not None:
                exporter.begin(parts.status)
            async with serve_status(aio, options.http, parts.status) if options.http else _nothing() as http:
                outbox.say(parts.ready(http))
                parts.start(delivering)
                if options.is_asked:
                    delivering.start_soon(parts.local.serve, options.state)  # the disk may be silent
                taking_in.start_soon(parts.rollout.run)
                stop = await conversation.run(parts)
                parts.observing.stopping = "STOPPING"
                parts.observing.ask()
                ends = trio.current_time() + stop.within_seconds
                with trio.move_on_at(ends):
                    await parts.intake.finish()
            taking_in.cancel_scope.cancel("the shipper stops")
        parts.delivery.hurry()
        with trio.move_on_at(ends) as grace:
            delivering.start_soon(conversation.stopping, grace, parts)
            await parts.performing.finished()
            await parts.delivered()
            await parts.rollout.advance()
        delivering.cancel_scope.cancel("the shipper stops")


def _stopped(outbox: Outbox, spool: Spool) -> int:
    """Sends the last message; returns the exit status."""
    clean = not spool.store.is_failing()
    outbox.say(Stopped(clean=clean, undelivered=spool.figures.total().events))
    return 0 if clean else 1


def _exporting(
    options: Options, aio: Asyncio, environment: Environment
) -> AbstractAsyncContextManager[export.Exporter | None]:
    return _nothing() if options.otlp is None else export.exporting(options.otlp, aio, environment)


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield None


class _Parts:
    """The parts of a process that owns its state directory, in the order of their dependencies; a door's `Core`."""

    def __init__(
        self,
        environment: Environment,
        aio: Asyncio,
        spool: Spool,
        keyring: Keyring,
        registry: Registry,
        lease: Lease,
        door: Door,
        observing: Observing,
        delivering: trio.Nursery,
        taking_in: trio.Nursery,
    ) -> None:
        self.environment, self.spool, self.keyring = environment, spool, keyring
        self.observing = observing
        self._move_events(aio, registry, lease, door, delivering, taking_in)
        self._end_drains()
        self._answer(door, delivering)
        spool.store.on_problem(lambda _: observing.changed())

    def _move_events(
        self,
        aio: Asyncio,
        registry: Registry,
        lease: Lease,
        door: Door,
        delivering: trio.Nursery,
        taking_in: trio.Nursery,
    ) -> None:
        """Makes what takes in and delivers, and what switches both to another revision."""
        spool, keyring, environment = self.spool, self.keyring, self.environment
        settled, changed = Signal(), self.observing.changed
        self.intake = Intake(
            taking_in,
            spool=spool,
            keyring=keyring,
            aio=aio,
            listeners=Listeners(),
            on_change=changed,
            on_closed=settled.set,
            environment=environment,
        )
        self.delivery = Delivery(
            delivering,
            means=Means(
                spool, keyring, aio, self.intake.entrance.taps, lease, self.intake.sources, environment=environment
            ),
            registry=registry,
            on_change=changed,
            on_barrier=settled.set,
        )
        self.intake.entrance.lanes = self.delivery.lanes
        self.rollout = Rollout(
            revisions=spool.revisions,
            keyring=keyring,
            registry=registry,
            intake=self.intake,
            delivery=self.delivery,
            settled=settled,
            say=door.say,
            on_change=changed,
            on_active=lambda: self.forwarding.news.set(),
            in_thread=environment.in_thread,
        )

    def _end_drains(self) -> None:
        """Makes what ends drains that cannot end by themselves, and requeues dead letters."""
        spool = self.spool
        drains = spool.drains
        self.orders = Orders(drains=drains, delivery=self.delivery, keyring=self.keyring, settled=self._order_ended)
        self.forwarding = Forwarding(drains=drains, orders=self.orders)
        self.requeuing = Requeuing(letters=spool.letters, intake=self.intake, delivery=self.delivery)
        self.deadlines = Deadlines(
            ground=spool,
            rollout=self.rollout,
            delivery=self.delivery,
            orders=self.orders,
            on_change=self.observing.changed,
        )

    def _answer(self, door: Door, delivering: trio.Nursery) -> None:
        """Makes what a supervisor and people ask."""
        self.observer = Observer(
            spool=self.spool,
            intake=self.intake,
            delivery=self.delivery,
            rollout=self.rollout,
            deadline_problem=self._late,
            wanted=self.rollout.wanted,
            environment=self.environment,
        )
        actions = Actions(
            letters=self.spool.letters,
            intake=self.intake,
            delivery=self.delivery,
            rollout=self.rollout,
            orders=self.orders,
            requeuing=self.requeuing,
            look=self.observer.look,
        )
        tapping = Tapping(self.intake.entrance.taps, partial(points, self.intake, self.delivery), self.environment)
        self.local = Local(self.status, tapping, self.environment.in_thread)
        self.performing = Performing(delivering, actions, door.result)
        self.offer, self.supply, self.has_room = self.rollout.offer, self.rollout.supply, self.rollout.has_room
        self.renew_lease, self.ask = self.delivery.pool.renew_lease, self.delivery.pool.ask
        self.act, self.observe = self.performing.begin, self.observing.heed

    @property
    def is_full(self) -> bool:
        return self.rollout.is_full

    def _late(self) -> Why | None:
        problem = self.deadlines.problem
        return None if problem is None else Why(problem, Code.DEADLINE_PASSED)

    def _order_ended(self) -> None:
        self.rollout.settled.set()
        self.forwarding.news.set()

    async def restore(self) -> None:
        """Restores the lanes and revisions of the spool."""
        await self.delivery.restore(await self.spool.revisions.lanes())
        await self.rollout.restore()

    def start(self, delivering: trio.Nursery) -> None:
        """Starts all tasks that outlive intake."""
        delivering.start_soon(self.rollout.watch)
        delivering.start_soon(self.deadlines.run)
        delivering.start_soon(self.orders.resume)
        delivering.start_soon(self.forwarding.run)
        delivering.start_soon(self.requeuing.resume)
        delivering.start_soon(self.observing.run, self.observer.look)
        delivering.start_soon(self.observer.stalls.run)
        self.rollout.settled.set()

    def ready(self, http: str | None) -> Ready:
        return Ready(
            version=__version__,
            pid=os.getpid(),
            instance=str(uuid.UUID(bytes=self.environment.entropy(16), version=4)),
            http=http,
            revisions=self.rollout.stages,
            credentials_in_use=self.rollout.in_use,
            credentials_wanted=self.rollout.wanted(),
            capabilities=CAPABILITIES,
            confirms=self.delivery.confirms(),
        )

    async def delivered(self) -> None:
        """Waits until all lanes are empty and their barriers settled, except for held lanes that are not tried."""
        lanes = self.delivery.lanes
        while any((lane.machine.is_tried or not lane.is_held) and self._is_busy(lane) for lane in lanes.values()):
            with trio.move_on_after(LOOK_SECONDS):
                await self.spool.room.wait()

    def _is_busy(self, lane: Lane) -> bool:
        return not lane.active or self.spool.figures.of_lanes([lane.id]).events > 0

    def status(self) -> dict[str, Any]:
        """Returns the status for people: the last `observed`, with current figures."""
        self.observing.changed()
        latest = self.observing.latest
        if latest is None:
            empty: dict[str, Any] = {name: {} for name in ("counters", "turned_away", "outputs", "inputs", "plugins")}
            return {"state": "STARTING", "message": "", "code": Code.OK, "running": False, "supervisor": None, **empty}
        total = self.spool.figures.total()
        view: dict[str, Any] = {**msgspec.to_builtins(latest), "counters": self.delivery.counters()}
        view |= {"running": self.rollout.plan is not None, "turned_away": dict(self.intake.turned_away)}
        view |= {"outputs": self.delivery.outputs(), "inputs": self.intake.inputs()}
        view["plugins"] = self.intake.panel.view() | self.delivery.pool.counts.panel.view()
        view |= {"edges": msgspec.to_builtins(self.observer.edges()), "edges_left_out": 0}
        view |= {"principals": msgspec.to_builtins(self.observer.principals()), "principals_left_out": 0}
        view |= self._supervised(latest)
        view["lease_seconds"] = self.delivery.pool.means.lease.seconds
        view["past_deadline"] = self.deadlines.problem is not None
        view["queue"] |= {"events": total.events, "bytes": total.bytes}
        view["dead_letters"] |= {"limit_bytes": self.spool.limits.dead_letters.max_bytes}
        return view

    def _supervised(self, latest: Observed) -> dict[str, Any]:
        """Returns the state with the supervisor's problems.

        The supervisor has no server of its own; it sends its status to this process.
        """
        supervision = self.observing.supervision
        troubles = [(one.kind, one.cause) for one in supervision.troubles] if supervision is not None else []
        state, message = health.hindered(latest.state, latest.message, latest.code, troubles)
        return {"state": state, "message": message, "supervisor": msgspec.to_builtins(supervision)}
