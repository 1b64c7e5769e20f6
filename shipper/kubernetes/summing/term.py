"""One time of leading: judges what has changed at once, and writes it.

    event ──> picture: due ──> own writes seen? ──> judged from watches ──┬─ as it is ──> nothing
                                                                          └─ new ──> read by quorum ──> written

- What is due is judged in the moment of the event, and written at once. Only an object that was written less than GAP
  ago waits for the rest of it, and is then judged at its newest state; so a burst costs a few writes, and the last
  state is always written.
- What watches have shown may be old. So Drained becomes True, a bound rises, and a finalizer goes, only by a list of
  members by quorum that began after the policy, or the Secret, was read.
- A write that is refused because of another version is not repeated: the object is read by quorum, and judged anew.
- The token stands in an object before anything is concluded for it. A higher token in it ends the leadership.
- Timers are those of Leases, of deadlines of deletions, and of attempts after a failure.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import AlreadyExists, Conflict
from shipper.apiserver.objects import LEASES, Event, Kind, Object, version
from shipper.apiserver.reflector import Reflector
from shipper.kubernetes.events import Events
from shipper.kubernetes.kinds import MEMBERS, POLICIES, RELEASES, PolicyStatus
from shipper.kubernetes.summing import records
from shipper.kubernetes.summing.echoes import Echoes
from shipper.kubernetes.summing.echoes import Kind as Written
from shipper.kubernetes.summing.election import Leadership, Superseded, Unfit
from shipper.kubernetes.summing.finalizing import Step, explained, finalize
from shipper.kubernetes.summing.following import Following
from shipper.kubernetes.summing.judge import is_drained, judge
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.picture import Picture
from shipper.kubernetes.summing.records import Member, Policy, Release
from shipper.kubernetes.summing.release import Decision, Secret, View, release
from shipper.kubernetes.summing.tasks import OLD, Act, Key, NotLeading, Tasks
from shipper.kubernetes.summing.troubles import Troubles
from shipper.kubernetes.summing.writing import NO_RIGHT, Writing
from shipper.process.environment import REAL, Environment

SYNC_SECONDS = 30.0
"""For all objects to be seen once; a leader that takes longer lets another one try."""
POD_SECONDS = 30.0
"""Until the Pod of an absent member is looked for again."""
UNSEEN = "status_unseen"
"""A cause of troubles."""


class Term:
    """See the module. `run` it until it is cancelled, or raises Superseded."""

    def __init__(
        self,
        client: Client,
        leadership: Leadership,
        *,
        trouble: Callable[[str, str | None], None],
        say: Callable[[str], None],
        events: Events | None = None,
        environment: Environment = REAL,
    ) -> None:
        self.troubles = Troubles(trouble)
        self._client, self._leadership, self._say, self._environment = client, leadership, say, environment
        self._events = events
        self._writing = Writing(client, leadership.token)
        self._picture = Picture()
        self._echoes = Echoes(self._picture, self._writing, self._now)
        self._following = Following(client, self._writing, self.troubles, environment, self._secret_changed)
        self._look_again: dict[str, float] = {}
        """Policies whose deletion has a deadline: seconds since 1970."""
        self._changed = trio.Event()
        self._tasks: Tasks

    async def run(self) -> None:
        """Sums up until it is cancelled; raises Superseded, and Unfit if it cannot see what there is."""
        reflectors = [
            self._reflector(POLICIES, partial(self._echoes.saw, "policy"), "policy"),
            self._reflector(MEMBERS, self._picture.saw_member),
            self._reflector(LEASES, lambda event: self._picture.saw_lease(event, self._now())),
            self._reflector(RELEASES, partial(self._echoes.saw, "secret"), "secret"),
        ]
        async with trio.open_nursery() as nursery:
            for reflector in reflectors:
                nursery.start_soon(reflector.run)
            with trio.move_on_after(SYNC_SECONDS) as scope:
                for reflector in reflectors:
                    await reflector.synced()
            if scope.cancelled_caught:
                raise Unfit
            tasks = self._tasks = Tasks(
                nursery, self.troubles, self._now, again=self._again, due=self._due, changed=self._tell
            )
            while self._leadership.holds():
                changed = self._changed
                self._following.want(self._picture.secrets, nursery)
                wait = self._begin(tasks)
                with trio.move_on_after(wait):
                    await changed.wait()
            nursery.cancel_scope.cancel("the leader's Lease may be over")

    # -- what is seen --------------------------------------------------------------------------------------------------

    def _reflector(self, kind: Kind, saw: Callable[[Event], None], echoes: Written | None = None) -> Reflector:
        def heed(event: Event) -> None:
            if event.type != "SYNCED":
                saw(event)
                self._tell()

        def caught_up(at: str) -> None:
            if echoes is not None:
                self._echoes.caught_up(echoes, at)
                self._tell()

        def trouble(text: str | None) -> None:
            if text is None:
                self.troubles.over(f"watch of {kind.plural}")
            else:
                self.troubles.failed(UNSEEN, f"watch of {kind.plural}", text)

        environment = self._environment
        return Reflector(self._client, kind, heed=heed, trouble=trouble, caught_up=caught_up, environment=environment)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _now(self) -> float:
        return self._environment.boottime()

    def _clock(self) -> str:
        return datetime.fromtimestamp(self._environment.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _secret_changed(self, of: str) -> None:
        self._picture.due_secrets.add(of)
        self._tell()

    # -- what is due ---------------------------------------------------------------------------------------------------

    def _begin(self, tasks: Tasks) -> float:
        """Begins all that can be done now; returns the seconds after which there is more without an event."""
        now, wall = self._now(), self._environment.wall()
        for of in [of for of, until in self._look_again.items() if until <= wall]:
            del self._look_again[of]
            self._picture.due_policies.add(of)
        times = [self._leadership.until, *(now + until - wall for until in self._look_again.values())]
        times += [self._begin_policy(tasks, of, now) for of in sorted(self._picture.due_policies)]
        times += [self._begin_secret(tasks, of, now) for of in sorted(self._picture.due_secrets)]
        times += self._begin_members(tasks, now)
        if len(tasks) > _KEPT + 2 * len(self._picture.members) + len(self._picture.policies):
            tasks.forget(self._is_there)
        return max(0.0, min(times) - now)

    def _is_there(self, key: Key) -> bool:
        kind, of = key
        picture = self._picture
        there: dict[str, Container[str]] = {
            "policy": picture.policies,
            "secret": picture.releases,
            "member": picture.members,
        }
        return kind not in there or of in there[kind]

    def _begin_policy(self, tasks: Tasks, of: str, now: float) -> float:
        known, key = self._picture.policies.get(of), ("policy", of)
        if known is None:
            self._picture.due_policies.discard(of)
            self._look_again.pop(of, None)
            self.troubles.over(f"policy {of}")
            self._describe(of, "", None)
            return math.inf
        if (when := self._gate(tasks, "policy", of, known, now)) > now:
            return when
        self._picture.due_policies.discard(of)
        self._echoes.judged("policy", known)
        tasks.start(key, self._plan_policy(known))
        return math.inf

    def _begin_secret(self, tasks: Tasks, of: str, now: float) -> float:
        secret, known, key = self._following.secret(of), self._picture.releases.get(of), ("secret", of)
        if secret is None:
            return math.inf
        if (when := self._gate(tasks, "secret", of, known, now)) > now:
            return when
        self._picture.due_secrets.discard(of)
        if known is None:
            tasks.start(key, partial(self._create, of))
            return math.inf
        self._echoes.judged("secret", known)
        tasks.start(key, self._plan_secret(known, secret))
        return math.inf

    def _gate(self, tasks: Tasks, kind: Written, of: str, known: Policy | Release | None, now: float) -> float:
        """Returns when an object can be judged; `now`, or a time before, if it can be."""
        if (at := tasks.free_at((kind, of))) > now or known is None:
            return at
        when = self._echoes.free_at(kind, known, now)
        if when is None:
            tasks.start((kind, of), partial(self._echoes.read, kind, of, known.uid))
            return math.inf
        return when

    def _begin_members(self, tasks: Tasks, now: float) -> list[float]:
        times = []
        if (deadline := self._picture.liveness.deadline()) is not None:
            times.append(self._timed(tasks, ("leases", ""), deadline, now, self._read_leases))
        for of in self._picture.standings.absent:
            member = self._picture.members.get(of)
            if member is None or member.spec.keeps != "pod" or member.spec.pod is None:
                continue
            if of not in self._picture.standings.ended:
                times.append(self._timed(tasks, ("member", of), now, now, partial(self._look_for_pod, member)))
            elif member.status is not None and not member.status.undelivered and not member.status.lost:
                times.append(self._timed(tasks, ("member", of), now, now, partial(self._forget, member)))
        return times

    @staticmethod
    def _timed(tasks: Tasks, key: Key, at: float, now: float, act: Act) -> float:
        when = max(at, tasks.free_at(key))
        if when > now:
            return when
        tasks.start(key, act)
        return math.inf

    # -- policies ------------------------------------------------------------------------------------------------------

    def _plan_policy(self, of: Policy) -> Act | None:
        """Judges a policy by what watches have shown; returns what is to be done, if anything."""
        if of.status.leader > self._leadership.token:
            raise Superseded(of.status.leader)
        if of.status.leader < self._leadership.token:
            return partial(self._claim, "policy", of)
        if of.spec is None:
            self.troubles.failed(OLD, f"ShipperPolicy {of.name}", f"ShipperPolicy {of.name} cannot be read")
            return None
        self.troubles.over(f"ShipperPolicy {of.name}")
        members = self._picture.members.values()
        status, step = self._judged(of, [*members], self._picture.standings)
        self._look_again.pop(of.name, None)
        if step.look_again is not None:
            self._look_again[of.name] = step.look_again
        self._describe(of.name, of.uid, status)
        if status == of.status and step.finalizers is None:
            return None
        return partial(self._write_policy, of, status, step)

    def _describe(self, name: str, uid: str, status: PolicyStatus | None) -> None:
        """Has an Event say what a person must see to, if there is anything."""
        if self._events is None:
            return
        conditions = () if status is None else status.conditions
        degraded = next((one for one in conditions if one.type == "Degraded" and one.status == "True"), None)
        reason, message = ("", None) if degraded is None else (degraded.reason, degraded.message)
        self._events.show(POLICIES, name, lambda: uid, "Degraded", reason, message)

    def _judged(self, of: Policy, members: list[Member], standings: Standings) -> tuple[PolicyStatus, Step]:
        status = judge(of, members, standings, self._clock())
        step = finalize(of, status, self._environment.wall())
        return (explained(status, step.look_again) if step.look_again is not None else status), step

    async def _write_policy(self, of: Policy, status: PolicyStatus, step: Step) -> None:
        was_drained = is_drained(of.status) and of.status.observed_generation == of.generation
        if is_drained(status) and (not was_drained or step.finalizers is not None):
            members, standings, _ = await self._crowd()
            status, step = self._judged(of, members, standings)
        at = of.version
        if status != of.status:
            found = await self._written(("policy", of.name), lambda: self._writing.judged(of, status))
            self._echoes.wrote("policy", found)
            at = version(found)
        if step.finalizers is not None:
            if step.said:
                self._say(step.said)
            finalizers = step.finalizers
            found = await self._written(("policy", of.name), lambda: self._writing.finalizers(of, at, finalizers))
            self._echoes.wrote("policy", found)

    async def _crowd(self) -> tuple[list[Member], Standings, dict[str, Object]]:
        """Reads members and Leases by quorum; their Leases decide who is alive."""
        found = await self._writing.crowd()
        leases = [records.lease(one) for one in found.leases.values()]
        self._picture.read_leases(leases, self._now())
        self._tell()
        by_member = {one.member: found.leases[one.name] for one in leases}
        return [*found.members], self._picture.standing(found.members), by_member

    # -- Secrets -------------------------------------------------------------------------------------------------------

    def _plan_secret(self, of: Release, secret: Secret) -> Act | None:
        """Judges a Secret by what watches have shown; returns what is to be done, if anything."""
        if of.status is None:
            text = f"the status of ShipperSecret {of.name} cannot be read; delete it"
            self.troubles.failed(OLD, f"ShipperSecret {of.name}", text)
            return None
        self.troubles.over(f"ShipperSecret {of.name}")
        if of.status.leader > self._leadership.token:
            raise Superseded(of.status.leader)
        if of.status.leader < self._leadership.token:
            return partial(self._claim, "secret", of)
        view = View([*self._picture.members.values()], self._picture.leases, self._picture.standings)
        decision = self._decided(of, secret, view)
        if decision.status == of.status and not decision.fences:
            return None
        if decision.status.credentials == of.status.credentials and not decision.fences:
            return partial(self._write_release, of, decision)
        return partial(self._release, of)

    def _decided(self, of: Release, secret: Secret, view: View) -> Decision:
        before = of.status
        assert before is not None
        return release(secret, view, before, self._clock(), self._picture.keys(of.name))

    async def _release(self, of: Release) -> None:
        """Reads the Secret, then members, then Leases, and writes what is released by that."""
        try:
            secret = await self._writing.secret(of.name)
        except NO_RIGHT:
            secret = Secret(of.name, "")
        members, standings, objects = await self._crowd()
        view = View(members, {one: records.lease(lease) for one, lease in objects.items()}, standings)
        decision = self._decided(of, secret, view)
        for member, bounds in decision.fences.items():
            with suppress(Conflict):  # if it has renewed its Lease, it counts again
                await self._written(None, partial(self._writing.fence, objects[member], bounds))
            self._picture.due_secrets.add(of.name)
        if decision.status != of.status:
            await self._write_release(of, decision)

    async def _write_release(self, of: Release, decision: Decision) -> None:
        status = decision.status
        found = await self._written(("secret", of.name), lambda: self._writing.released(of, status))
        self._echoes.wrote("secret", found)

    async def _create(self, of: str) -> None:
        try:
            found = await self._written(None, lambda: self._writing.create_release(of))
        except AlreadyExists:
            found = await self._writing.release(of)
        self._echoes.wrote("secret", found)

    # -- members -------------------------------------------------------------------------------------------------------

    async def _read_leases(self) -> None:
        found = await self._writing.leases()
        self._picture.read_leases([records.lease(one) for one in found.values()], self._now())

    async def _look_for_pod(self, member: Member) -> None:
        if await self._writing.pod_is_gone(member):
            self._picture.ended.add(member.name)
            self._picture.stand()
        else:
            self._tasks.wait(("member", member.name), POD_SECONDS)

    async def _forget(self, member: Member) -> None:
        """Deletes what is left of a member that has ended with nothing undelivered."""
        lease = self._picture.liveness.lease(member.name)
        await self._written(None, partial(self._forgotten, member, lease))

    async def _forgotten(self, member: Member, lease: records.Lease | None) -> Object:
        await self._writing.forget(member, lease)
        return {}

    # -- writes --------------------------------------------------------------------------------------------------------

    async def _claim(self, kind: Written, of: Policy | Release) -> None:
        self._echoes.wrote(kind, await self._written(None, lambda: self._writing.claim(_KINDS[kind], of)))

    async def _written(self, key: Key | None, write: Callable[[], Awaitable[Object]]) -> Object:
        """Writes, if this member leads still."""
        if not self._leadership.holds():
            raise NotLeading
        if key is not None:
            self._tasks.wrote(key)
        return await write()

    async def _again(self, key: Key) -> bool:
        """Reads an object that is not as it was known, so that it is judged anew."""
        kind: Written = "policy" if key[0] == "policy" else "secret"
        known = self._echoes.known(kind, key[1]) if key[0] in _KINDS else None
        if known is not None:
            await self._echoes.read(kind, key[1], known.uid)
        return known is not None and self._echoes.known(kind, key[1]) != known

    def _due(self, key: Key) -> None:
        if key[0] == "policy":
            self._picture.due_policies.add(key[1])
        elif key[0] == "secret":
            self._picture.due_secrets.add(key[1])


_KINDS: Mapping[str, Kind] = {"policy": POLICIES, "secret": RELEASES}
_KEPT = 100
