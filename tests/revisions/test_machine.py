"""The machine of revisions, over the real transactions, in any order that tasks and a slow disk may give its steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.pipeline.plan import Location, OutputPlan, Plan, Reference, digest
from shipper.revisions import effects
from shipper.revisions.effects import Effect, Lasting, Say, Steps
from shipper.revisions.machine import Machine
from shipper.revisions.offer import Candidate, Offer
from shipper.revisions.statements import Active, Received, Refused, Released
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import CredentialError, PolicyError, Problem, StartFailed
from shipper.spool import credentials, revisions
from shipper.spool.lane_settings import LaneSettings
from shipper.spool.parts.revisions import Standing
from shipper.values import Receipt, Revision
from tests.examples import examples
from tests.spool.test_spool_revisions import key, new_db, new_sealer

SECRETS = {f"k{number}": Credential.parse({"api_key": f"k{number}:secret"}) for number in range(4)}
FLAWS = ("", "", "", "", "", "invalid", "fails", "lacks")
MOST_STEPS = 10_000


def standing(db: sqlite3.Connection, still_used: Collection[str], since: Revision | None) -> Standing:
    return Standing(revisions.stored(db, since), revisions.stages(db), credentials.in_use(db, still_used))


@dataclass
class Closing:
    """An input that was replaced."""

    at: Revision
    credentials: Collection[str]
    is_closed: bool = False


@dataclass(eq=False, repr=False)
class Task:
    """Steps that run; each turn does its next effect, or goes on with the answer."""

    kind: str
    stack: list[Steps[Any]]
    candidate: Candidate | None = None
    effect: Effect | None = None
    answer: Any = None
    is_answered: bool = True
    is_given_up: bool = False


@dataclass(frozen=True)
class Text:
    """What a policy of the test says; its text is this, as it is shown."""

    output: str
    input: str
    flaw: str

    def plan(self, at: Revision) -> Plan:
        place = Location("outputs.main", 1, 1)
        references = tuple(Reference(id, "output", (), place) for id in (self.output, self.input))
        outputs = {"main": OutputPlan(None, (key("main", self.output),), LaneSettings({}, ()))}  # type: ignore[arg-type]
        return Plan(at, repr(self), digest(repr(self)), repr(self), None, {}, outputs, references)  # type: ignore[arg-type]


@dataclass(repr=False)
class World:
    """One state directory, and the process that has it: tasks, a lock, inputs that close, and a judge."""

    draw: Any
    db: Any = field(default_factory=new_db)
    sealer: Any = field(default_factory=new_sealer)
    machine: Machine = field(default_factory=Machine)
    tasks: list[Task] = field(default_factory=list)
    in_order: Task | None = None
    closing: list[Closing] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    texts: dict[Revision, Text] = field(default_factory=dict)
    open: list[Candidate] = field(default_factory=list)
    """On their way, with no end yet."""
    ended: set[Revision] = field(default_factory=set)
    arriving: frozenset[str] = frozenset()
    settled: bool = True
    number: int = 0
    said: list[Any] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    received: set[Revision] = field(default_factory=set)

    # -- what happens --------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One thing that can happen now."""
        choices = self.ready() * 3 + self.events()
        self.draw(st.sampled_from(choices))()

    def ready(self) -> list[Any]:
        self.start()
        return [lambda task=task: self.go_on(task) for task in self.tasks if self.may_go_on(task)]

    def events(self) -> list[Any]:
        happens: list[Any] = [self.withdraw, self.supply]
        if self.draw(st.sampled_from(range(8))) == 0:
            happens.append(self.crash)
        if not any(task.kind == "offer" for task in self.tasks):
            happens += [self.offer] * 4
        happens += [self.settle_lane, self.close] * 2
        if not any(task.kind == "release" for task in self.tasks):
            happens.append(lambda: self.begin("release", self.machine.release(["k0"])))
        if self.unread:
            happens.append(lambda: self.machine.delivered(self.unread.pop(0)))
        return happens

    def start(self) -> None:
        """Tasks that wait for something to do."""
        kinds = {task.kind for task in self.tasks}
        if self.machine.next is not None and "run" not in kinds:
            self.begin("run", self.machine.bring_up(self.machine.next), self.machine.next)
        if self.settled and "watch" not in kinds:
            self.settled = False
            self.begin("watch", self.machine.settle())

    def begin(self, kind: str, steps: Steps[Any], candidate: Candidate | None = None) -> None:
        task = Task(kind, [steps], candidate)
        self.tasks.append(task)
        self.advance(task)

    def offer(self) -> None:
        active = self.machine.stages.active
        known = sorted(self.texts)[-3:] + ([] if active is None else [active])
        at = Revision(0, len(self.texts) + 1)
        if known and self.draw(st.booleans()):
            at = self.draw(st.sampled_from(known))
        ids = st.sampled_from(sorted(SECRETS))
        text = self.texts.setdefault(at, Text(self.draw(ids), self.draw(ids), self.draw(st.sampled_from(FLAWS))))
        carried = {id: SECRETS[id] for id in (text.output, text.input)}
        self.arriving = frozenset(carried)
        self.begin("offer", self.machine.offered(Offer(at, repr(text), carried)))

    def withdraw(self) -> None:
        ids = set(self.machine.in_use[:1])
        self.machine.check_known(ids)
        self.at_once(self.machine.withdrawn(ids))

    def supply(self) -> None:
        self.at_once(self.machine.supplied({id: SECRETS[id] for id in self.machine.in_use[:1]}))

    def settle_lane(self) -> None:
        for (lane,) in self.db.execute("SELECT lane FROM barrier LIMIT 1").fetchall():
            self.settled |= revisions.settle_reached(self.db, lane)

    def close(self) -> None:
        for closing in [one for one in self.closing if not one.is_closed][:1]:
            closing.is_closed = self.settled = True

    def crash(self) -> None:
        """Another process goes on with what is durable."""
        for steps in [steps for task in self.tasks for steps in reversed(task.stack)]:
            steps.close()
        self.machine, self.tasks, self.in_order = Machine(), [], None
        self.closing, self.held, self.open, self.ended, self.said, self.unread = [], set(), [], set(), [], []
        self.number, self.settled, self.arriving = 0, True, frozenset()
        self.at_once(self.machine.look())
        self.received = set(self.machine.known)

    def finish(self) -> None:
        """All that is under way ends, all inputs close, every lane delivers."""
        for _ in range(MOST_STEPS):
            ready = self.ready()
            if ready:
                ready[0]()
            elif any(not one.is_closed for one in self.closing):
                self.close()
            elif self.db.execute("SELECT 1 FROM barrier").fetchone():
                self.settle_lane()
            else:
                return
        raise AssertionError("it never ends")

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def may_go_on(self, task: Task) -> bool:
        waits = isinstance(task.effect, effects.InOrder) and not task.is_answered
        return not waits or self.in_order is None

    def go_on(self, task: Task) -> None:
        """Do the effect that a task has come to, or go on with its answer to the next one that takes its time."""
        if task.is_answered:
            self.advance(task)
        elif isinstance(task.effect, effects.InOrder):
            self.in_order, task.is_answered, task.answer = task, True, None
            task.stack.append(task.effect.steps)
        elif task.is_given_up and self.in_order is not task:
            self.end(task)
        else:
            task.answer, task.is_answered = self.do(task.effect), True

    def advance(self, task: Task) -> None:
        while True:
            steps, answer = task.stack[-1], task.answer
            try:
                task.effect = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
            except StopIteration:
                task.stack.pop()
                task.answer = None
                if not task.stack or (task.is_given_up and len(task.stack) == 1):
                    self.end(task)
                    return
                self.in_order = None
                continue
            if isinstance(task.effect, get_args(Lasting)):
                task.is_answered = False
                return
            task.answer = self.do(task.effect, task)

    def end(self, task: Task) -> None:
        for steps in reversed(task.stack):
            steps.close()
        self.tasks.remove(task)
        if self.in_order is task:
            self.in_order = None
        if task.candidate is not None:
            self.at_once(self.machine.ended(task.candidate))
        if task.kind == "offer":
            self.arriving = frozenset()

    def at_once(self, steps: Steps[Any]) -> None:
        answer = None
        while True:
            try:
                answer = self.do(steps.send(answer))
            except StopIteration:
                return

    # -- effects -------------------------------------------------------------------------------------------------------

    def do(self, effect: Any, task: Task | None = None) -> Any:
        """Its answer, or the error that it raises."""
        db = self.db
        match effect:
            case effects.Read(offer, plan):
                text = self.texts[offer.at]
                if text.flaw == "invalid":
                    return PolicyError([Problem("", 1, 1, "no policy")])
                return plan or text.plan(offer.at), offer.credentials
            case effects.Check(plan, offered):
                lacks = plan.credentials.keys() - offered.keys() - self.held
                if lacks or self.texts[plan.at].flaw == "lacks":
                    return CredentialError("credential_missing", "it did not come")
            case effects.Look(still_used, since):
                return standing(db, still_used, since)
            case effects.Store(candidate, active, skipped):
                lanes = [row.key for row in revisions.lanes(db, self.sealer) if row.active]
                change = candidate.plan.change(None if active is None else active.meaning, lanes)
                marks = dict.fromkeys(candidate.offered, b"mark")
                texts = [old.plan.stored("none") for old in skipped]
                return change, revisions.receive(db, self.sealer, candidate.plan.stored(change), marks, texts)
            case effects.Open(plan):
                return StartFailed("a port is taken") if self.texts[plan.at].flaw == "fails" else {}
            case effects.Cut(plan, resumes):
                wanted = [(key, output.settings) for output in plan.outputs.values() for key in output.keys]
                return None if resumes else revisions.cut(db, self.sealer, plan.at, wanted)
            case effects.Switch(plan, before):
                return self.switch(plan, before)
            case effects.ForgetRevision(at):
                revisions.forget(db, at)
            case effects.ForgetCredentials(ids, still_used):
                return credentials.forget(db, ids, still_used)
            case effects.Advance(closing, still_used, before, since):
                receipt = revisions.drained(db, closing, still_used, before)
                if receipt is None:
                    free = credentials.release(db, still_used)
                else:
                    free = credentials.unlisted(db, receipt.credentials.in_use)
                return receipt, free, standing(db, still_used, since)
            case effects.Release(still_used):
                return credentials.release(db, still_used)
            case effects.Keep(offered, withdrawn):
                self.held |= offered.keys() - withdrawn
            case effects.Withdraw(ids):
                self.held -= set(ids)
                runs = self.machine.plan
                used = set() if runs is None else {self.texts[runs.at].input} & set(ids)
                return self.closes(self.machine.stages.active, used) if used else []
            case effects.Forget(ids):
                self.held -= set(ids)
                self.judge_free(ids)
            case effects.Start():
                self.open += [one for one in self.machine.pending if one not in self.open]
            case effects.GiveUp(candidate):
                for other in self.tasks:
                    other.is_given_up |= other.candidate is candidate
            case effects.Activated():
                self.settled = True
            case Say(number, statement):
                self.judge(number, statement, task)
            case _:
                assert isinstance(effect, effects.Changed | effects.Close | effects.Settle)
        return None

    def switch(self, plan: Plan, before: Plan | None) -> list[Closing]:
        replaced = [] if before is None else {self.texts[before.at].input} - {self.texts[plan.at].input}
        return self.closes(plan.at, replaced) if replaced else []

    def closes(self, at: Revision | None, ids: Collection[str]) -> list[Closing]:
        self.closing += [Closing(at, tuple(ids))] if at is not None else []
        return self.closing[-1:]

    # -- the judge -----------------------------------------------------------------------------------------------------

    def judge(self, number: int, statement: Any, task: Task | None) -> None:
        assert number > self.number
        self.number = number
        self.unread.append(number)
        self.said.append(statement)
        match statement:
            case Received(at):
                self.judge_order(statement)
                self.received.add(at)
            case Active(at):
                self.judge_order(statement)
                assert at in self.received
                assert self.machine.stages.active is not None
                assert at == self.machine.stages.active
                self.judge_end(at, task)
            case Receipt():
                self.judge_order(statement)
                self.judge_drained(at_of(statement))
                self.judge_end(at_of(statement), task)
                if task is not None and task.kind == "watch":
                    self.judge_free(statement.credentials.released, may_cross=True)
            case Released(ids):
                self.judge_free(ids)
            case Refused(at):
                self.judge_end(at, task)
                self.judge_free(statement.released, refused=at if task is not None and task.kind == "offer" else None)

    def judge_order(self, statement: Any) -> None:
        before = [at_of(one) for one in self.said[:-1] if type(one) is type(statement)]
        assert before == [] or max(before) <= at_of(statement)

    def judge_end(self, at: Revision, task: Task | None) -> None:
        """What is on its way ends once; an answer to an offer is no end."""
        if task is None or task.kind in ("offer", "watch"):
            return
        mine = [one for one in self.open if one.plan.at == at]
        if mine:
            self.open.remove(mine[0])
        else:
            assert at not in {one.plan.at for one in self.machine.spent}
            assert isinstance(self.said[-1], Refused)
            assert self.said[-1].reason == "superseded"
            assert at not in self.ended
        self.ended.add(at)

    def judge_drained(self, at: Revision) -> None:
        assert self.db.execute("SELECT count(*) FROM barrier WHERE (epoch, revision) <= (?, ?)", at).fetchone() == (0,)

    def judge_free(self, ids: Collection[str], *, refused: Revision | None = None, may_cross: bool = False) -> None:
        """Nothing refers to these ids: no lane, not what runs, no input that closes, nothing on its way.

        A durable receipt may cross an offer that names an id again: supervisors look for that, and the secret is kept.
        """
        needed = set(credentials.in_use(self.db))
        needed |= {id for one in self.closing if not one.is_closed for id in one.credentials}
        needed |= set() if self.machine.plan is None else self.machine.plan.credentials.keys()
        if not may_cross:
            needed |= {id for one in self.machine.pending for id in one.plan.credentials}
            needed |= self.arriving if refused is None else set()
        assert needed.isdisjoint(ids)


def at_of(statement: Any) -> Revision:
    return Revision(statement.epoch, statement.revision) if isinstance(statement, Receipt) else statement.at


@settings(max_examples=examples(1))
@given(data=st.data(), turns=st.integers(20, 150))
def test_in_any_order_of_steps_each_offer_ends_once_and_nothing_that_is_used_is_released(
    data: st.DataObject, turns: int
) -> None:
    world = World(data.draw)
    world.at_once(world.machine.look())
    for _ in range(turns):
        world.turn()
    world.finish()

    assert world.tasks == []
    assert world.open == []
    assert (world.machine.pending, world.machine.spent) == ([], [])
    assert world.machine.stages.drained == world.machine.stages.active
