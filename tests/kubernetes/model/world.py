"""A namespace in which everything may happen in any order: real members, the real rule of release, and people.

A world is changed in place; `Exploration` copies it before. `actions` are what may happen next. Requests to the API
server and their answers are apart, so that anything may come between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import msgspec

from shipper.apiserver.objects import Object
from shipper.kubernetes.kinds import MEMBER_LEASE, RELEASED, PolicyStatus, SecretStatus, Using
from shipper.kubernetes.member.contents import Contents
from shipper.kubernetes.member.introducing import Introducing
from shipper.kubernetes.member.memory import Content, Memory, Part
from shipper.kubernetes.member.own import status_of
from shipper.kubernetes.member.pace import Pace
from shipper.kubernetes.member.policies import Known
from shipper.kubernetes.member.running import Running
from shipper.kubernetes.member.secrets import Secrets
from shipper.kubernetes.member.steps import Adjust, Confirm, Create, Hold, Look, Offer, Reread, Step, Vector, Write
from shipper.kubernetes.member.using import Usage
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.judge import judge
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.release import Secret, View, registering, release
from shipper.membership.steps import Rest
from tests.kubernetes.model.api import Api
from tests.kubernetes.model.cloning import clone, mutable
from tests.kubernetes.model.host import Agent, Host, Watch
from tests.kubernetes.objects import policy, rotated, secret

REMOTE = (Look, Create, Adjust, Hold, Write, Reread, Confirm)
NOW = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Budget:
    """How often each thing may happen."""

    contents: tuple[str, ...] = ()
    """Of the Secret, one after the other."""
    edits: int = 0
    relabels: int = 0
    crashes: int = 0
    lost: int = 0
    """Answers that do not come: the request was done."""
    lapses: int = 0
    joins: int = 0
    """Changes of the labels of the first member, which select it, and then no more."""
    gaps: int = 0
    backups: int = 0
    denials: int = 0
    """How often the right to read the Secret goes; it may come back at any time, and does in the end."""


class Unpaced(Pace):
    """Writes at once: a pace only delays."""

    def next_at(self, now: float) -> float:
        return now


class Leader:
    """Reads the Secret, the members, and their Leases, in this order; then it decides, and writes."""

    def __init__(self) -> None:
        self.phase = "idle"
        self.secret: Secret | None = None
        self.policy: Object | None = None
        self.members: tuple[Object, ...] = ()
        self.status = SecretStatus()
        self.drained: PolicyStatus = PolicyStatus()


class World:
    """See the module."""

    def __init__(
        self,
        hosts: Callable[[Api], list[Host]],
        budget: Budget,
        without: frozenset[str] = frozenset(),
        *,
        quick: frozenset[str] = frozenset(),
        registered: bool = False,
        key: str = "k",
    ) -> None:
        """`without` are names of rules that are left out; watches of `quick` kinds are never late; `registered`
        members have their status in the API server from the start; the policy uses this `key` of the Secret."""
        self.api = Api()
        self.budget = budget
        self.without, self.quick = without, quick
        self.content_log: list[tuple[int, str]] = []
        """The Secret's contents, by the version since which each is current."""
        self.set_content(budget.contents[0] if budget.contents else "id:one", first=True)
        self.api.create("policy", policy("web", secret="es" if key else "", members={"matchLabels": {"app": "web"}}))
        self.budget = replace(budget, contents=budget.contents[1:])
        self.hosts = hosts(self.api)
        self.flying: dict[int, tuple[Step, Any]] = {}
        """Answers on their way, by host."""
        self.absent: set[str] = set()
        self.saved: dict[int, tuple[Memory, Agent]] = {}
        self.leader = Leader()
        self.broken = ""
        self.asleep: frozenset[int] = frozenset()
        """Hosts that do nothing before the end."""
        for host in self.hosts:
            self._prepare(host)
            while registered and not host.member.standing.follows:
                host.perform(host.step())
        self.hurry()

    def _prepare(self, host: Host) -> None:
        host.member._reporting.pace = Unpaced()
        for rule in self.without:
            _mutate(host, MUTANTS[rule])

    def copy(self) -> World:
        """Returns a world that goes on by itself."""
        new: World = clone(self, {})
        return new

    # -- what may happen -----------------------------------------------------------------------------------------------

    def actions(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        """Yields what may happen next, in words."""
        for at, host in enumerate(self.hosts):
            if at not in self.asleep:
                yield from self._of_host(at, host)
        yield from self._of_people()
        yield from self._of_leader()

    def hurry(self) -> None:
        """Shows what is never late."""
        for at, host in enumerate(self.hosts):
            for number, watch in enumerate(host.watches()):
                while watch.kind in self.quick and watch.is_behind(self.api):
                    self.show(at, number)

    def _of_host(self, at: int, host: Host) -> Iterator[tuple[str, Callable[[World], None]]]:
        name = host.member.terms.name
        if at in self.flying:
            yield f"{name} gets its answer", lambda world: world.land(at)
            if self.budget.lost:
                yield f"{name} loses its answer", lambda world: world.lose(at)
            if isinstance(self.flying[at][0], Write | Hold) and (step := host.beside()) is not None:
                yield f"{name} does {type(step).__name__} beside", lambda world: world.act_beside(at)
        else:
            step = host.step()
            if not isinstance(step, Rest):
                yield f"{name} does {type(step).__name__}", lambda world: world.act(at)
        for number, watch in enumerate(host.watches()):
            if watch.is_behind(self.api):
                yield f"{name} sees a {watch.kind}", lambda world, number=number: world.show(at, number)
                if self.budget.gaps and watch.at >= 0:
                    yield f"{name} lists each {watch.kind}", lambda world, number=number: world.gap(at, number)
        agent = host.agent
        is_new = agent.offered is not None and (not agent.vectors or agent.vectors[-1].name != agent.offered.name)
        if is_new or (agent.vectors and agent.stage != "drained"):
            yield f"the sidecar of {name} goes on", lambda world: world.go_on(at)
        if self.budget.crashes:
            yield f"{name} crashes", lambda world: world.crash(at)
        if self.budget.lapses and host.member.fencing.renewed is not None:
            yield f"the Lease of {name} is over", lambda world: world.lapse(at)
        if self.budget.backups and at not in self.saved:
            yield f"the directory of {name} is copied", lambda world: world.backup(at)
        if self.budget.backups and at in self.saved:
            yield f"the copy of {name} is put back", lambda world: world.put_back(at)

    def _of_people(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        if self.budget.contents:
            yield f"the Secret becomes {self.budget.contents[0]}", World.rotate
        if self.budget.edits:
            yield "the policy is edited", World.edit
        if self.budget.relabels:
            yield "the Secret gets another label", World.relabel
        if self.budget.denials and not self.hosts[0].denied:
            yield "the Secret may not be read", World.deny
        if self.hosts[0].denied:
            yield "the Secret may be read again", World.permit
        if self.budget.joins and self.api.get("member", self.hosts[0].member.terms.name):
            yield "the labels of a member change", World.join

    def _of_leader(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        names = {
            "idle": "the leader reads the Secret and the policy",
            "read": "the leader lists members",
            "listed": "the leader lists Leases and decides",
        }
        yield names[self.leader.phase], World.lead

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def act(self, at: int) -> None:
        host = self.hosts[at]
        step = host.step()
        answer = host.request(step)
        before = host.agent.offered
        if isinstance(step, Offer) and before is not None and _is_same(before, step.vector):
            self.broken = f"{step.vector.name} is offered, which is what {before.name} is"
        if isinstance(step, REMOTE):
            self.flying[at] = step, answer
            host.steps.clear()
            if isinstance(step, Hold) and answer is not None:
                self.absent.discard(host.member.terms.name)
        else:
            host.tell(step, answer)
            self._eager(host)

    def act_beside(self, at: int) -> None:
        host = self.hosts[at]
        step = host.beside()
        assert step is not None
        host.tell(step, None)

    def land(self, at: int) -> None:
        host = self.hosts[at]
        host.tell(*self.flying.pop(at))
        self._eager(host)

    def _eager(self, host: Host) -> None:
        """Does what needs nobody else, unless something may come between."""
        if self.budget.crashes or self.budget.backups:
            return
        while not isinstance(step := host.step(), (Rest, *REMOTE, Offer)):
            host.tell(step, None)

    def lose(self, at: int) -> None:
        self.budget = replace(self.budget, lost=self.budget.lost - 1)
        del self.flying[at]
        self.hosts[at].member.failed(0.0)

    def show(self, at: int, number: int) -> None:
        host = self.hosts[at]
        host.show(host.watches()[number])

    def gap(self, at: int, number: int) -> None:
        self.budget = replace(self.budget, gaps=self.budget.gaps - 1)
        host = self.hosts[at]
        host.show(host.watches()[number], relist=True)

    def go_on(self, at: int) -> None:
        self.hosts[at].go_on()

    def crash(self, at: int) -> None:
        self.budget = replace(self.budget, crashes=self.budget.crashes - 1)
        old = self.hosts[at]
        self._start(at, old.durable, old.agent)

    def backup(self, at: int) -> None:
        host = self.hosts[at]
        self.saved[at] = host.durable, clone(host.agent, {})

    def put_back(self, at: int) -> None:
        self.budget = replace(self.budget, backups=self.budget.backups - 1)
        self._start(at, *self.saved.pop(at))

    def _start(self, at: int, memory: Memory, agent: Agent) -> None:
        old = self.hosts[at]
        self.flying.pop(at, None)
        terms = old.member.terms
        new = Host(
            self.api,
            terms.name,
            memory=memory,
            agent=agent,
            process=terms.process + "+",
            hold=terms.hold,
            labels=dict(terms.labels),
        )
        new.now = old.now
        self.hosts[at] = new
        self._prepare(new)
        new.answer_again()

    def lapse(self, at: int) -> None:
        self.budget = replace(self.budget, lapses=self.budget.lapses - 1)
        host = self.hosts[at]
        host.now += 100.0
        self.absent.add(host.member.terms.name)

    # -- people --------------------------------------------------------------------------------------------------------

    def set_content(self, content: str, *, first: bool = False) -> None:
        found = self.api.create("secret", secret("es", k=content)) if first else rotated(self.api, "es", k=content)
        assert found is not None
        self.content_log.append((self.api.version, content))

    def rotate(self) -> None:
        content, *rest = self.budget.contents
        self.budget = replace(self.budget, contents=tuple(rest))
        self.set_content(content)

    def edit(self) -> None:
        self.budget = replace(self.budget, edits=self.budget.edits - 1)
        found = self.api.get("policy", "web")
        assert found is not None
        new = policy("web", secret="es", hosts=f"http://h{self.budget.edits}:9200")["spec"]["policy"]
        self.api.patch("policy", "web", {"spec": {"policy": new}})

    def hand_over(self, label: str) -> None:
        """The policy selects other members."""
        self.api.patch("policy", "web", {"spec": {"members": {"matchLabels": {"app": label}}}})

    def relabel(self) -> None:
        self.budget = replace(self.budget, relabels=self.budget.relabels - 1)
        self.api.patch("secret", "es", {"metadata": {"labels": {"x": str(self.budget.relabels)}}})

    def deny(self) -> None:
        self.budget = replace(self.budget, denials=self.budget.denials - 1)
        for host in self.hosts:
            host.denied.add("es")

    def permit(self) -> None:
        for host in self.hosts:
            host.denied.clear()

    def join(self) -> None:
        self.budget = replace(self.budget, joins=self.budget.joins - 1)
        label = "web" if self.budget.joins % 2 else "other"
        self.api.patch("member", self.hosts[0].member.terms.name, {"metadata": {"labels": {"app": label}}})

    # -- the leader ----------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        leader, api = self.leader, self.api
        if leader.phase == "idle":
            found = api.get("secret", "es")
            uid, at = (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) if found else ("", "")
            leader.secret = Secret("es", at or str(api.version), uid)
            leader.policy = api.get("policy", "web")
            leader.phase = "read"
        elif leader.phase == "read":
            leader.members = tuple(api.list("member").items)
            leader.phase = "listed"
        else:
            self._conclude()
            leader.phase, leader.secret, leader.policy, leader.members = "idle", None, None, ()

    def _conclude(self) -> None:
        leader, api = self.leader, self.api
        assert leader.secret is not None
        members = [records.member(found) for found in leader.members]
        leases = {one.member: one for one in map(records.lease, api.list("lease").items) if one.member}
        absent = frozenset(self.absent)
        standings = Standings(absent=absent, registering=registering(members, leases, absent))
        decision = release(leader.secret, View(members, leases, standings), leader.status, NOW, {"k"})
        leader.status = replace_history(decision.status)
        for name, bounds in decision.fences.items():
            self._fence(name, leases[name], bounds)
        if leader.policy is not None:
            found = replace(records.policy(leader.policy), status=leader.drained)
            leader.drained = judge(found, members, standings, NOW)

    def _fence(self, name: str, lease: records.Lease, bounds: Any) -> None:
        found = self.api.get("lease", MEMBER_LEASE + name)
        if found is None or found["metadata"]["resourceVersion"] != lease.version:
            return
        text = msgspec.json.encode({**lease.bounds, **bounds}).decode()
        notes = {**found["metadata"].get("annotations", {}), RELEASED: text}
        self.api.put("lease", {**found, "metadata": {**found["metadata"], "annotations": notes}})

    # -- laws ----------------------------------------------------------------------------------------------------------

    def laws(self) -> Iterator[str]:
        """Yields what is broken now."""
        if self.broken:
            yield self.broken
        for bound in self.leader.status.credentials:
            if not bound.released_before:
                continue
            allowed = self.current_since(int(bound.released_before))
            for host in self.hosts:
                for content in used(host) - allowed:
                    name = host.member.terms.name
                    yield f"{content} is released before {bound.released_before}, and {name} uses it"
        drained = next((one for one in self.leader.drained.conditions if one.type == "Drained"), None)
        if drained is not None and drained.status == "True":
            for host in self.hosts:
                for part in running(host):
                    if part.generation < drained.observed_generation:
                        name = host.member.terms.name
                        yield f"generation {drained.observed_generation} is drained, and {name} runs {part.generation}"

    def current_since(self, version: int) -> set[str]:
        """Returns the contents that were current at a version or later."""
        began = [at for at, _ in self.content_log]
        ends = [*began[1:], self.api.version + 1]
        return {content for (_, content), end in zip(self.content_log, ends, strict=True) if end > version}

    def finish(self) -> str:
        """Goes on fairly until nothing more happens; returns what is not as it must be in the end, or nothing."""
        self.budget = Budget()
        if broken := self._come_to_rest():
            return broken
        for host in self.hosts:  # a person has looked after what was lost
            if status_of(self.api.get("member", host.member.terms.name)).lost:
                self.api.delete("member", host.member.terms.name)
        if broken := self._come_to_rest():
            return broken
        return next(self.laws(), "") or self._unfinished() or next(self._without_lease(), "")

    def _without_lease(self) -> Iterator[str]:
        for host in self.hosts:
            member = host.member
            if member.terms.hold and host.agent.vectors and (host.lease is None or host.lease <= host.now):
                yield f"{member.terms.name} gets no lease: {member.held}"

    # -- ways to a start -----------------------------------------------------------------------------------------------

    def until(self, kind: type, at: int = 0) -> World:
        """Goes on, fairly, until the next step of a member is one of a kind."""
        host = self.hosts[at]
        for _ in range(200):
            step = host.step()
            if isinstance(step, kind):
                return self
            if not isinstance(step, Rest):
                self.act(at)
                if at in self.flying:
                    self.land(at)
            elif behind := [watch for watch in host.watches() if watch.is_behind(self.api)]:
                host.show(behind[0])
            else:
                host.go_on()
        raise AssertionError(f"no {kind.__name__}")

    def settled(self, *only: int) -> World:
        """Goes on until members have nothing more to do; by default all of them."""
        for at in only or range(len(self.hosts)):
            self.hosts[at].settle()
        return self

    def led(self, rounds: int = 2) -> World:
        """The leader decides."""
        for _ in range(3 * rounds):
            self.lead()
        return self

    def _come_to_rest(self) -> str:
        self.permit()
        for _ in range(400):
            moved = False
            for at, host in enumerate(self.hosts):
                if at in self.flying:
                    self.land(at)
                    moved = True
                elif not isinstance(step := host.step(), Rest):
                    self.act(at)
                    moved = True
                elif (
                    step.until is not None
                    and step.until <= host.now + 60
                    and host.member.standing.place in ("taken", "apart")
                ):
                    host.now = step.until
                    moved = True
                elif (again := host.member.running.seen.again_at({"es"})) < inf:
                    host.now = max(host.now, again)
                    moved = True
                for number, watch in enumerate(host.watches()):
                    if watch.is_behind(self.api):
                        self.show(at, number)
                        moved = True
                if host.go_on():
                    moved = True
            if not moved:
                break
            if broken := next(self.laws(), ""):
                return broken
        else:
            return "there is no end"
        for _ in range(9):
            self.lead()
            for at, host in enumerate(self.hosts):
                while not isinstance(host.step(), Rest):
                    self.act(at)
                    if at in self.flying:
                        self.land(at)
        return next(self.laws(), "")

    def _unfinished(self) -> str:
        status = self.leader.status
        found = self.api.get("secret", "es")
        assert found is not None
        at = found["metadata"]["resourceVersion"]
        for bound in status.credentials:
            if bound.released_before != at:
                return f"{bound.key} is released before {bound.released_before}, and never before {at}"
        drained = next((one for one in self.leader.drained.conditions if one.type == "Drained"), None)
        newest = self.api.get("policy", "web")
        assert newest is not None
        if drained is None or drained.observed_generation != newest["metadata"]["generation"]:
            return f"the newest generation is not judged: {self.leader.drained}"
        if drained.status != "True" and drained.reason != "NoMembers":
            return f"the newest generation is never drained: {self.leader.drained}"
        return ""

    # -- equality ------------------------------------------------------------------------------------------------------

    def key(self) -> bytes:
        """Returns what tells worlds apart; times do not."""
        leader = self.leader
        listed = [found["metadata"]["resourceVersion"] for found in leader.members]
        of_leader = [leader.phase, repr(leader.secret), leader.policy, listed, leader.status, leader.drained]
        hosts = [_host_key(host) for host in self.hosts]
        flying = [(at, type(step).__name__, repr(answer)) for at, (step, answer) in sorted(self.flying.items())]
        budget, saved = repr(self.budget), [(at, memory.saves) for at, (memory, _) in sorted(self.saved.items())]
        objects = sorted((kind, name, found) for (kind, name), found in self.api.objects.items())
        return msgspec.msgpack.encode(
            [objects, of_leader, hosts, flying, sorted(self.absent), budget, saved, self.broken]
        )


def replace_history(status: SecretStatus) -> SecretStatus:
    """Returns a status without its history, which only grows."""
    return msgspec.structs.replace(status, history=())


def used(host: Host) -> set[str]:
    """Returns the contents that the sidecar of a host may use now."""
    if host.member.terms.hold and (host.lease is None or host.now >= host.lease):
        return set()
    known = {one.id: one.content.decode() for vector in host.agent.vectors for one in vector.contents.values()}
    return {known[id] for id in host.agent.using - host.agent.withdrawn}


def running(host: Host) -> list[Any]:
    """Returns the parts that the sidecar of a host runs now, or is about to run."""
    agent = host.agent
    return list(agent.vectors[-1].parts) if agent.vectors and agent.stage in ("active", "drained") else []


def _keys(vector: Vector) -> list[Any]:
    return [*map(_key, vector.parts)]


def _is_same(one: Vector, other: Vector) -> bool:
    """Whether a vector is offered twice; a directory with a new id offers what it runs under a name of its own."""
    return _keys(one) == _keys(other) and one.name.rpartition("-")[0] == other.name.rpartition("-")[0]


def _key(part: Any) -> tuple[Any, ...]:
    return part.uid, part.generation, part.contents


def _host_key(host: Host) -> list[Any]:
    member, agent = host.member, host.agent
    watches = [(watch.kind, watch.name, watch.at, watch.reflection.seen) for watch in host.watches()]
    of_agent = [
        agent.offered.name if agent.offered is not None else "",
        [vector.name for vector in agent.vectors[-1:]],
        agent.stage,
        sorted(agent.using),
        sorted(agent.withdrawn),
    ]
    leased = host.lease is not None and host.now < host.lease
    return [host.durable, watches, of_agent, leased, sorted(host.denied), _member_key(member, host.now)]


def _member_key(member: Any, now: float) -> list[Any]:
    """All of a member but times and what is kept for speed."""
    running, standing = member.running, member.standing
    usage, own, policies = running.usage, standing.own, running.policies
    return [
        member.memory,
        [standing.place, standing._looking, running.is_stale, standing.follows],
        [standing.is_reported, standing._adjusted, standing.is_leaving],
        [own.object, own.gone, own._shown],
        sorted((one.uid, one.version, one.generation) for one in policies.known.values()),
        [policies.synced, policies._floor, sorted(policies._judged)],
        sorted((name, seen.object, seen.is_known) for name, seen in running.seen._seen.items()),
        sorted(running._contents.by_id.values(), key=lambda one: one.id),
        running._contents.drawn,
        [sorted(usage.proven), dict(usage.bounds), sorted(usage.withdrawn), sorted(usage._announced)],
        [sorted(usage._pins.items()), sorted(usage._late.items()), sorted(usage.again)],
        [sorted(running._introducing._announced), sorted(running._introducing._confirmed.items())],
        [sorted(running._entries.by_uid.values(), key=lambda one: one.uid), running._entries.reached],
        [[*map(_key, running._vectors.running.values())], [*map(_key, running._vectors.good.values())]],
        sorted(running._proving._failed),
        [running._to_offer is None, running._active_here, sorted(running._released), member._reading],
        [standing.name.lease, member.fencing.must_read, member.fencing.lapses, member.fencing.is_alive(now)],
        [member._pending, standing._has_renewed, now >= standing.renew_at],
        [running._target.keys if running._target is not None else None],
        [member._reporting._sent, member._reporting._answered],
        member._writing[0] if member._writing is not None else None,
    ]


class _Unannounced(Usage):
    """What is used first is read without having been written."""

    def is_announced(self, one: Content) -> bool:
        return True

    def confirmed(self, one: Content) -> None:
        self.proven.add(one.id)


class _Unread(Usage):
    """What is written is used, without a read after that."""

    def wrote(self, ids: frozenset[str]) -> None:
        super().wrote(ids)
        self.proven |= ids


class _Forgetful(Usage):
    """The status lists what was offered last, not what the sidecar still uses."""

    def ids(self, ledger: Iterable[str], also: Iterable[str] = ()) -> frozenset[str]:
        return super().ids((), also)


class _Unbarred(Usage):
    """Bounds in the Lease count for nothing."""

    def is_barred(self, one: Content) -> bool:
        return False


class _Undoubting(Usage):
    """What was proven stays so, whatever the API server has."""

    def check(self, there: Iterable[Using]) -> None:
        pass


class _Unasking(Secrets):
    """What was denied is not asked again."""

    def due(self, now: float) -> frozenset[str]:
        return frozenset()


class _Unlabelled(Contents):
    """A version is that at which a content was seen first."""

    def saw(self, found: Object) -> None:
        pass


class _Unintroduced(Running):
    """A policy that is new here is run as soon as it is seen."""

    def _newcomers(self) -> list[Part]:
        return []


class _UnreadPolicy(Introducing):
    """A policy that is new here is run as it was seen before it was announced."""

    def is_ready(self, part: Part, known: Mapping[str, Known]) -> bool:
        return self.is_announced(part)


MUTANTS: dict[str, type] = {
    "announce": _Unannounced,
    "read after the announcement": _Unread,
    "list what drains": _Forgetful,
    "heed the bounds": _Unbarred,
    "doubt after a lapse": _Undoubting,
    "write labels-only versions": _Unlabelled,
    "ask again what was denied": _Unasking,
    "introduce a policy": _Unintroduced,
    "read a policy that is new": _UnreadPolicy,
}
"""By the name of a rule: the class without it."""


def _mutate(host: Host, mutant: type) -> None:
    member = host.member
    for part in (*vars(member).values(), *vars(member.running).values()):
        if type(part) in mutant.__mro__ and type(part) is not object:
            part.__class__ = mutant


mutable(*MUTANTS.values())
mutable(World, Leader, Host, Agent, Watch, Api, Unpaced)
