"""The membership of one process: it performs what `member` decides, and is what the agent sees. See the package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Literal

import trio

from shipper.apiserver.client import Client
from shipper.apiserver.errors import ApiError, Busy, Forbidden, NotFound
from shipper.apiserver.objects import SECRETS, Kind
from shipper.kubernetes.home import Home
from shipper.kubernetes.kinds import POLICIES, PolicyReport
from shipper.kubernetes.member.machine import Member
from shipper.kubernetes.member.steps import (
    Adjust,
    Confirm,
    Create,
    Denied,
    Facts,
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
from shipper.kubernetes.membership.following import Following
from shipper.kubernetes.membership.host import Host
from shipper.kubernetes.membership.offers import Offers
from shipper.kubernetes.membership.session import Session
from shipper.kubernetes.membership.troubles import Troubles
from shipper.kubernetes.settings import Found
from shipper.membership.ids import new_id
from shipper.membership.offers import HASTE
from shipper.membership.steps import Forget, Grant, Rest, Withdraw
from shipper.policy.registry import Registry
from shipper.process.environment import REAL, Environment
from shipper.sdk.codes import Code
from shipper.sdk.descriptors import in_words
from shipper.sdk.errors import Problem, ShipperError
from shipper.sdk.retry import backoff
from shipper.supervise.answers import Stage

LONGEST_CALL = 10.0
JUDGE_SECONDS = 10.0
"""For a policy to be validated; it may name a file on a file system that does not answer."""
_SHORTEST_REST = 0.001  # seconds; less may be lost in the rounding of a clock, and be no rest

Judging = Callable[[str, Mapping[str, object]], Judgement]
"""Judges a generation of a policy by its name and its text; blocks."""


class NotLeft(ShipperError):
    """The API server cannot have the last status; the text has the remedy."""


class Membership:
    """`run` it once."""

    def __init__(
        self,
        client: Client,
        found: Found,
        home: Home,
        host: Host,
        judging: Judging,
        registry: Registry,
        *,
        environment: Environment = REAL,
    ) -> None:
        """`home` is open."""
        self._client, self._found, self._home, self._host, self._judging = client, found, home, host, judging
        self._environment, self._clock = environment, environment.boottime
        lease = float(found.settings.lease)
        self._seconds = min(LONGEST_CALL, lease / 3)
        self._member = Member(terms(found, home), home.memory, registry)
        self._troubles = Troubles(host.trouble)
        self._session = Session(client, found.member, self._seconds)
        self._following = Following(client, self._member, self._troubles, environment, wake=self.wake)
        self._offers = Offers()
        self._waits = self._backoff()
        self._woken, self._ended, self._stepped = trio.Event(), trio.Event(), trio.Event()
        self._joined = False
        self._look_again = inf
        """When a trouble begins if nothing changes."""

    # -- for the agent -------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """`holderIdentity` of the leases of this process."""
        memory, own = self._member.memory, self._member.terms
        return f"{memory.directory}/{own.boot}/{own.process}"

    @property
    def uid(self) -> str:
        """That of the ShipperMember; empty before it was seen."""
        return self._member.standing.own.uid

    @property
    def offered(self) -> Vector | None:
        """What to run. If the API server has nothing newer at once, it is what an earlier process of this member ran;
        None before there is a policy for a new member. It never goes back."""
        return self._offers.newest

    @property
    def may_run(self) -> bool:
        """Whether an earlier process has left something that may run without the API server."""
        return self._member.running.kept is not None

    @property
    def holding(self) -> bool:
        """Whether the sidecar needs a lease to send; if so it must start without one (`hello.lease`)."""
        return self._member.holding

    def wake(self) -> None:
        """Has the member decide again: something has changed."""
        self._woken.set()

    async def changed(self) -> None:
        """Waits for the next change of `offered`."""
        await self._offers.changed()

    def answered(
        self, version: str, stage: Stage | Literal["refused"], reason: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        """Receives the answer of the sidecar to a vector by its name, as `answers.Answer`; it is kept until it is
        written."""
        self._member.running.answered(version, stage, reason, problems)
        self.wake()

    def released(self, id: str) -> None:
        """Every sidecar here has released a content."""
        self._member.running.released(id)
        self.wake()

    async def leave(self) -> None:
        """Ends the membership; returns when the API server has the last status and `home` remembers it.

        It goes on in the background if it is cancelled. Raises NotLeft if the ShipperMember is not this process's.
        """
        self._member.leave()
        self.wake()
        await self._ended.wait()
        if self._member.standing.place == "out" and not self._member.memory.left:
            name = self._found.member
            raise NotLeft(f"the ShipperMember has no last status of this member; delete it: shippermember/{name}")

    async def settled(self) -> None:
        """Returns when the API server has the last status of this member, whose agent has ended."""
        self._member.end()
        self.wake()
        await self._stepped.wait()
        while self._member.is_pending(self._clock(), self._facts()):
            await self._stepped.wait()

    def status(self) -> dict[str, Any]:
        """Returns the part of `shipper status` about Kubernetes, without contents of Secrets."""
        member, standing, now = self._member, self._member.standing, self._clock()
        vector, report = self.offered, self._member.status(self._facts())
        return {
            "namespace": self._client.namespace,
            "server": self._client.host,
            "member": self._found.member,
            "directory": member.memory.directory,
            "state": "member" if standing.registered else {"ours": "registering"}.get(standing.place, standing.place),
            "reason": standing.why,
            "on_lapse": "hold" if member.holding else "continue",
            "held": member.held,
            "lease_seconds": None if member.fencing.until is None else max(0.0, member.fencing.until - now),
            "policies": [_report(one) for one in report.policies],
            "secrets": [
                {"secret": one.secret, "key": one.key, "uid": one.uid, "resource_version": one.resource_version}
                for one in report.using
            ],
            "runs": [] if vector is None else [f"{part.name} {part.generation}" for part in vector.parts],
            "waits": [{"policy": name, "reason": why} for name, why in member.running.waits],
            "troubles": dict(self._troubles.all()),
        }

    # -- the tasks -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Takes part for ever, also while the API server is away; never raises ApiError."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._act)
            nursery.start_soon(self._following.run)
            nursery.start_soon(self._hurry)

    async def _hurry(self) -> None:
        await trio.sleep(HASTE)
        self._offers.wait_no_longer()
        self._offers.offer_kept(self._member)

    async def _act(self) -> None:
        """Performs the steps of the member."""
        while True:
            self._offers.offer_kept(self._member)
            step = self._member.next(self._clock(), self._facts())
            self._look_again = self._troubles.look_at(self._member, self._clock())
            self._following.look()
            self._stepped.set()
            self._stepped = trio.Event()
            if self._member.left:
                self._ended.set()
            try:
                if isinstance(step, Write | Hold):
                    await self._perform_write(step)
                else:
                    await self._perform(step)
            except ApiError as error:
                self._failed(error)
            except OSError as error:
                self._troubles.unsaved(in_words(error))
                await trio.sleep(next(self._waits))
            else:
                self._succeeded(step)
            await trio.lowlevel.checkpoint()

    def _failed(self, error: ApiError) -> None:
        self._troubles.failed("act", error)
        self._offers.wait_no_longer()
        wanted = error.retry_after if isinstance(error, Busy) else 0.0
        self._member.failed(self._clock() + max(next(self._waits), wanted))

    def _succeeded(self, step: Step) -> None:
        if isinstance(step, Save):
            self._troubles.unsaved(None)
        if isinstance(step, Look | Write | Hold | Reread | Confirm):
            self._troubles.failed("act", None)
        if isinstance(step, Write | Hold):
            self._waits = self._backoff()
        if self._member.standing.registered and not self._joined:
            self._joined = True
            self._host.say("kubernetes_joined", {"namespace": self._client.namespace, "name": self._found.member})

    async def _perform_write(self, step: Write | Hold) -> None:
        """Performs a write; a new generation does not wait for its answer."""
        ended = trio.Event()
        failures: list[Exception] = []

        async def write() -> None:
            try:
                await self._perform(step)
            except ApiError as error:
                failures.append(error)
            finally:
                ended.set()
                self.wake()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            try:
                await self._go_on_beside(ended)
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def _go_on_beside(self, ended: trio.Event) -> None:
        while not ended.is_set():
            step = self._member.beside(self._clock(), self._facts())
            if step is not None:
                await self._perform(step)
                self._succeeded(step)
            else:
                await self._woken.wait()
                self._woken = trio.Event()

    async def _perform(self, step: Step) -> None:
        member = self._member
        match step:
            case Rest():
                await self._rest(step.until)
            case Look():
                member.looked(step, await self._session.look(), now=self._clock())
            case Save(memory):
                await self._home.save(memory)
                member.saved(memory)
            case Create():
                member.created(await self._session.create(step), now=self._clock())
            case Adjust():
                member.adjusted(await self._session.adjust(step), now=self._clock())
            case Hold():
                began = self._clock()
                member.held_lease(await self._session.hold(step), began=began, now=self._clock())
            case Write():
                began = self._clock()
                member.wrote(step, await self._session.write(step), began=began, now=self._clock())
            case Reread(secrets):
                await self._reread(secrets)
            case Judge():
                member.running.judged(step, await self._judge(step), now=self._clock())
            case Confirm():
                await self._confirm(step)
            case Offer(vector):
                self._offers.give(vector)
                member.running.offered(vector)
            case Withdraw(ids):
                await self._host.withdraw(ids)
                member.running.withdrew(ids)
            case Forget(ids):
                self._host.forget(ids)
                member.running.forgot(ids)
            case Grant(until):
                self._host.lease(until)
                member.granted(until)

    async def _rest(self, until: float | None) -> None:
        seconds = max(_SHORTEST_REST, min(inf if until is None else until, self._look_again) - self._clock())
        with trio.move_on_after(seconds):
            await self._woken.wait()
        self._woken = trio.Event()

    def _facts(self) -> Facts:
        host = self._host
        return Facts(
            frozenset(host.using()),
            host.undelivered(),
            host.longest_request(),
            host.degraded(),
            self._environment.wall(),
        )

    async def _reread(self, names: Collection[str]) -> None:
        began = self._clock()
        listed = await self._client.list(POLICIES, seconds=self._seconds)
        found = await self._get_all(SECRETS, names)
        self._member.reread(listed, found, began=began, now=self._clock())

    async def _confirm(self, step: Confirm) -> None:
        secrets = await self._get_all(SECRETS, step.secrets)
        found = await self._get_all(POLICIES, step.policies)
        policies = {name: None if isinstance(one, Denied) else one for name, one in found.items()}
        self._member.running.confirmed(secrets, policies)

    async def _get_all(self, kind: Kind, names: Collection[str]) -> dict[str, SecretFound]:
        """Reads objects by quorum, a few at a time; raises the first failure but for absence and a missing right to a
        Secret."""
        found: dict[str, SecretFound] = {}
        failures: list[ApiError] = []

        async def get(name: str) -> None:
            try:
                found[name] = await self._client.get(kind, name, seconds=self._seconds)
            except NotFound:
                found[name] = None
            except ApiError as error:
                if isinstance(error, Forbidden) and kind is SECRETS:
                    found[name] = Denied(str(error))
                    return
                failures.append(error)
                nursery.cancel_scope.cancel("an object was not read")

        async with trio.open_nursery() as nursery:
            for name in sorted(names):
                nursery.start_soon(get, name)
        if failures:
            raise failures[0]
        return found

    async def _judge(self, step: Judge) -> Judgement:
        with trio.move_on_after(JUDGE_SECONDS):
            return await self._environment.in_thread(self._judging, step.name, step.policy, abandon_on_cancel=True)
        text = f"it could not be validated within {JUDGE_SECONDS:g} s; perhaps a file that it names does not answer"
        return Judgement(problems=(Problem("", 1, 1, text, f"policy {step.name}", Code.TIMED_OUT),))

    def _backoff(self) -> Iterator[float]:
        return backoff(0.1, float(self._found.settings.lease) / 3, draw=self._environment.draw)


def _report(of: PolicyReport) -> dict[str, Any]:
    nack = None if of.nack is None else {name: getattr(of.nack, name) for name in of.nack.__struct_fields__}
    return {
        "name": of.name,
        "uid": of.uid,
        "generation": of.generation,
        "stage": of.stage,
        "removed": of.removed,
        "waits_for": list(of.waits_for),
        "nack": nack,
    }


def terms(found: Found, home: Home) -> Terms:
    """Returns what a new process of a member brings along."""
    settings = found.settings
    return Terms(
        found.member,
        home.place,
        new_id(),
        new_id(),
        lease=float(settings.lease),
        spec=found.spec,
        labels=settings.labels,
        hold=settings.on_lapse == "hold",
    )
