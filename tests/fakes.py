"""Scripted plugins, and a bench: a real spool in a directory with real lanes that deliver to scripted outputs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import trio

from shipper.control.statements import messages
from shipper.pipeline.delivery.delivery import Delivery
from shipper.pipeline.delivery.lane import Lane
from shipper.pipeline.destination.lease import Lease
from shipper.pipeline.destination.pool import Means
from shipper.pipeline.intake.intake import Intake
from shipper.pipeline.intake.listeners import Listeners
from shipper.pipeline.keyring import Keyring
from shipper.pipeline.plan import lane_keys, lane_settings
from shipper.pipeline.tap import Taps
from shipper.plugin import (
    API_KEY,
    BASIC,
    Answer,
    Answers,
    Credential,
    CredentialId,
    Duration,
    Feeding,
    Held,
    Input,
    InputContext,
    Material,
    Outcome,
    Output,
    OutputContext,
    Part,
    Processor,
    Sender,
    Settings,
    Source,
    Stage,
    StageContext,
    StartFailed,
    meters,
    takes,
)
from shipper.policy.policy import OutputSpec
from shipper.policy.registry import Registry
from shipper.process.environment import REAL, Environment
from shipper.process.signal import Signal
from shipper.protocol.messages import Ack, Nack, Outbound, Released
from shipper.revisions.forwarding import Forwarding
from shipper.revisions.offer import Offer
from shipper.revisions.orders import Orders
from shipper.revisions.requeue import Requeuing
from shipper.revisions.rollout import Rollout
from shipper.revisions.statements import Statement
from shipper.sdk.codes import Code
from shipper.sdk.errors import Later
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields
from shipper.spool.queue import Arrival, Entry, Packed
from shipper.spool.revisions import Text
from shipper.spool.spool import Spool, open_spool
from shipper.values import Revision

PATIENCE = 60.0
Send = Callable[[Batch], Awaitable[Answers]]


@dataclass(frozen=True)
class Pace:
    first: float = 0.01
    longest: float = 0.05


class Destination:
    """What a scripted output does, and what happened to it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        """`open CREDENTIAL`, `send COUNT`, `close CREDENTIAL`, and what tests add."""
        self.received: list[int] = []
        """The `n` of each event that was answered as delivered."""
        self.asked: list[int] = []
        self.send: Send = self.deliver
        self.is_there = True
        """Whether a request can begin: otherwise its name is unknown, or its port is closed."""
        self.target: Callable[[int], str] = lambda n: ""
        """Of the event with this `n`."""
        self.refused: set[str] = set()
        """Places that refuse their events, as `deliver` says."""
        self.on_open: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.on_close: Callable[[], None] = lambda: None
        self.on_ending: Callable[[], None] = lambda: None
        self.closing: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        """Waited for before it is closed, whatever is cancelled."""
        self.shelf: dict[str, tuple[int, bytes | None]] = {}
        """By key: the place and the document of the newest version that was delivered; None: it was deleted."""
        self.shelved: list[tuple[str, int, bytes | None]] = []
        """Every version that was sent, with its key and place, in the order in which they came."""
        self.feeding: dict[str, Any] = {}
        """What the output states otherwise than by default, when a lane begins."""
        self.contexts: list[OutputContext] = []
        self.open_senders = 0
        self.sending = 0
        self.hanging = 0
        self._news = trio.Event()

    def vanish(self) -> None:
        """From now on no request can begin."""
        self.is_there, self.send = False, self.raising(Later("connection refused"))

    async def shelve(self, batch: Batch) -> Answers:
        """Take versions, unless there is a newer one of the key."""
        await trio.lowlevel.checkpoint()
        return self.shelve_now(batch, ())

    def shelve_now(self, batch: Batch, rejected: Collection[bytes]) -> Answers:
        """The same at once; documents that are `rejected` are refused for ever."""
        assert batch.versions is not None
        others = {}
        for at, (version, document) in enumerate(zip(batch.versions, batch.body.split(b"\n"), strict=False)):
            assert version is not None
            new = version.place, None if version.deleted else document
            self.shelved.append((version.key, *new))
            has = self.shelf.get(version.key, (0, None))
            if document in rejected:
                others[at] = Answer(Outcome.REJECTED, "400 no such thing")
            elif new[0] < has[0]:
                others[at] = Answer(Outcome.SUPERSEDED, fence=(has[0], b""))
            else:
                self.shelf[version.key] = new
        return Answers(batch.count, others)

    async def deliver(self, batch: Batch) -> Answers:
        await trio.lowlevel.checkpoint()
        return self.answer(batch, {})

    def answer(self, batch: Batch, others: dict[int, Answer]) -> Answers:
        """Delivered, but for some by position, and those of targets that refuse."""
        numbers = [event["n"] for event in batch.own()]
        targets = {at: self.target(n) for at, n in enumerate(numbers)}
        refused = {at for at, target in targets.items() if target in self.refused}
        others = {at: Answer(Outcome.HELD, f"403 {targets[at]}", of_target=True) for at in refused} | others
        self.received += [n for at, n in enumerate(numbers) if at not in others]
        return Answers(batch.count, others)

    def refusing(self, *numbers: int, outcome: Outcome = Outcome.HELD, reason: str = "403 forbidden") -> Send:
        """A send that answers otherwise for the events with these numbers."""

        async def send(batch: Batch) -> Answers:
            await trio.lowlevel.checkpoint()
            events = enumerate(batch.own())
            return self.answer(batch, {at: Answer(outcome, reason) for at, event in events if event["n"] in numbers})

        return send

    def raising(self, error: Exception, *, times: int | None = None) -> Send:
        """A send that raises, for ever or a number of times."""
        left = times

        async def send(batch: Batch) -> Answers:
            nonlocal left
            await trio.lowlevel.checkpoint()
            if left is None or left > 0:
                left = None if left is None else left - 1
                raise error
            return self.answer(batch, {})

        return send

    async def hang(self, batch: Batch) -> Answers:
        """No answer, until cancelled."""
        self.hanging += 1
        self.notify()
        try:
            await trio.sleep_forever()
        finally:
            self.hanging -= 1
        raise AssertionError

    def notify(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; it is asked whenever something happens here, and now and then."""
        with trio.fail_after(PATIENCE):
            while not condition():
                with trio.move_on_after(0.01):
                    await self._news.wait()


DESTINATIONS: dict[str, Destination] = {}


class ScriptedOutput(Output, frozen=True):
    """Does what `DESTINATIONS[to]` says."""

    live: ClassVar[frozenset[str]] = frozenset({"workers", "live_setting"})
    backoff: ClassVar[Pace] = Pace()

    credential: Annotated[CredentialId, takes(API_KEY)] | None = None
    to: str = "main"
    live_setting: int = 0
    flush: Duration = Duration(0.05)

    def feeding(self) -> Feeding:
        pace = (self.backoff.first, self.backoff.longest)
        stated = DESTINATIONS[self.to].feeding if self.to in DESTINATIONS else {}
        return replace(super().feeding(), **({"backoff": pace} | stated))

    def targets(self, batch: Batch) -> Sequence[str]:
        return [DESTINATIONS[self.to].target(event["n"]) for event in batch.own()]

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        script = DESTINATIONS[self.to]
        await script.on_open()
        names = [secret.fields["api_key"].partition(":")[0] for secret in context.credentials.values()]
        secret = "+".join(names) or "nobody"
        script.log.append(f"open {secret}")
        script.open_senders += 1
        script.notify()
        try:
            yield _Scripted(script, context, tells=bool(self.contacts()))
        finally:
            with trio.CancelScope(shield=True):
                await script.closing()
            script.open_senders -= 1
            script.log.append(f"close {secret}")
            script.notify()
            script.on_close()


class Sasl(Settings, frozen=True):
    secret: Annotated[CredentialId, takes(API_KEY, BASIC)]


class OwnTls(Settings, frozen=True, tag_field="kind", tag="own"):
    client: Annotated[CredentialId, takes(API_KEY)]
    ca: Material | None = None


class AnyTls(Settings, frozen=True, tag_field="kind", tag="any"):
    name: str = ""


class NestedOutput(ScriptedOutput, frozen=True):
    """The same, with secrets in nested settings, a list and a union."""

    sasl: Sasl | None = None
    tls: tuple[OwnTls | AnyTls, ...] = ()


class ShelfOutput(ScriptedOutput, frozen=True):
    """Takes keyed state, as `DESTINATIONS[to]` says; see `Destination.shelve`."""

    def takes_state(self) -> bool:
        return True

    def targets(self, batch: Batch) -> Sequence[str]:
        return [""] * batch.count


class DrawerOutput(ShelfOutput, frozen=True):
    """Takes keyed state alone."""

    def takes_events(self) -> bool:
        return False


class TellingOutput(ScriptedOutput, frozen=True):
    """The same, and it says when a request begins, which is never where nobody `is_there`."""

    index: str = ""
    """Another one is another lane to the same host."""

    def contacts(self) -> Sequence[str]:
        return [self.to]


class _Scripted(Sender):
    def __init__(self, script: Destination, context: OutputContext, *, tells: bool) -> None:
        self.script, self.begins, self.tells = script, context.begins, tells
        script.contexts.append(context)

    def ending(self) -> None:
        self.script.on_ending()

    async def send(self, batch: Batch) -> Answers:
        self.script.log.append(f"send {batch.count}")
        self.script.asked += [event["n"] for event in batch.own() if "n" in event]
        self.script.sending += 1
        self.script.notify()
        try:
            if self.tells and self.script.is_there:
                await self.begins()
            return await self.script.send(batch)
        finally:
            self.script.sending -= 1
            self.script.notify()


class Spring:
    """What a scripted input does, and what happened to it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.contexts: list[InputContext] = []
        self.answered: list[str] = []
        """Keys of batches that have all their answers."""
        self.on_open: Callable[[InputContext], Awaitable[None]] = _nothing
        self.on_run: Callable[[InputContext], Awaitable[None]] = _for_ever
        self.on_close: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.on_changed: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.on_figures: Callable[[], dict[str, int]] = dict
        self.on_quiesce: Callable[[InputContext], Awaitable[None]] | None = None

    @property
    def context(self) -> InputContext:
        """Of the input that was opened last."""
        return self.contexts[-1]

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():  # noqa: ASYNC110 - anything may be the condition
                await trio.sleep(0.005)


async def _nothing(context: InputContext) -> None:
    await trio.lowlevel.checkpoint()


async def _for_ever(context: InputContext) -> None:
    await trio.sleep_forever()


SPRINGS: dict[str, Spring] = {}


class ScriptedInput(Input, frozen=True):
    """Does what `SPRINGS[of]` says. Its place is `at`."""

    of: str = "in"
    at: str = ""
    flavour: str = ""
    credentials: tuple[Annotated[CredentialId, takes(API_KEY, BASIC)], ...] = ()

    def identity(self) -> Any:
        return [self.of, self.at]

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        spring = SPRINGS[self.of]
        spring.log.append(f"open {self.flavour}")
        await spring.on_open(context)
        spring.contexts.append(context)
        try:
            yield (_Scripting if spring.on_quiesce is None else _Quiescing)(spring, context)
        finally:
            with trio.CancelScope(shield=True):
                await spring.on_close()
            spring.log.append("close")


class StateInput(ScriptedInput, frozen=True):
    """The same, for keyed state."""

    gives_state = True
    gives_events: ClassVar[bool] = False


class RereadingInput(ScriptedInput, frozen=True):
    """The same, and it can read again from its positions."""

    rereads: ClassVar[bool] = True


class RelayingInput(ScriptedInput, frozen=True):
    """The same, and its batches may have the identity that another shipper gave them."""

    relays: ClassVar[bool] = True


class _Scripting(Source):
    def __init__(self, spring: Spring, context: InputContext) -> None:
        self.spring, self.context = spring, context

    async def run(self) -> None:
        self.spring.log.append("run")
        await self.spring.on_run(self.context)

    def change(self, settings: Any, credentials: Mapping[str, Credential]) -> None:
        self.spring.log.append(f"change {settings.flavour} {','.join(credentials)}".rstrip())

    async def changed(self) -> None:
        await self.spring.on_changed()

    def answered(self, keys: Sequence[str]) -> None:
        self.spring.answered.extend(keys)

    def figures(self) -> dict[str, int]:
        return self.spring.on_figures()


class _Quiescing(_Scripting):
    async def quiesce(self) -> None:
        assert self.spring.on_quiesce is not None
        await self.spring.on_quiesce(self.context)


class ScriptedProcessor(Processor, frozen=True):
    """Marks events, or counts them, or fails, or waits, or drops all, or returns what cannot be."""

    mark: str = "seen"
    does: str = "mark"

    def process(self, batch: Batch) -> Batch:
        if self.does == "fail":
            raise ZeroDivisionError("a secret")
        if self.does == "wait":
            GATE.wait(2 * PATIENCE)
        if self.does == "count":
            meters().counter("seen", "Events that it has seen.").add(batch.count)
        if self.does == "drop":
            return batch.replace([], [])
        if self.does == "grow":
            return Batch.events([*batch.own(), {}])
        if self.does == "tear":
            return batch.rewritten(batch.body[:-1], {})
        if self.does == "forget":
            return None  # type: ignore[return-value]
        return batch.share({self.mark: True})

    @property
    def is_slow(self) -> bool:
        return self.does == "wait"


class ScriptedStage(Processor, frozen=True):
    """Counts events from 1 on, each by its `count`; holds them for `holds` seconds, or not at all; see `Workshop`."""

    holds: float | None = None
    does: str = ""
    mark: str = "count"
    to: tuple[str, ...] | None = None

    @asynccontextmanager
    async def open(self, context: StageContext) -> AsyncIterator[Stage]:
        WORKSHOP.log.append(f"open {self.mark}")
        if self.does == "refuse":
            raise StartFailed("the file is gone")
        stage = _Counting(self, context)
        WORKSHOP.open.append(stage)
        try:
            yield stage
        finally:
            WORKSHOP.open.remove(stage)
            WORKSHOP.log.append(f"close {self.mark}")


class Workshop:
    """What became of scripted stages."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.open: list[_Counting] = []


WORKSHOP = Workshop()


class _Counting(Stage):
    def __init__(self, settings: ScriptedStage, context: StageContext) -> None:
        self.settings, self.context = settings, context
        self.count = self.counted = 0
        self.held: list[Part] = []
        self._due: float | None = None
        self.has_failed = False

    def process(self, part: Part) -> Sequence[Part]:
        numbers = range(self.count + 1, self.count + part.batch.count + 1)
        self.count += part.batch.count
        events = zip(part.batch.own(), numbers, strict=True)
        batch = part.batch.replace([event | {self.settings.mark: number} for event, number in events])
        outputs = part.outputs if self.settings.to is None else frozenset(self.settings.to)
        made = Part(batch, outputs)
        if self.settings.holds is None:
            return [made]
        self._due = self._due or self.context.now() + self.settings.holds
        self.held.append(made)
        return []

    def flush(self) -> Sequence[Part]:
        if self.settings.does == "fail" or (self.settings.does == "fail once" and not self.has_failed):
            self.has_failed = True
            raise ZeroDivisionError("a secret")
        if self.settings.does == "exit":
            raise SystemExit("a secret")
        held, self.held, self._due = self.held, [], None
        return held

    @property
    def due(self) -> float | None:
        if self.settings.does == "no due":
            raise ZeroDivisionError("a secret")
        return self._due

    def commit(self) -> None:
        self.counted = self.count

    def rollback(self) -> None:
        self.count, self.held, self._due = self.counted, [], None


GATE = threading.Event()
"""Lets processors that wait go on."""

REGISTRY = Registry(
    {
        "outputs": {
            "scripted": ScriptedOutput,
            "shelf": ShelfOutput,
            "drawer": DrawerOutput,
            "telling": TellingOutput,
            "nested": NestedOutput,
        },
        "inputs": {
            "scripted": ScriptedInput,
            "state": StateInput,
            "rereading": RereadingInput,
            "relaying": RelayingInput,
        },
        "processors": {"scripted": ScriptedProcessor, "stage": ScriptedStage},
    }
)


def secret(id: str) -> Credential:
    return Credential.parse({"api_key": f"{id}:secret-of-{id}"})


def poke(delivery: Delivery) -> None:
    """Every lane tries at once, whatever it waits for."""
    for lane in delivery.lanes.values():
        lane.poke()


async def stored_batch(spool: Spool, lane: int, entry: Entry) -> Batch:
    """Returns the events of an entry, from disk."""
    found, _ = await spool.queue.load(lane, [entry])
    return found[entry.seq]


class Bench:
    """A real spool, and its lanes; a policy is a mapping of outputs to credentials."""

    def __init__(self, spool: Spool, nursery: trio.Nursery, environment: Environment) -> None:
        self.spool = spool
        self.keyring = Keyring(spool.store.sealer.fingerprint, {})
        self.changes = 0
        self.barriers = 0
        self.boottime = 1000.0
        self.taps = Taps()
        self.delivery = Delivery(
            nursery,
            means=Means(
                spool,
                self.keyring,
                None,  # type: ignore[arg-type]
                self.taps,
                Lease(lambda: self.boottime),
                environment=environment,
            ),
            registry=REGISTRY,
            on_change=self._changed,
            on_barrier=self._barrier,
        )
        self.active: dict[str, Lane] = {}
        self.at = Revision(0, 0)
        self.seqs: list[int] = []
        self._next = 0

    def _changed(self) -> None:
        self.changes += 1

    def _barrier(self) -> None:
        self.barriers += 1
        for script in DESTINATIONS.values():
            script.log.append("barrier")
            script.notify()

    async def activate(
        self, number: int, settings: dict[str, dict[str, Any]] | None = None, **outputs: str | None
    ) -> dict[str, Lane]:
        """Receive, cut and take over a revision with these outputs, each to the destination of its name."""
        specs = {
            name: OutputSpec(
                name, "scripted", ScriptedOutput(to=name, credential=credential, **(settings or {}).get(name, {}))
            )
            for name, credential in outputs.items()
        }
        for name, credential in outputs.items():
            DESTINATIONS.setdefault(name, Destination())
            if credential is not None and credential not in self.keyring and not credential.startswith("missing"):
                self.keyring.keep({credential: secret(credential)})
        ids = [credential for credential in outputs.values() if credential is not None]
        self.at = Revision(0, number)
        await self.spool.revisions.receive(
            Text(self.at, "sha", f"{number}", "barrier", ids, ""), dict.fromkeys(ids, b"mark")
        )
        wanted = [(key, lane_settings(spec)) for spec in specs.values() for key in lane_keys(spec)]
        cut = await self.spool.revisions.cut(self.at, wanted)
        self.delivery.take_over(cut.lanes, {name: spec.config for name, spec in specs.items()}, cut.retired)
        self.active = {row.key.output: self.delivery.lanes[row.id] for row in cut.lanes}
        return self.active

    async def enter(
        self,
        count: int = 1,
        *,
        to: Iterable[str] | None = None,
        batches: int = 1,
        padding: int = 0,
        shared: Fields | None = None,
    ) -> list[int]:
        """Store batches for outputs (default: all active); returns the numbers of their events.

        Each event has so many bytes of padding, which hardly take any on the disk.
        """
        lanes = [self.active[name] for name in (to if to is not None else self.active)]
        first = self._next
        for _ in range(batches):
            documents = [b'{"n":%d,"p":"%b"}' % (self._next + n, b"a" * padding) for n in range(count)]
            batch = Batch.documents(documents, shared=shared)
            self._next += count
            arrival = Arrival(self.at, "test/in", [lane.id for lane in lanes], [Packed(count, batch.pack())])
            for stored in await self.spool.queue.enter(arrival):
                self.seqs.append(stored.seq)
                placed = batch.stored(self.spool.origin, stored.seq)
                for lane in lanes:
                    lane.arrived(stored.entry(self.at), placed)
        return list(range(first, self._next))

    async def empty(self) -> None:
        """Wait until nothing waits, and every retired lane is gone."""
        with trio.fail_after(PATIENCE):
            while self.spool.figures.total().events or any(not lane.active for lane in self.delivery.lanes.values()):
                with trio.move_on_after(0.02):
                    await self.spool.room.wait()


@asynccontextmanager
async def bench(path: Path, *, was_killed: bool = False, environment: Environment = REAL) -> AsyncIterator[Bench]:
    """A bench on a state directory; leaving it is a crash of all but the spool."""
    DESTINATIONS.clear()
    DESTINATIONS["main"] = Destination()
    async with open_spool(path, None) as spool, trio.open_nursery() as nursery:
        spool.store.directory.was_killed = was_killed
        yield Bench(spool, nursery, environment)
        nursery.cancel_scope.cancel("the test is over")


class Theatre:
    """Rollout, intake and delivery over a real spool, as the process has them; without the conversation."""

    def __init__(
        self, spool: Spool, known: dict[str, bytes], taking_in: trio.Nursery, delivering: trio.Nursery
    ) -> None:
        self.spool = spool
        self.said: list[Outbound] = []
        self._news = trio.Event()
        self.is_read = True
        """Whether what is said is written."""
        self.keyring = Keyring(spool.store.sealer.fingerprint, known)
        settled = Signal()
        self.intake = Intake(
            taking_in,
            spool=spool,
            keyring=self.keyring,
            aio=None,  # type: ignore[arg-type]
            listeners=Listeners(),
            on_change=lambda: None,
            on_closed=settled.set,
        )
        self.delivery = Delivery(
            delivering,
            means=Means(
                spool,
                self.keyring,
                None,  # type: ignore[arg-type]
                self.intake.entrance.taps,
                sources=self.intake.sources,
            ),
            registry=REGISTRY,
            on_change=lambda: None,
            on_barrier=settled.set,
        )
        self.intake.entrance.lanes = self.delivery.lanes
        self.rollout = Rollout(
            revisions=spool.revisions,
            keyring=self.keyring,
            registry=REGISTRY,
            intake=self.intake,
            delivery=self.delivery,
            settled=settled,
            say=self._say,
            on_change=lambda: None,
            on_active=lambda: self.forwarding.news.set(),
        )
        drains = spool.drains
        self.orders = Orders(drains=drains, delivery=self.delivery, keyring=self.keyring, settled=self._order_ended)
        self.forwarding = Forwarding(drains=drains, orders=self.orders)
        self.requeuing = Requeuing(letters=spool.letters, intake=self.intake, delivery=self.delivery)
        self.settled = settled

    def _say(self, statement: Statement, delivered: Callable[[], None]) -> None:
        self.said += messages(statement)
        self._news.set()
        self._news = trio.Event()
        if self.is_read:
            delivered()

    def _order_ended(self) -> None:
        self.settled.set()
        self.forwarding.news.set()

    async def offer(
        self, number: int, text: str, *ids: str, secrets: Mapping[str, Any] | None = None, epoch: int = 0
    ) -> None:
        """Offer a policy with the secrets of these ids, or with others."""
        credentials = {id: {"api_key": f"{id}:secret-of-{id}"} for id in ids} | dict(secrets or {})
        await self.rollout.offer(Offer(Revision(epoch, number), text, credentials))

    async def ack(self, number: int, stage: str) -> Ack:
        """Wait for an ack; a nack of the revision fails at once."""

        def wanted(message: Outbound) -> bool:
            assert not (isinstance(message, Nack) and message.revision == number), message
            return isinstance(message, Ack) and (message.revision, message.stage) == (number, stage)

        message = await self.wait(wanted)
        assert isinstance(message, Ack)
        return message

    async def nack(self, number: int) -> Nack:
        message = await self.wait(lambda m: isinstance(m, Nack) and m.revision == number)
        assert isinstance(message, Nack)
        assert {error.code for error in message.errors} <= set(Code)
        return message

    async def released(self) -> Released:
        message = await self.wait(lambda m: isinstance(m, Released))
        assert isinstance(message, Released)
        return message

    async def wait(self, wanted: Callable[[Outbound], bool]) -> Outbound:
        with trio.move_on_after(PATIENCE):
            while True:
                for message in self.said:
                    if wanted(message):
                        return message
                await self._news.wait()
        raise AssertionError(f"not said; said: {self.said}")

    async def wait_gone(self, credential: str) -> None:
        """Wait until no lane has this credential."""
        with trio.fail_after(PATIENCE):
            while any(credential in lane.key.credentials for lane in self.delivery.lanes.values()):  # noqa: ASYNC110
                await trio.sleep(0.005)

    def of_state(self) -> list[Lane]:
        """The lanes of keyed state."""
        return [lane for lane in self.delivery.lanes.values() if lane.key.state]

    def lines(self) -> list[str]:
        """What was said, in short."""
        return [
            f"{m.revision} {m.stage}" if isinstance(m, Ack) else f"{m.revision} {m.reason}"
            for m in self.said
            if isinstance(m, Ack | Nack)
        ]


@asynccontextmanager
async def theatre(path: Path, *, keep: bool = False) -> AsyncIterator[Theatre]:
    """A theatre on a state directory; leaving it is a crash of all but the spool. `keep`: the scripts stay."""
    if not keep:
        DESTINATIONS.clear()
        SPRINGS.clear()
        GATE.clear()
        WORKSHOP.log.clear()
    for name in ("main", "other"):
        DESTINATIONS.setdefault(name, Destination())
    for name in ("in", "more"):
        SPRINGS.setdefault(name, Spring())
    async with open_spool(path, None) as spool, trio.open_nursery() as delivering, trio.open_nursery() as taking_in:
        stage = Theatre(spool, await spool.revisions.fingerprints(), taking_in, delivering)
        await stage.delivery.restore(await spool.revisions.lanes())
        await stage.rollout.restore()
        delivering.start_soon(stage.rollout.watch)
        delivering.start_soon(stage.orders.resume)
        delivering.start_soon(stage.requeuing.resume)
        delivering.start_soon(stage.forwarding.run)
        stage.settled.set()
        taking_in.start_soon(stage.rollout.run)
        try:
            yield stage
        finally:
            GATE.set()
            taking_in.cancel_scope.cancel("the test is over")
            delivering.cancel_scope.cancel("the test is over")


def policy(
    *,
    credential: str | None = None,
    flavour: str = "",
    at: str = "",
    inputs: str | None = None,
    more: str = "",
    type: str = "scripted",
    to: str = "main",
    index: str = "",
    output: str = "main",
) -> str:
    """A policy of one scripted input and one scripted output."""
    key = f", credential: {credential}" if credential else ""
    key += f", to: {to}" if to != "main" else ""
    key += f", index: {index}" if index else ""
    if inputs is None:
        inputs = f'inputs:\n  in: {{type: scripted, at: "{at}", flavour: "{flavour}"}}\n'
    return f"version: 1\n{inputs}outputs:\n  {output}: {{type: {type}{key}}}\n{more}"


def events(*numbers: int) -> Batch:
    return Batch.documents([b'{"n":%d}' % n for n in numbers])


@contextmanager
def slow_cut(on: Theatre) -> Iterator[tuple[trio.Event, trio.Event]]:
    """The cut is durable an instant before inputs are told: yields what says so, and what lets it go on."""
    cut = on.spool.revisions.cut
    is_cut, go_on = trio.Event(), trio.Event()

    async def slow(*args: Any) -> Any:
        result = await cut(*args)
        is_cut.set()
        await go_on.wait()
        return result

    on.spool.revisions.cut = slow  # type: ignore[method-assign]
    yield is_cut, go_on


async def active_again(on: Theatre) -> None:
    """k1, k2 and k1 again, with events of the first and of the third held on one lane, below and above its barrier."""
    script = DESTINATIONS["main"]
    script.send = script.raising(Held("401"))
    for number, credential in enumerate(("k1", "k2", "k1"), 1):
        await on.offer(number, policy(credential=credential), credential)
        await on.ack(number, "active")
        await SPRINGS["in"].until(lambda: bool(SPRINGS["in"].contexts))
        if number != 2:
            await SPRINGS["in"].context.emit(events(*range(number)))
