"""What may happen in a state of a small world, and the state after it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shipper.pipeline.attempts.attempt import Trouble
from shipper.pipeline.delivery.machine import Machine
from shipper.plugin import Answer, Answers, Outcome
from shipper.plugin.state import Change
from shipper.sdk.codes import Code, Why
from shipper.sdk.errors import Later
from shipper.sdk.event import Batch
from shipper.sdk.feeding import Feeding
from shipper.spool import contact, dead_letters, drain_orders, forward, keyed, limits, queue, revisions
from shipper.spool.drain_orders import Order
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.limits import SpoolLimits
from shipper.spool.queue import Arrival, Packed
from shipper.spool.revisions import LaneKey, Text
from shipper.values import Revision
from tests.pipeline.exploration import earlier, pickled
from tests.pipeline.exploration.actor import FEEDING, SEALER, WAIT, Actor, Job, number, steady
from tests.pipeline.exploration.broken import Broken
from tests.pipeline.exploration.rows import Rows, Store

ORIGIN = bytes(16)
INPUT = "test/in"
LETTER_BYTES = 400
"""Of one dead letter, about; a store that is `full` takes one."""


class State(NamedTuple):
    """A state as a value."""

    rows: Rows
    rest: bytes


@dataclass
class Left:
    """What may still happen."""

    arrivals: int = 1
    """Batches of two log events."""
    changes: int = 0
    """Versions of one key."""
    answers: frozenset[str] = frozenset()
    """Kinds of bad answers."""
    faults: int = 0
    """Bad answers."""
    crashes: int = 0
    cuts: tuple[str, ...] = ()
    """Where the next revisions send: a credential and a destination, such as `bd`."""
    settings: int = 0
    """Changes of a setting of the active lane."""
    orders: tuple[str, ...] = ()
    holds: int = 0
    """Withdrawals of the first credential, and lapses of the lease."""


@dataclass
class World:
    """All but the rows. `bad` are events on which the output fails."""

    left: Left
    limits: dead_letters.Limits
    feeding: Feeding
    bad: frozenset[int] = frozenset()
    actors: dict[int, Actor] = field(default_factory=dict)
    at: int = 0
    way: str = "ad"
    told: Any = None
    """A cut that lanes have not been told of: the rows, and who retired."""
    changing: dict[int, int] | None = None
    """A version that is on its way into the spool: the newest slot that each lane had handed out."""
    withdrawn: frozenset[str] = frozenset()
    lapsed: bool = False
    order: Order | None = None
    """That is to be placed, or is durable."""
    entered: dict[int, int] = field(default_factory=dict)
    """By event, the revision under which it entered."""
    versions: list[int] = field(default_factory=list)
    """The versions of the key, oldest first, as numbers of events."""
    got: Counter[int] = field(default_factory=Counter)
    """By event, how often the destination has taken it."""
    lost: Counter[int] = field(default_factory=Counter)
    """By event, how often nobody heard what became of it."""
    refused: set[int] = field(default_factory=set)
    """Events that the destination has refused for good, or on which the output failed."""
    ended: bool = False
    """Whether an order has dropped events."""
    begins: str = ""
    """How it begins: at `earlier`, or with the first revision."""
    said: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By request that stays the same, its events when it was sent first."""
    wrong: str = ""
    """How one was sent otherwise later."""
    had: dict[int, str] = field(default_factory=dict)
    """By event, the request with which the destination took it, whoever heard that."""
    name: str = ""
    """The request that was sent last."""

    def sends(self, name: str, numbers: tuple[int, ...]) -> None:
        """A request is sent that must stay the same; an order may have taken events out of it."""
        self.name, first = name, self.said.setdefault(name, numbers)
        if numbers != (first if not self.ended else tuple(n for n in first if n in numbers)):
            self.wrong = f"{name} had {first}, then {numbers}"

    def takes(self, numbers: list[int]) -> None:
        """The destination takes events: those that are in a request with an id, once under that."""
        self.got.update(n for n in numbers if not self.name or self.had.get(n) != self.name)
        if self.name:
            self.had.update(dict.fromkeys(numbers, self.name))

    def actors_of(self, order: Order) -> list[Actor]:
        """The lanes of an order, so far as they are there."""
        return [actor for id, actor in self.actors.items() if id in (order.lane, order.target)]


class Stage:
    """Takes states, and gives back those that follow."""

    def __init__(self) -> None:
        self.store = Store()
        self.db = self.store.db
        self.world: World = World(Left(), dead_letters.Limits(), FEEDING)

    # -- states --------------------------------------------------------------------------------------------------------

    def start(self, world: World) -> State:
        """The first state: the first revision is active."""
        self.world = world
        if world.begins == "earlier":
            self.store.fill(earlier.fill)
            world.at, world.way = 2, "be"
            world.entered, world.versions, world.got = dict(earlier.ENTERED), [*earlier.VERSIONS], Counter(earlier.GOT)
            self._open_all()
        else:
            limits.store(self.db, SpoolLimits(world.limits, never_reached="hold"))
            self._cut(world.way)
            self._tell()
        return self.taken()

    def become(self, state: State) -> None:
        self.store.become(state.rows)
        self.world = pickled.loads(state.rest)

    def decide(self) -> None:
        """Each lane decides what is next."""
        for actor in self.world.actors.values():
            actor.decide()

    def taken(self) -> State:
        """The present state, in which each lane has decided what is next."""
        self.decide()
        return State(self.store.rows(), pickled.dumps(self.world))

    # -- what may happen -----------------------------------------------------------------------------------------------

    def acts(self) -> Iterator[str]:
        """Names what may happen now."""
        yield from self.inner()
        yield from self.answers()
        yield from self.outer()

    def inner(self) -> Iterator[str]:
        """What the process does by itself."""
        world = self.world
        if world.told is not None:
            yield "tell"
        if world.order is not None and self._is_quiet(world.order):
            yield "order"
        for id, actor in world.actors.items():
            yield from (f"{id}: {step}" for step in actor.steps())

    def answers(self) -> Iterator[str]:
        """What the destination says."""
        world = self.world
        for id, actor in world.actors.items():
            if actor.is_cut:
                continue
            for at, job in enumerate(actor.jobs):
                if job.stage != "asked":
                    continue
                numbers = self._asked(job)
                if world.bad.isdisjoint(numbers):
                    yield f"{id}> {at} takes"
                    if world.left.faults:
                        kinds = world.left.answers - {"too large"} if world.had.keys() & numbers else world.left.answers
                        yield from (f"{id}> {at} {kind}" for kind in sorted(kinds) if _fits(kind, numbers))
                else:
                    yield f"{id}> {at} breaks"

    def outer(self) -> Iterator[str]:
        """What people, inputs and the machine do."""
        world, left = self.world, self.world.left
        if left.arrivals:
            yield "arrive"
        if world.changing is not None:
            yield "keep"
        elif left.changes:
            yield "change"
        if left.crashes:
            yield "crash"
        if left.cuts and world.told is None:
            yield "cut"
        if left.settings:
            yield "settings"
        if left.orders and world.order is None and self._drains():
            yield "give order"
        if left.holds:
            yield "lapse"
            yield "withdraw"
        if world.lapsed:
            yield "renew"
        if world.withdrawn:
            yield "supply"
        if self._waits() < math.inf:
            yield "time"

    def _waits(self) -> float:
        return min((actor.until() for actor in self.world.actors.values()), default=math.inf)

    def _drains(self) -> bool:
        return self.db.execute("SELECT 1 FROM barrier LIMIT 1").fetchone() is not None

    def _asked(self, job: Job) -> list[int]:
        piece = job.attempt[0].next_piece()
        return [] if piece is None else [number(event) for event in piece[1].own()]

    # -- what it does --------------------------------------------------------------------------------------------------

    def do(self, act: str) -> None:
        """Has something happen."""
        world = self.world
        id, mark, what = act.partition(": ")
        if mark:
            actor = world.actors[int(id)]
            actor.do(what, self.db, self.hold(actor))
            if actor.machine.is_gone:
                del world.actors[actor.id]
            return
        id, mark, what = act.partition("> ")
        if mark:
            at, _, kind = what.partition(" ")
            self._answer(world.actors[int(id)], int(at), kind)
            return
        _OUTER[act](self)

    def hold(self, actor: Actor) -> Why | None:
        if not self.world.withdrawn.isdisjoint(actor.key.credentials):
            return Why("withdrawn", Code.CREDENTIAL_WITHDRAWN)
        return Why("lapsed", Code.LEASE_LAPSED) if self.world.lapsed else None

    def _answer(self, actor: Actor, at: int, kind: str) -> None:
        job, world = actor.jobs[at], self.world
        contact.note(self.db, actor.id)
        if kind not in ("takes", "breaks"):
            world.left.faults -= 1

        def say(job: Job, positions: Any, events: Batch) -> None:
            numbers = [number(event) for event in events.own()]
            attempt = job.attempt[0]
            if attempt.stable is not None:
                world.sends(attempt.stable.name(positions) or "", tuple(numbers))
            match kind:
                case "takes":
                    world.takes(numbers)
                    attempt.answered(positions, Answers(len(numbers)))
                case "refused":
                    attempt.failed(Trouble("401", held=True))
                case "down":
                    attempt.put_off(Later("503"))
                case "busy":
                    attempt.put_off(Later("429", retry_after=2 * WAIT))
                case "silent":  # the destination has it, and nobody hears that
                    world.takes(numbers)
                    world.lost.update(numbers)
                    attempt.put_off(Later("no answer"))
                case "too large":
                    if len(numbers) == 1:
                        world.refused.update(numbers)
                    attempt.too_large(positions, "413")
                case "breaks":
                    self._break(actor, job, positions)
                case _:
                    self._some(kind, job, positions, numbers)

        actor.answer(job, say)

    def _break(self, actor: Actor, job: Job, positions: Any) -> None:
        """As `sending` does with an error outside of the contract."""
        attempt, session = job.attempt[0], actor.machine.session
        assert session is not None
        session.is_client_suspect = True
        if job.request.goes_in_halves:
            if len(positions) == 1:
                self.world.refused.update(self._asked(job))
            attempt.broke(positions, "a bug", works_otherwise=job.works)
        else:
            attempt.failed(Trouble("a bug"))
            attempt.doubt = attempt.trouble

    def _some(self, kind: str, job: Job, positions: Any, numbers: list[int]) -> None:
        """Answers for single events."""
        others = {
            "first later": {0: Answer(Outcome.LATER, "429")},
            "first rejected": {0: Answer(Outcome.REJECTED, "400")},
            "first held": {0: Answer(Outcome.HELD, "403")},
            "odd held": {at: Answer(Outcome.HELD, "403 odd", of_target=True) for at, n in enumerate(numbers) if n % 2},
        }[kind]
        self.world.takes([n for at, n in enumerate(numbers) if at not in others])
        if kind == "first rejected":
            self.world.refused.add(numbers[0])
        job.attempt[0].answered(positions, Answers(len(numbers), dict(others)))

    # -- the outside ---------------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        world = self.world
        world.left.arrivals -= 1
        first = len(world.entered)
        numbers = [first, first + 1]
        batch = Batch.documents([b'{"n":%d}' % n for n in numbers])
        lane = self._active(state=False)
        arrival = Arrival(Revision(0, world.at), INPUT, [lane], [Packed(2, batch.pack())])
        (stored,) = queue.enter(self.db, SEALER, ORIGIN, 0.0, arrival)
        world.entered.update(dict.fromkeys(numbers, world.at))
        if (actor := world.actors.get(lane)) is not None:
            if actor.machine.session is not None:
                actor.machine.session.feed.arrived(stored.entry(arrival.revision))
            actor.news = True

    def _change(self) -> None:
        """A version is on its way into the spool, with what its lane had handed out by then."""
        self.world.left.changes -= 1
        lane = self._active(state=True)
        actor = self.world.actors.get(lane)
        self.world.changing = {} if actor is None else {lane: actor.machine.backlog.front}

    def _keep(self) -> None:
        world = self.world
        n, lane = len(world.entered), self._active(state=True)
        fronts, world.changing = world.changing, None
        assert fronts is not None
        changes = [Change("c", "k", b'{"n":%d}' % n)]
        arrival = keyed.Arrival(Revision(0, world.at), INPUT, [lane], changes, fronts=fronts)
        admitted = keyed.keep(self.db, SEALER, 0.0, arrival)
        world.entered[n] = world.at
        world.versions.append(n)
        for id in {moved.lane for moved in admitted.moved} & world.actors.keys():
            self._look(world.actors[id])

    def _look(self, actor: Actor) -> None:
        if not self.db.execute("SELECT 1 FROM todo WHERE lane = ? AND count", (actor.id,)).fetchone():
            actor.machine.waits.end()
        if actor.machine.session is not None:
            actor.machine.session.feed.look()
        actor.news = True

    def _active(self, *, state: bool) -> int:
        (lane,) = self.db.execute("SELECT id FROM lane WHERE active AND (pair != 0) = ?", (state,)).fetchone()
        return int(lane)

    def _cut(self, way: str) -> None:
        """Makes the next revision active, in the spool."""
        world = self.world
        world.at += 1
        world.way = way
        at, (credential, place) = Revision(0, world.at), way
        text = Text(at, "", str(at), "barrier", [credential], "")
        revisions.receive(self.db, SEALER, text, {credential: b""})
        key = LaneKey("main", "scripted", place, (credential,))
        settings = LaneSettings({"credential": credential}, (("credential",),))
        has_state = bool(world.left.changes or world.versions)
        wanted = [(key._replace(state=each), settings) for each in (False, True)[: 1 + has_state]]
        state = [keyed_route()] if has_state else []
        world.told = revisions.cut(self.db, SEALER, at, wanted, {"main": (place,)}, state, 0.0)

    def _tell(self) -> None:
        """Tells the lanes of the cut, as `Delivery.take_over` does."""
        world = self.world
        cut, world.told = world.told, None
        for row in cut.lanes:
            if row.id in world.actors:
                self._adopt(world.actors[row.id], active=True)
            else:
                self._open(row.id, row.key, active=True)
        for id in cut.retired:
            if id in world.actors:
                self._adopt(world.actors[id], active=False)

    def _open(self, id: int, key: LaneKey, *, active: bool) -> None:
        machine = Machine(self.world.feeding, steady, active=active)
        self.world.actors[id] = Actor(id, key, machine, self.world.limits)

    def _adopt(self, actor: Actor, *, active: bool) -> None:
        actor.machine.active = active
        if actor.machine.session is not None:
            actor.machine.session.feed.look()
        actor.news = True

    def _change_settings(self) -> None:
        self.world.left.settings -= 1
        lane = self._active(state=False)
        if (actor := self.world.actors.get(lane)) is not None:
            if actor.machine.session is not None:
                actor.machine.session.end()
            actor.machine.adopt(self.world.feeding)
            actor.news = True

    def _next_cut(self) -> None:
        way, *rest = self.world.left.cuts
        self.world.left.cuts = tuple(rest)
        self._cut(way)

    def _crash(self) -> None:
        """The process ends at once, and another one begins with what is durable."""
        world = self.world
        world.left.crashes -= 1
        for actor in world.actors.values():
            for job in actor.jobs:
                for attempt, _ in job.request.attempts:
                    world.lost.update(number(event) for event in attempt.batch.own())
                if job.stage == "note":
                    world.lost.update(world.got.keys())
        world.actors.clear()
        world.told = world.changing = None
        self._open_all()
        (world.order,) = drain_orders.standing(self.db) or [None]
        if world.order is not None:
            self._quieten(world.order)

    def _open_all(self) -> None:
        for row in revisions.lanes(self.db, SEALER):
            self._open(row.id, row.key, active=row.active)

    # -- orders --------------------------------------------------------------------------------------------------------

    def _give_order(self) -> None:
        name, *rest = self.world.left.orders
        self.world.left.orders = tuple(rest)
        lane, upto = self.db.execute("SELECT lane, max(seq) FROM barrier GROUP BY lane ORDER BY lane").fetchone()
        self.world.order = Order(name, lane, upto)  # type: ignore[arg-type]
        self._quieten(self.world.order)

    def _quieten(self, order: Order) -> None:
        for actor in self.world.actors_of(order):
            actor.machine.quiets += 1
            actor.cut_off()

    def _is_quiet(self, order: Order) -> bool:
        return all(actor.idle for actor in self.world.actors_of(order))

    def _carry_out(self) -> None:
        """Places the order, or does its next step."""
        world, order = self.world, self.world.order
        assert order is not None
        if not order.id:
            self._place(order)
            return
        if any(actor.is_open for actor in world.actors_of(order)):
            raise Broken("B10: a lane sends while an order runs")
        step = drain_orders.step(self.db, SEALER, order, world.limits, 0.0)
        world.ended |= step.ended > 0
        if step.done:
            world.order = None
            self._release(order)

    def _place(self, order: Order) -> None:
        world = self.world
        before = self.world.actors_of(order)
        try:
            match order.name:
                case "forward":
                    world.order = forward.place_forward(self.db, order.lane)
                case "rebind":
                    rows = revisions.lanes(self.db, SEALER)
                    (old,) = next(row.key.credentials for row in rows if row.id == order.lane)
                    new = world.way[0]
                    if old == new:
                        raise forward.NotForwarded
                    world.order, row = drain_orders.place_rebind(self.db, SEALER, order.lane, order.upto, old, new)
                case _:
                    world.order = drain_orders.place(self.db, order)
        except (forward.NotForwarded, drain_orders.Gone, StopIteration):
            world.order = None
            self._release(order)
            return
        target = world.order.target
        if target is not None and target not in world.actors:
            row = next(row for row in revisions.lanes(self.db, SEALER) if row.id == target)
            self._open(row.id, row.key, active=row.active)
        for actor in self.world.actors_of(world.order):
            if actor not in before:
                actor.machine.quiets += 1
                actor.cut_off()

    def _release(self, order: Order) -> None:
        for actor in self.world.actors_of(order):
            actor.machine.quiets -= 1
            actor.machine.anew()
            actor.machine.failing = None
            actor.news = True

    # -- holds, time ---------------------------------------------------------------------------------------------------

    def _lapse(self) -> None:
        self.world.left.holds -= 1
        self.world.lapsed = True
        for actor in self.world.actors.values():
            actor.cut_off()

    def _renew(self) -> None:
        self.world.lapsed = False
        for actor in self.world.actors.values():
            if actor.machine.session is not None:
                actor.machine.session.feed.look()
            actor.news = True

    def _withdraw(self) -> None:
        self.world.left.holds -= 1
        self.world.withdrawn = frozenset("a")
        for actor in self.world.actors.values():
            if "a" in actor.key.credentials:
                actor.cut_off()

    def _supply(self) -> None:
        self.world.withdrawn = frozenset()
        for actor in self.world.actors.values():
            if "a" in actor.key.credentials:
                actor.machine.poke()
                if actor.machine.session is not None:
                    actor.machine.session.feed.look()
                actor.news = True

    def _time(self) -> None:
        seconds = self._waits()
        for actor in self.world.actors.values():
            actor.pass_time(seconds)


def _fits(kind: str, numbers: list[int]) -> bool:
    return kind != "odd held" or any(n % 2 for n in numbers)


def keyed_route() -> Any:
    from shipper.spool.feeding import Route

    return Route(INPUT, ["main"])


_OUTER: dict[str, Callable[[Stage], None]] = {
    "tell": Stage._tell,
    "order": Stage._carry_out,
    "arrive": Stage._arrive,
    "change": Stage._change,
    "keep": Stage._keep,
    "crash": Stage._crash,
    "cut": Stage._next_cut,
    "settings": Stage._change_settings,
    "give order": Stage._give_order,
    "lapse": Stage._lapse,
    "renew": Stage._renew,
    "withdraw": Stage._withdraw,
    "supply": Stage._supply,
    "time": Stage._time,
}
