"""One machine: its disk, the process that runs there, and the operator who sends it policies."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

import trio
from msgspec import json
from msgspec.structs import replace

from shipper.sdk.aio import Asyncio
from tests.databases import in_memory
from tests.simulation.disk import Disk
from tests.simulation.node import Node
from tests.simulation.offers import secret
from tests.simulation.ports import outside
from tests.simulation.stage import Note, Stage

if TYPE_CHECKING:
    from tests.simulation.relayed.feeds import Feeds

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Policy = Callable[[int], dict[str, Any]]
"""What a site is to do, by the number of its credential."""


class Site(Stage):
    """A stage of its own for what lives and dies with one process; clock and notes are those of the world.

    `of` is the edge or principal whose place it has: a clone is of the same as the original.
    """

    def __init__(self, world: Stage, name: str, of: str, policy: Policy, feeds: Feeds | None = None) -> None:
        super().__init__(world.scenario)
        self.world, self.name, self.of, self.feeds = world, name, of, feeds
        self.clock, self.notes, self.log, self.faults = world.clock, world.notes, world.log, world.faults
        self.nursery = world.nursery
        self.disk = Disk(self)
        self.on_crash.append(self.disk.crash)
        self.instance = ""
        """Of the process that runs, as it names itself to a principal."""
        self.read_upto = 0
        """How many events of its feeds a process of this site has accepted, and how many changes of keys."""
        self.kept_upto = 0
        self.operator = Operator(self, policy)

    def random(self, name: str) -> Random:
        return self.world.random(f"{self.name}/{name}")

    def strikes(self, fault: str) -> bool:
        if self.world.healed:
            return False
        return super().strikes(fault)

    def note(self, kind: str, /, **facts: Any) -> Note:
        return self.world.record(self.life, kind, {"site": self.name, **facts})

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.world.until(condition)

    async def noted(self, is_it: Callable[[Note], bool], since: int = 0) -> Note:
        return await self.world.noted(is_it, since)

    def _end_livelock(self) -> None:
        raise AssertionError("the clock is that of the world")


class Copy:
    """What a state directory was at some time."""

    def __init__(self, disk: Disk) -> None:
        self._files = dict(disk.files)
        self._db = in_memory()
        disk.db.backup(self._db)
        self._is_empty = not disk.db.total_changes

    def restore(self, disk: Disk) -> None:
        """Put it there, where no process runs."""
        disk.files = dict(self._files)
        self._db.backup(disk.db)
        if not disk.db.total_changes and not self._is_empty:
            disk.db.execute("CREATE TEMP TABLE restored (x)")
            disk.db.execute("INSERT INTO restored VALUES (1)")


class SiteAsyncio:
    """The product's way to asyncio, where there is only trio; plugins learn from it on which site they run."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def call(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await function(*args)

    answer = call


def site_of(aio: Asyncio) -> Site:
    """Of the process that has this."""
    return cast(SiteAsyncio, aio).site


class Operator:
    """Sends the policies of one site, keeps its process alive, and revokes what is released."""

    def __init__(self, site: Site, policy: Policy) -> None:
        self.site, self._policy = site, policy
        self.node = Node(site, self.hear)
        self.revision = 0
        self.credential = 1
        self.active = 0
        self.drained = 0
        self.is_over = False
        self.observed: dict[str, Any] = {}
        self._sent: dict[int, tuple[str, set[str]]] = {}
        """By revision, its text and the credentials that it refers to."""

    def hear(self, line: bytes) -> None:
        message = json.decode(line)
        message.pop("pid", None)
        self.site.note("said", message=message)
        match message["type"]:
            case "ack" if message["stage"] in ("active", "drained"):
                self.active = max(self.active, message["revision"])
                if message["stage"] == "drained":
                    self.drained = max(self.drained, message["revision"])
                    self._revoke(message["credentials"]["released"])
            case "released":
                self._revoke(message["credentials"])
            case "nack" if message["reason"] not in ("stale", "superseded"):
                self.site.note("failed", error=f"nack: {message}")
            case "ready":
                self._supply(message["credentials_wanted"])
            case "observed":
                self.observed = message
                self._supply(message["credentials_wanted"])

    def _revoke(self, released: Iterable[str]) -> None:
        wanted = self._sent[self.revision][1]
        for id in sorted(set(released) - wanted):
            self.site.note("revoked", credential=id)

    def _supply(self, wanted: Iterable[str]) -> None:
        given = {id: secret(id) for id in wanted}
        if given:
            self.say({"type": "credentials", "credentials": given})

    def say(self, message: dict[str, Any]) -> None:
        self.node.send(json.encode(message) + b"\n")

    def offer(self) -> None:
        """Send the policy under a new number."""
        self.revision += 1
        policy = self._policy(self.credential)
        self._sent[self.revision] = json.encode(policy).decode(), set(_credentials(policy))
        self.site.note("sent", revision=self.revision)
        self._send()

    def rotate(self) -> None:
        """Use the next credential."""
        self.credential += 1
        self.offer()

    def _send(self) -> None:
        text, ids = self._sent[self.revision]
        self.say(
            {
                "type": "policy",
                "epoch": 0,
                "revision": self.revision,
                "policy": text,
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
                "credentials": {id: secret(id) for id in sorted(ids)},
            }
        )

    async def keep_alive(self) -> None:
        """Start the process, and again whenever it has ended, until the world is over."""
        site = self.site
        while not self.is_over:
            site.instance = site.random("instance").randbytes(16).hex()
            out = replace(outside(site, site.disk, self.node), asyncio=self._asyncio, plugins=_registry)
            hello = {"type": "hello", "protocol": 1, "heartbeat_seconds": 10.0, "state_keys": [_KEY]}
            self.node.send(b"")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._greet)
                await self.node.live(out, json.encode(hello) + b"\n")
                nursery.cancel_scope.cancel()
            if site.notes[-1].kind == "failed":
                site.nursery.cancel_scope.cancel("a process failed by itself")
            if not self.is_over:
                await trio.sleep(site.random("restarts").choice((0.01, 0.5, 3.0)))

    async def _greet(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._sent:
            self._send()
        else:
            self.offer()

    @asynccontextmanager
    async def _asyncio(self) -> AsyncIterator[Asyncio]:
        yield cast(Asyncio, SiteAsyncio(self.site))


_KEY = {"id": "k1", "key": base64.b64encode(b"k1".ljust(32)).decode()}


def _credentials(policy: dict[str, Any]) -> Iterable[str]:
    for output in policy["outputs"].values():
        if "credential" in output:
            yield output["credential"]
    for input in policy["inputs"].values():
        for edge in input.get("edges", {}).values():
            yield from edge["credentials"]


def _registry() -> Any:
    from tests.simulation.relayed.world import REGISTRY

    return REGISTRY
