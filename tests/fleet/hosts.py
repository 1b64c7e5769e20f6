"""A host of a member, and a fleet in memory, for tests of membership."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio
from msgspec.structs import replace

from shipper.fleet.home import Home
from shipper.fleet.membership.membership import Membership
from shipper.fleet.records import (
    ALIVE,
    HEAD,
    MEMBERS,
    SECRETS,
    VERSIONS,
    Alive,
    Head,
    Line,
    Report,
    Secret,
    Text,
    Undelivered,
    Version,
)
from shipper.fleet.seal import Seals, digest
from shipper.fleet.settings import FleetSettings
from shipper.process.environment import Environment
from shipper.sdk.units import Duration
from shipper.supervise.answers import Stage
from shipper.values import Revision
from tests.fleet.memory import MemoryStore

KEY = b"k" * 32
LEASE = 15.0


async def _at_once(function: Callable[..., object], /, *args: object, **_: object) -> object:
    await trio.lowlevel.checkpoint()
    return function(*args)


ENVIRONMENT = Environment(boottime=trio.current_time, wall=lambda: 1e9, in_thread=_at_once)  # type: ignore[arg-type]


@dataclass
class FakeHost:
    """What a supervisor would do, as lists."""

    used: set[str] = field(default_factory=set)
    keys: dict[str, bytes] = field(default_factory=dict)
    """What it knows of the contents of these."""
    waiting: Undelivered = field(default_factory=Undelivered)
    leases: list[float | None] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    troubles: dict[str, str] = field(default_factory=dict)
    joins: list[Version | None] = field(default_factory=list)

    def undelivered(self) -> Undelivered:
        return self.waiting

    def using(self) -> Sequence[str]:
        return sorted(self.used)

    def accepted(self) -> Sequence[str] | None:
        return None

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        return {id: [self.keys[id]] for id in self.using() if id in self.keys}

    def lease(self, until: float | None) -> None:
        self.leases.append(until)

    def withdraw(self, ids: Sequence[str]) -> None:
        self.withdrawn += ids

    def longest_request(self) -> float:
        return 5.0

    def trouble(self, cause: str, message: str | None) -> None:
        if message is None:
            del self.troubles[cause]
        else:
            self.troubles[cause] = message

    def joined(self, newest: Version | None) -> None:
        self.joins.append(newest)

    def forget(self, ids: Sequence[str]) -> None:
        self.forgotten += ids

    @property
    def sends_until(self) -> float:
        """The instant until which the sidecar may send."""
        return max((until for until in self.leases if until is not None), default=0.0)


class Fleet:
    """A fleet in memory, seen by a person who has its key."""

    def __init__(self) -> None:
        self.server = MemoryStore()
        self.seals = Seals("prod", [KEY])

    def open(self, key: str, type):
        entry = self.server.read(key).entry
        return None if entry is None else self.seals.open(key, entry.value, type)

    @property
    def head(self) -> Head:
        return self.open(HEAD, Head) or Head("prod")

    def report(self, name: str = "web-1") -> Report:
        return self.open(MEMBERS + name, Report)

    def alive(self, name: str = "web-1") -> Alive | None:
        return self.open(ALIVE + name, Alive)

    def put(self, key: str, record, lease: int | None = None) -> None:
        entry = self.server.read(key).entry
        raw = record if isinstance(record, bytes) or record is None else self.seals.seal(key, record)
        assert self.server.swap(key, raw, entry.revision if entry else 0, lease).done

    def live(self, name: str = "web-1") -> None:
        """Writes the key of a lease that does not end."""
        self.put(ALIVE + name, Alive("dir", "boot", "i"), self.server.grant(1e9, 1.0).id)

    def publish(self, policy: str = "a: 1", pins: Mapping[str, str] | None = None, **changes: object) -> Version:
        head = replace(self.head, **changes)
        text = Text(policy, dict(pins or {}), secrets.token_hex(8))
        version = Version(head.epoch, head.number + 1, digest(text))
        for name, id in text.secrets.items():
            if self.server.read(SECRETS + id).entry is None:
                self.put(SECRETS + id, Secret(name, f"content of {id}".encode()))
        self.put(VERSIONS + version.sha256, text)
        line = Line(version, 0.0, "tests", text.secrets, text.nonce)
        self.put(HEAD, replace(head, number=version.number, history=[*head.history, line]))
        return version

    def change(self, **changes: object) -> None:
        self.put(HEAD, replace(self.head, **changes))


@dataclass
class Running:
    """A running member."""

    member: Membership
    host: FakeHost
    client: object
    scope: trio.CancelScope

    def answer(self, stage: Stage | str, version: Version | None = None, reason: str = "", *problems: str) -> None:
        """Answers to a version, by default the offered one."""
        named = version or self.member.offered.version
        self.member.answered(f"{named.epoch}.{named.number}.{named.sha256}", Revision(0, 1), stage, reason, problems)

    async def offered(self, version: Version) -> None:
        """Returns when this version is offered."""
        await until(lambda: self.member.offered is not None and self.member.offered.version == version)


async def until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Returns when a condition holds, in the time of the clock."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


@asynccontextmanager
async def running(
    fleet: Fleet, directory: Path, *, name: str = "web-1", boot: str = "boot-1", host: FakeHost | None = None, **options
) -> AsyncIterator[Running]:
    """Runs a member until the end of the block, which is as sudden as kill -9."""
    os.makedirs(directory, exist_ok=True)
    settings = FleetSettings(
        name="prod", member=name, etcd=("http://127.0.0.1:2379",), keys=(KEY,), lease=Duration(LEASE), **options
    )
    host = host or FakeHost()
    client = fleet.server.client(name)
    home = Home.open(directory, "prod", name, ENVIRONMENT, boot=boot)
    member = Membership(client, fleet.seals, settings, home, host, environment=ENVIRONMENT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.run)
        yield Running(member, host, client, nursery.cancel_scope)
        nursery.cancel_scope.cancel()
