"""A store that was restored from an older snapshot, up to the next version: members, observers, orders."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from shipper.fleet import operations
from shipper.fleet.errors import Refused
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.home import Home
from shipper.fleet.membership.membership import Membership
from shipper.fleet.observer import observing, wait
from shipper.fleet.operations import accept_restore
from shipper.fleet.publisher import Publisher
from shipper.fleet.publishing import essence
from shipper.fleet.records import HEAD, RESTORED, Release, Report, Version
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import Store
from shipper.sdk.units import Duration
from shipper.values import Revision
from tests.backends import etcd as server
from tests.fleet.hosts import ENVIRONMENT, KEY, FakeHost
from tests.fleet.memory import MemoryStore, jumping

POLICY = """
version: 1
outputs: {{main: {{type: elasticsearch, hosts: ["https://{host}"], credential: {{fleet: es}}}}}}
"""
SEALS = Seals("prod", [KEY])
LEASE = 3.0


@dataclass
class Backend:
    """A store that can be restored."""

    open: Callable[[], object]
    save: Callable[[], Awaitable[None]]
    restore: Callable[[], Awaitable[None]]


@asynccontextmanager
async def in_memory() -> AsyncIterator[Backend]:
    store = MemoryStore()
    kept: list[object] = []

    @asynccontextmanager
    async def client() -> AsyncIterator[Store]:
        yield store.client()

    async def save() -> None:
        await trio.lowlevel.checkpoint()
        kept.append(store.snapshot())

    async def restore() -> None:
        await trio.lowlevel.checkpoint()
        store.restore(kept[-1])

    yield Backend(client, save, restore)


@asynccontextmanager
async def on_etcd() -> AsyncIterator[Backend]:
    try:
        server.program("etcd")
    except server.Unavailable as why:
        pytest.skip(str(why))
    with server.cluster(1) as etcd:
        snapshot = etcd.directory / "snapshot"

        async def save() -> None:
            await trio.to_thread.run_sync(etcd.save, snapshot)

        async def restore() -> None:
            await trio.to_thread.run_sync(etcd.restore, snapshot)

        yield Backend(lambda: open_etcd(etcd.urls, "/prod/"), save, restore)


IN_MEMORY = pytest.param(in_memory, id="memory", marks=pytest.mark.trio(run=jumping))
ON_ETCD = pytest.param(on_etcd, id="etcd", marks=pytest.mark.backend)


@pytest.fixture(params=[IN_MEMORY])
def backend(request, monkeypatch) -> Callable[[], object]:
    monkeypatch.setattr(operations, "_SHORTEST_PAUSE", LEASE)
    return request.param


@dataclass
class Host:
    """A running member whose sidecar drains whatever it is offered; `ran` is its transcript."""

    member: Membership
    fake: FakeHost = field(default_factory=FakeHost)
    ran: list[Version] = field(default_factory=list)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.member.run)
            while True:
                if (offered := self.member.offered) is not None and offered.version not in self.ran:
                    self.ran.append(offered.version)
                    self.fake.used = {*offered.text.secrets.values()}
                    self.member.answered(offered.name, Revision(0, len(self.ran)), "drained")
                await trio.sleep(0.05)


@dataclass
class World:
    backend: Backend
    store: Store
    hosts: list[Host]

    @property
    def publisher(self) -> Publisher:
        return Publisher(self.store, SEALS, "tests")

    async def all_run(self, version: Version) -> None:
        while not all(host.ran and host.ran[-1] == version for host in self.hosts):  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def all_say(self, cause: str) -> None:
        while not all(cause in host.fake.troubles for host in self.hosts):  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def all_are_apart(self) -> None:
        while len((await self.store.list(RESTORED)).entries) < len(self.hosts):  # noqa: ASYNC110
            await trio.sleep(0.1)

    async def all_report(self, wanted: Callable[[Report], bool]) -> None:
        async with observing(self.store, SEALS) as observer:
            while not all(map(wanted, observer.view().reports.values())):
                await observer.changed()

    async def answer(self, version: int | Version, seconds: float = 0.0):
        """Returns the answer to somebody who knows nothing yet."""
        async with observing(self.store, SEALS) as observer:
            return await wait(observer, version, "drained", seconds, 10)


@asynccontextmanager
async def world(backend: Callable[[], object], directory: Path) -> AsyncIterator[World]:
    """Two members on a store with one version, which has drained everywhere."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(backend())
        stack.enter_context(trio.fail_after(120))
        store = await stack.enter_async_context(made.open())
        publisher = Publisher(store, SEALS, "tests")
        await publisher.set_secret("es", b"api_key: one")
        await publisher.publish(POLICY.format(host="one"))
        hosts = []
        for name in ("a", "b"):
            (directory / name).mkdir()
            settings = FleetSettings(
                name="prod", member=name, etcd=("http://127.0.0.1:1",), keys=(KEY,), lease=Duration(LEASE)
            )
            home, fake = Home.open(directory / name, "prod", name, ENVIRONMENT), FakeHost()
            client = await stack.enter_async_context(made.open())
            hosts.append(Host(Membership(client, SEALS, settings, home, fake, environment=ENVIRONMENT), fake))
        nursery = await stack.enter_async_context(trio.open_nursery())  # ends before the clients of its tasks
        for host in hosts:
            nursery.start_soon(host.run)
        found = World(made, store, hosts)
        while (await found.answer(1)).counts != {"reached": 2}:  # noqa: ASYNC110
            await trio.sleep(0.1)
        yield found
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("backend", [IN_MEMORY, ON_ETCD], indirect=True)
async def test_a_restored_store_is_said_and_accepted_and_no_version_of_it_comes_again(backend, tmp_path):
    async with world(backend, tmp_path) as one:
        await one.backend.save()
        lost = await one.publisher.publish(POLICY.format(host="two"))
        await one.all_run(lost)
        assert (await one.answer(lost, 30)).state == "open"

        await one.backend.restore()
        await one.all_say("store_restored")
        assert [host.member.offered.version for host in one.hosts] == [lost, lost]
        while (verdict := await one.answer(1)).state != "store_restored":  # noqa: ASYNC110
            await trio.sleep(0.1)
        assert "has seen version 2" in verdict.warnings[0]

        accepted = await accept_restore(one.store, SEALS, "tests")
        assert (accepted.epoch, accepted.registered, accepted.missing) == (1, 2, [])
        await one.all_run(accepted.version)
        assert (await one.answer(accepted.version, 30)).state == "open"
        assert (await one.answer(accepted.version)).counts == {"reached": 2}
        assert not any(host.fake.troubles for host in one.hosts)

        newest = await one.publisher.publish(POLICY.format(host="two"))
        await one.all_run(newest)
        assert newest[:2] == (1, 3)
        for host in one.hosts:
            assert len(set(host.ran)) == len(host.ran) == 4
            assert host.fake.withdrawn == []


async def test_a_secret_that_was_revoked_in_the_lost_time_is_refused_until_it_is_set_anew(backend, tmp_path):
    async with world(backend, tmp_path) as one:
        await one.backend.save()
        id, newest = await one.publisher.set_secret("es", b"api_key: two")
        await one.all_run(newest)
        head, revision = await one.publisher.head()
        old = head.history[0].secrets["es"]
        released = replace(head, released={old: Release("es", 0.0, "done")})
        assert (await one.store.swap(HEAD, SEALS.seal(HEAD, released), expected=revision)).done
        await one.all_report(lambda report: old in report.released)

        await one.backend.restore()
        await one.all_say("store_restored")
        with pytest.raises(Refused, match="shipper fleet secret set es"):
            await accept_restore(one.store, SEALS, "tests", force=True)
        again, _ = await one.publisher.set_secret("es", b"api_key: two")
        accepted = await accept_restore(one.store, SEALS, "tests", force=True)
        assert again not in (old, id)
        await one.all_run(accepted.version)
        assert [host.member.offered.text.secrets for host in one.hosts] == [{"es": again}] * 2


async def test_content_that_members_use_and_the_store_has_lost_gets_its_id_again_and_the_store_is_accepted(
    backend, tmp_path
):
    """Else the advice to set it would have the content in use released under its old id."""
    async with world(backend, tmp_path) as one:
        await one.backend.save()
        id, newest = await one.publisher.set_secret("es", b"api_key: two")
        await one.all_run(newest)
        for host in one.hosts:
            host.fake.used, host.fake.keys = {id}, {id: essence(b"api_key: two")}
        await one.all_report(lambda report: id in report.contents)

        await one.backend.restore()
        await one.all_are_apart()
        with pytest.raises(Refused, match="shipper fleet secret set es --file PATH"):
            await accept_restore(one.store, SEALS, "tests")
        again, _ = await one.publisher.set_secret("es", b"api_key: two")
        await one.all_are_apart()
        accepted = await accept_restore(one.store, SEALS, "tests")
        await one.all_run(accepted.version)
        head, _ = await one.publisher.head()

        assert again == id
        assert (head.secrets["es"], [host.fake.withdrawn for host in one.hosts]) == (id, [[], []])


async def test_content_is_known_again_by_members_that_take_no_part(backend, tmp_path):
    """A person may set it before the order to accept the store."""
    async with world(backend, tmp_path) as one:
        await one.backend.save()
        id, newest = await one.publisher.set_secret("es", b"api_key: two")
        await one.all_run(newest)
        for host in one.hosts:
            host.fake.used, host.fake.keys = {id}, {id: essence(b"api_key: two")}

        await one.backend.restore()
        await one.all_are_apart()
        again, _ = await one.publisher.set_secret("es", b"api_key: two")

    assert again == id
