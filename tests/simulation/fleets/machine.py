"""One host of a fleet: the product's membership and candidate, a small agent, and what may befall them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import trio

from shipper.fleet.home import Home
from shipper.fleet.membership.membership import Membership, NotLeft
from shipper.fleet.memory import Kept, Memory
from shipper.fleet.observer import observing
from shipper.fleet.records import Leader, Undelivered, Version
from shipper.fleet.releasing import Releasing
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import SECONDS
from shipper.membership.ids import new_id
from shipper.process.environment import Environment
from shipper.sdk.units import Duration
from shipper.supervise.config import OnRelease
from shipper.values import Revision
from tests.fleet.memory import Client, MemoryStore, Mishap
from tests.simulation.fleets.sidecar import REQUEST, Directory, Sidecar
from tests.simulation.fleets.transcript import Transcript

T = TypeVar("T")
KEY = b"k" * 32
FLEET = "prod"
ANSWERS = 1000
"""Answers in the pipe of a sidecar."""


class Link(Client):
    """The connection of one process; each call is two instants at which the process may be killed."""

    effect: Callable[[], Awaitable[None]]

    async def _call(self, kind: str, act: Callable[[], T], mishap: Mishap | None = None, seconds: float = SECONDS) -> T:
        await self.effect()
        answer = await super()._call(kind, act, mishap, seconds)
        await self.effect()
        return answer


class FilesInMemory(Home):
    """The files of a membership, in a simulated directory."""

    def __init__(self, directory: Directory, member: str, place: str, effect: Callable[[], Awaitable[None]]) -> None:
        self.place = place
        self.memory = directory.memory or Memory(FLEET, member, new_id())
        self.kept = directory.kept
        self._files, self._effect = directory, effect

    async def save(self, memory: Memory) -> None:
        await self._effect()
        self._files.memory = self.memory = memory
        await self._effect()

    async def keep(self, kept: Kept) -> None:
        await self._effect()
        self._files.kept = self.kept = kept
        await self._effect()


class Machine:
    """A host; `keep_alive` restarts its process until it is `gone`."""

    def __init__(
        self,
        name: str,
        server: MemoryStore,
        seals: Seals,
        transcript: Transcript,
        random: Random,
        *,
        hold: bool = False,
        releases: bool = False,
        lease: float = 15.0,
        rate: float = 1.0,
        delay: float = 0.0,
        pace: float = 1.0,
        refuses: float = 0.0,
    ) -> None:
        self.name, self.server, self.seals, self.transcript, self.random = name, server, seals, transcript, random
        self.hold, self.releases, self.seconds, self.rate = hold, releases, lease, rate
        self.delay, self.pace, self.refuses = delay, pace, refuses
        self.boot = f"boot {random.getrandbits(32):x}"
        self.directory = Directory()
        self.life = 0
        """Counts the directories of this host, one after the other."""
        self.cut = self.stopped = self.sidecar_stopped = self.gone = False
        self.idle = False
        """Its sidecar has no events."""
        self.kill_in: int | None = None
        """The process is killed after so many more effects."""
        self.membership: Membership | None = None
        self.sidecar: Sidecar | None = None
        self.troubles: dict[str, str] = {}
        self.link: Link | None = None
        self.starts = self.writes = 0
        self._scope = self._sidecar_scope = trio.CancelScope()
        self._turned = trio.Event()
        self._withdrawn: set[str] = set()

    @property
    def id(self) -> str:
        """Names the host with its present directory."""
        return f"{self.name}#{self.life}"

    def clock(self) -> float:
        """CLOCK_BOOTTIME of this machine."""
        return 1000.0 + trio.current_time() / self.rate

    # what befalls it

    def kill(self) -> None:
        """kill -9 of all its processes."""
        if self.link is not None:
            self.link.set(stopped=True)
        self._scope.cancel("kill -9")

    def set(self, **faults: bool) -> None:
        """Changes `cut`, `stopped`, or `sidecar_stopped`."""
        for name, value in faults.items():
            setattr(self, name, value)
        self._turned.set()
        self._turned = trio.Event()
        if self.link is not None and not self._scope.cancel_called:
            self.link.set(cut=self.cut, stopped=self.stopped)

    async def running(self) -> None:
        while self.stopped:
            await self._turned.wait()

    async def _sidecar_running(self) -> None:
        while self.sidecar_stopped:
            await self._turned.wait()

    async def effect(self) -> None:
        await self.running()
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in <= 0:
                self.kill_in = None
                self.kill()
                await trio.sleep_forever()

    # its life

    async def keep_alive(self) -> None:
        while not self.gone:
            with trio.CancelScope() as self._scope:
                await self._live()
            self.writes += self.link.calls["written"] if self.link is not None else 0
            self.link = self.membership = self.sidecar = None
            await trio.sleep(self.random.uniform(0.1, 3.0))

    async def _live(self) -> None:
        self.starts += 1
        link = self.link = Link(self.server, self.name, self.rate)
        link.effect = self.effect
        link.set(cut=self.cut, stopped=self.stopped, delay=self.delay)
        home = FilesInMemory(self.directory, self.name, self.boot, self.effect)
        settings = FleetSettings(
            name=FLEET,
            member=self.name,
            etcd=("http://127.0.0.1:2379",),
            keys=(KEY,),
            lease=Duration(self.seconds),
            on_lapse="hold" if self.hold else "continue",
            on_release=OnRelease(["revoke"]) if self.releases else None,
            rebind_revoked=True,
        )
        environment = Environment(boottime=self.clock, wall=trio.current_time, draw=self.random)
        self._withdrawn.clear()
        self.troubles.clear()
        self.membership = Membership(link, self.seals, settings, home, self, environment=environment)
        self._answers, answers = trio.open_memory_channel[tuple[Any, ...]](ANSWERS)
        self.sidecar = self._new_sidecar(leased=self.membership.holding)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.membership.run)
            nursery.start_soon(self._agent)
            nursery.start_soon(self._listen, answers)
            self._sidecar_scope = await nursery.start(self._run_sidecar)
            if self.releases:
                nursery.start_soon(self._releasing(link, self.membership).run)

    def _new_sidecar(self, *, leased: bool) -> Sidecar:
        return Sidecar(
            self.id,
            self.directory,
            self.transcript,
            self.random,
            self.clock,
            self._sidecar_running,
            lambda *answer: self._answers.send_nowait(answer),
            leased=leased,
            refuses=lambda: self.random.random() < self.refuses,
            pace=self.pace,
            idle=self.idle,
        )

    async def _run_sidecar(self, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        assert self.sidecar is not None
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await self.sidecar.run()

    def _releasing(self, link: Link, membership: Membership) -> Releasing:
        return Releasing(
            link,
            self.seals,
            FLEET,
            Leader(self.name, new_id()),
            self.seconds,
            OnRelease(["revoke"]),
            observing=observing,
            environment=lambda: {"HOST": self.name},
            trouble=lambda cause, message: None,
            trusted=lambda: membership.registered,
            wall=trio.current_time,
        )

    async def leave(self) -> None:
        """`shipper fleet leave`: the sidecar stops first."""
        if self.membership is not None:
            self._sidecar_scope.cancel("the host leaves")
            await trio.lowlevel.checkpoint()
            try:
                await self.membership.leave()
            except NotLeft:
                return
            self.gone = True
            self.kill()

    # the agent

    async def _agent(self) -> None:
        """Passes on what the membership offers: durable first."""
        assert self.membership is not None
        assert self.sidecar is not None
        sent = None
        while True:
            offered = self.membership.offered
            if offered is not None and offered.version != sent:
                pins = tuple(sorted(offered.text.secrets.values()))
                await self.effect()
                self.directory.ledger |= set(pins)
                self.directory.sent = offered.version, pins
                await self.effect()
                sent = offered.version
                self._withdrawn -= set(pins)
                supplied = self.directory.ledger - self._withdrawn
                self.sidecar.write("policy", offered.version, pins, offered.text.policy, supplied)
            else:
                await self.membership.changed()
                await self.running()

    async def _listen(self, answers: trio.MemoryReceiveChannel[tuple[Any, ...]]) -> None:
        """Reads the answers of the sidecar."""
        assert self.membership is not None
        async for stage, version, in_use in answers:
            await trio.sleep(self.random.uniform(0.0, 0.3) * self.pace)
            await self.effect()
            self.directory.ledger = in_use | set(self.directory.sent[1] if self.directory.sent else ())
            if version is not None:
                name = f"{version.epoch}.{version.number}.{version.sha256}"
                reason = "failed" if stage == "refused" else ""
                self.membership.answered(name, Revision(0, version.number), stage, reason, [])

    # membership.Host

    def undelivered(self) -> Undelivered:
        return Undelivered(len(self.directory.queue))

    def using(self) -> Sequence[str]:
        return sorted(self.directory.ledger)

    def accepted(self) -> Sequence[str] | None:
        return None

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        return {}

    def lease(self, until: float | None) -> None:
        if self.sidecar is not None:
            self.sidecar.write("lease", until)

    def withdraw(self, ids: Sequence[str]) -> None:
        self._withdrawn |= set(ids)
        if self.sidecar is not None:
            self.sidecar.write("withdraw", ids)

    def longest_request(self) -> float:
        return REQUEST

    def trouble(self, cause: str, message: str | None) -> None:
        self.troubles.pop(cause, None)
        if message is not None:
            self.troubles[cause] = message

    def joined(self, newest: Version | None) -> None:
        pass

    def forget(self, ids: Sequence[str]) -> None:
        self.directory.ledger -= set(ids)
