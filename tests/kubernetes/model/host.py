"""A host in memory: a real `Member`, its watches, and the agent and sidecar that it offers vectors to.

`perform` does one step. Everything that goes on beside it is a method of its own: a watch that shows its next change or
breaks off, an agent that reads what was offered, a sidecar that goes on by one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shipper.apiserver.objects import Event
from shipper.apiserver.reflection import Reflection
from shipper.kubernetes.kinds import MEMBER_LEASE
from shipper.kubernetes.member.machine import Member
from shipper.kubernetes.member.memory import Memory
from shipper.kubernetes.member.steps import (
    Adjust,
    Confirm,
    Create,
    Denied,
    Facts,
    Found,
    Hold,
    Judge,
    Judgement,
    Look,
    Offer,
    Reread,
    Save,
    SecretFound,
    Step,
    Terms,
    Vector,
    Write,
)
from shipper.membership.steps import Forget, Grant, Rest, Withdraw
from shipper.policy.registry import Registry
from tests.kubernetes.model.api import Api

REGISTRY = Registry.installed()
LEASE = 40.0


class Watch:
    """The changes of one kind, or of one object of it, as they were shown."""

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind, self.name = kind, name
        self.reflection = Reflection()
        self.at = -1
        """The version up to which it has shown changes; -1: it has not begun."""

    def next(self, api: Api) -> list[Event]:
        """Returns what the next change of the log, or the first list, shows."""
        if self.at < 0:
            return self.relist(api)
        for version, event in api.log.get(self.kind, ()):
            if version > self.at and self._is_mine(event):
                self.at = version
                return self.reflection.take(event)
        return []

    def relist(self, api: Api) -> list[Event]:
        """Returns what a list shows."""
        self.at = api.version
        items = [one for one in api.list(self.kind).items if not self.name or one["metadata"]["name"] == self.name]
        return self.reflection.relisted(items, str(api.version))

    def is_behind(self, api: Api) -> bool:
        return self.at < 0 or any(at > self.at and self._is_mine(event) for at, event in api.log.get(self.kind, ()))

    def _is_mine(self, event: Event) -> bool:
        return not self.name or event.object["metadata"]["name"] == self.name


class Agent:
    """The durable ledger of an agent, and its sidecar, which is as durable."""

    def __init__(self) -> None:
        self.offered: Vector | None = None
        self.vectors: list[Vector] = []
        """All that the sidecar has received."""
        self.stage = "drained"
        """Of the newest one."""
        self.using: set[str] = set()
        """Ids of the ledger that are not released."""
        self.withdrawn: set[str] = set()

    def adopt(self) -> Vector | None:
        """Reads what was offered; returns it if it is new."""
        new = self.offered
        if new is None or (self.vectors and self.vectors[-1].name == new.name):
            return None
        self.vectors.append(new)
        self.using |= set(new.contents)
        self.stage = "received"
        return new


class Host:
    """See the module."""

    def __init__(
        self,
        api: Api,
        name: str = "m",
        *,
        memory: Memory | None = None,
        agent: Agent | None = None,
        process: str = "p1",
        hold: bool = False,
        labels: dict[str, str] | None = None,
        judge: Callable[[Judge], Judgement] = lambda step: Judgement(),
    ) -> None:
        self.api, self.agent, self.judge = api, agent or Agent(), judge
        self.now = 100.0
        self.denied: set[str] = set()
        """The Secrets that may be watched, and not read."""
        self.durable = memory or Memory(directory=f"dir-{name}")
        terms = Terms(name, "boot", process, f"spare-{name}", LEASE, labels=labels or {}, hold=hold)
        self.member = Member(terms, self.durable, REGISTRY)
        self.own = Watch("member", name)
        self.policies = Watch("policy")
        self.secrets: dict[str, Watch] = {}
        self.steps: list[Step] = []
        self.lease: float | None = None
        self.agent.offered = self.member.running.kept or self.agent.offered

    @property
    def facts(self) -> Facts:
        return Facts(using=frozenset(self.agent.using))

    def step(self) -> Step:
        return self.member.next(self.now, self.facts)

    def beside(self) -> Step | None:
        return self.member.beside(self.now, self.facts)

    def perform(self, step: Step) -> None:
        """Does one step, and tells the outcome."""
        self.tell(step, self.request(step))

    def request(self, step: Step) -> Any:
        """Does what a step demands of the API server; returns the answer."""
        api, name = self.api, self.member.terms.name
        self.steps.append(step)
        match step:
            case Look():
                lease = api.get("lease", MEMBER_LEASE + name)
                return Found(api.get("member", name), lease)
            case Create(wanted):
                return api.create("member", wanted)
            case Adjust(patch):
                return api.patch("member", name, patch)
            case Hold(lease):
                return api.put("lease", lease) if "uid" in lease["metadata"] else api.create("lease", lease)
            case Write(patch):
                return api.patch("member", name, patch, status=True)
            case Reread(names):
                return api.list("policy"), {one: self.read(one) for one in names}
            case Confirm(names, policies):
                found = {one: api.get("policy", one) for one in policies}
                return {one: self.read(one) for one in names}, found
            case _:
                return None

    def read(self, name: str) -> SecretFound:
        """Reads a Secret, if there is a right to it."""
        return Denied("403 Forbidden") if name in self.denied else self.api.get("secret", name)

    def tell(self, step: Step, answer: Any) -> None:
        """Tells the member the outcome of a step."""
        member, now = self.member, self.now
        match step:
            case Look():
                member.looked(step, answer, now=now)
            case Save(memory):
                self.durable = memory
                member.saved(memory)
            case Create():
                member.created(answer, now=now)
            case Adjust():
                member.adjusted(answer, now=now)
            case Hold():
                member.held_lease(answer, began=now, now=now)
            case Write():
                member.wrote(step, answer, began=now, now=now)
            case Reread():
                member.reread(*answer, began=now, now=now)
            case Judge():
                member.running.judged(step, self.judge(step), now=now)
            case Confirm():
                member.running.confirmed(*answer)
            case Offer(vector):
                self.agent.offered = vector
                member.running.offered(vector)
            case Withdraw(ids):
                self.agent.withdrawn |= set(ids)
                member.running.withdrew(ids)
            case Forget(ids):
                member.running.forgot(ids)
            case Grant(until):
                self.lease = until
                member.granted(until)
            case Rest():
                pass

    # -- beside it -----------------------------------------------------------------------------------------------------

    def watches(self) -> list[Watch]:
        """Returns the watches that run now."""
        if not self.member.standing.follows:
            return []
        names = self.member.running.secrets
        for name in self.secrets.keys() ^ names:
            self.member.running.unwatched(name)
        self.secrets = {one: self.secrets.get(one) or Watch("secret", one) for one in names}
        return [self.own, self.policies, *(self.secrets[one] for one in sorted(names))]

    def show(self, watch: Watch, *, relist: bool = False) -> None:
        """A watch shows what is next, or lists all."""
        for event in watch.relist(self.api) if relist else watch.next(self.api):
            if watch.kind == "member":
                self.member.saw_own(event, now=self.now)
            elif watch.kind == "policy":
                self.member.running.saw_policy(event)
            else:
                self.member.running.saw_secret(watch.name, event)

    def go_on(self) -> bool:
        """The agent adopts what was offered, or the sidecar goes on by one stage; returns whether there was any."""
        agent = self.agent
        new = agent.adopt()
        if new is not None:
            self.member.running.answered(new.name, "received")
            return True
        if not agent.vectors or agent.stage == "drained":
            return False
        agent.stage = {"received": "active", "active": "drained"}[agent.stage]
        vector = agent.vectors[-1]
        if agent.stage == "drained":
            for id in sorted(agent.using - set(vector.contents) - agent.withdrawn):
                agent.using.discard(id)
                self.member.running.released(id)
        self.member.running.answered(vector.name, agent.stage)
        return True

    def answer_again(self) -> None:
        """A sidecar that is started again says what it has reached."""
        if self.agent.vectors:
            vector = self.agent.vectors[-1]
            self.member.running.answered(vector.name, self.agent.stage)

    # -- all at once ---------------------------------------------------------------------------------------------------

    def act(self, most: int = 200) -> list[Step]:
        """Performs steps until there is nothing to do now, without the watches and the sidecar; returns them."""
        done: list[Step] = []
        for _ in range(most):
            step = self.step()
            if isinstance(step, Rest):
                return done
            self.perform(step)
            done.append(step)
        raise AssertionError(f"no end: {done[-6:]}")

    def settle(self, most: int = 200) -> list[Step]:
        """Goes on until nothing more happens without a change from outside; returns the steps."""
        done: list[Step] = []
        for _ in range(most):
            steps = self.act()
            done += steps
            behind = [watch for watch in self.watches() if watch.is_behind(self.api)]
            for watch in behind:
                self.show(watch)
            if not self.go_on() and not steps and not behind:
                until = self.step()
                assert isinstance(until, Rest)
                if until.until is None or until.until > self.now + 2:
                    return done
                self.now = until.until
        raise AssertionError(f"no end: {done[-6:]}")
