"""One candidate at a time, and the token that gives the authority."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from shipper.fleet.election import Election
from shipper.fleet.records import HEAD, LEADER, Head, Leader
from shipper.fleet.seal import Seals
from shipper.fleet.store import ABSENT, Change, StoreError
from tests.fleet.memory import Client, MemoryStore

SEALS = Seals("prod", [b"k" * 32])
LEASE = 15.0


@pytest.fixture
async def server() -> MemoryStore:
    store = MemoryStore()
    await store.client().swap(HEAD, SEALS.seal(HEAD, Head("prod")), expected=ABSENT)
    return store


async def head(server: MemoryStore) -> Head:
    entry = (await server.client().read(HEAD)).entry
    assert entry is not None
    return SEALS.open(HEAD, entry.value, Head)


class Hosts:
    """Candidates that stand for election again and again, and what they did."""

    def __init__(self, server: MemoryStore, lease: float = LEASE) -> None:
        self.server, self.lease = server, lease
        self.said: list[str] = []
        self.clients: dict[str, Client] = {}

    def election(self, name: str) -> Election:
        client = self.clients.setdefault(name, self.server.client(name))
        return Election(client, SEALS, Leader(name, f"process of {name}"), self.lease)

    async def stand(self, name: str, act: Callable[[int], Awaitable[None]] | None = None) -> None:
        while True:
            try:
                await self.election(name).lead(act or self.leads(name))
            except* StoreError:
                self.said.append(f"{name} fails")
            await trio.sleep(1)

    def leads(self, name: str) -> Callable[[int], Awaitable[None]]:
        async def act(token: int) -> None:
            self.said.append(f"{name} leads {token}")
            try:
                await trio.sleep_forever()
            finally:
                self.said.append(f"{name} stops")

        return act


async def test_one_candidate_leads_and_its_token_is_in_the_head(autojump_clock: MockClock, server: MemoryStore) -> None:
    hosts = Hosts(server)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hosts.stand, "a")
            await trio.sleep(1)
            nursery.start_soon(hosts.stand, "b")

    now = await head(server)
    assert (now.token, now.leader, hosts.said) == (1, "a", ["a leads 1", "a stops"])


async def test_the_next_candidate_leads_at_once_after_one_that_ended_in_order(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    hosts, resign = Hosts(server), trio.Event()

    async def act(token: int) -> None:
        await resign.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hosts.election("a").lead, act)
        await trio.sleep(1)
        nursery.start_soon(hosts.stand, "b")
        await trio.sleep(1)
        resign.set()
        await trio.sleep(1)
        assert hosts.said == ["b leads 2"]
        nursery.cancel_scope.cancel()


async def test_t152_7_a_candidate_that_is_cut_off_stops_before_another_one_leads(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    hosts = Hosts(server)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hosts.stand, "a")
            await trio.sleep(1)
            nursery.start_soon(hosts.stand, "b")
            await trio.sleep(1)
            hosts.clients["a"].set(cut=True)
            await trio.sleep(LEASE)
            assert hosts.said[:2] == ["a leads 1", "a stops"]
            await trio.sleep(LEASE)
            assert [line for line in hosts.said if "leads" in line] == ["a leads 1", "b leads 2"]
            hosts.clients["a"].set(cut=False)

    assert (await head(server)).token == 2


async def test_an_old_key_of_the_leader_that_no_lease_removes_is_taken_over(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    hosts = Hosts(server)
    await server.client().swap(LEADER, SEALS.seal(LEADER, Leader("b", "dead")), expected=0)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hosts.stand, "a")
            await trio.sleep(2)
            found = (await server.client().read(LEADER)).entry
            assert found is not None
            await server.client().swap(LEADER, found.value, expected=found.revision)  # a copy, over a live one's
            nursery.start_soon(hosts.stand, "b")
            await trio.sleep(LEASE)

    leads = [line for line in hosts.said if "leads" in line]
    assert leads[0] == "a leads 1"
    assert leads[1] == "b leads 2"


async def test_t152_7_phantom_having_the_key_once_gives_no_authority(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    """It was stopped after the swap of the key, and hears that this was done when another one is elected already."""
    hosts = Hosts(server, lease=5.0)
    client = hosts.clients["a"] = server.client("a")
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            client.set(delay=1.0)  # the key is swapped at 5: after reading it, a grant, and half of the swap
            nursery.start_soon(hosts.stand, "a")
            await trio.sleep(5.5)
            assert (await server.client().read(LEADER)).entry is not None
            client.set(stopped=True, delay=0.0)
            nursery.start_soon(hosts.stand, "b")
            await trio.sleep(6)
            assert hosts.said == ["b leads 1"]
            client.set(stopped=False)

    assert (await head(server)).leader == "b"
    assert hosts.said == ["b leads 1", "b stops"]


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
@pytest.mark.parametrize("key", [LEADER, HEAD])
async def test_a_lost_answer_costs_another_election_at_most(
    autojump_clock: MockClock, server: MemoryStore, mishap: str, key: str
) -> None:
    hosts = Hosts(server)
    client = hosts.clients["a"] = server.client("a")
    client.lose(mishap, key)  # type: ignore[arg-type]
    with trio.move_on_after(200):
        await hosts.stand("a")

    leads = [line for line in hosts.said if "leads" in line]
    assert leads == [f"a leads {(await head(server)).token}"]


async def test_an_outage_of_the_store_ends_the_term_and_the_next_one_has_a_higher_token(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    hosts = Hosts(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hosts.stand, "a")
        await trio.sleep(1)
        server.stop()
        await trio.sleep(100)
        assert hosts.said[:2] == ["a leads 1", "a stops"]
        server.start()
        await trio.sleep(100)
        nursery.cancel_scope.cancel()

    assert [line for line in hosts.said if "leads" in line][1:] == ["a leads 2"]


async def test_candidates_wait_for_the_head_of_a_new_fleet(autojump_clock: MockClock) -> None:
    server = MemoryStore()
    hosts = Hosts(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hosts.stand, "a")
        await trio.sleep(100)
        assert hosts.said == []
        await server.client().swap(HEAD, SEALS.seal(HEAD, replace(Head("prod"), token=7)), expected=ABSENT)
        await trio.sleep(1)
        assert hosts.said == ["a leads 8"]
        nursery.cancel_scope.cancel()


async def test_a_candidate_whose_lease_the_store_has_ended_stops_at_its_next_renewal(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    hosts = Hosts(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hosts.stand, "a")
        await trio.sleep(1)
        server.revoke(1)
        await trio.sleep(LEASE / 3)
        assert hosts.said[:2] == ["a leads 1", "a stops"]
        nursery.cancel_scope.cancel()


async def test_of_two_candidates_that_find_the_key_vacant_one_leads_and_the_other_one_waits(
    autojump_clock: MockClock, server: MemoryStore
) -> None:
    hosts = Hosts(server)
    with trio.move_on_after(100):
        async with trio.open_nursery() as nursery:
            for name in "ab":
                hosts.clients[name] = server.client(name)
                hosts.clients[name].set(delay=0.2)
                nursery.start_soon(hosts.stand, name)

    assert len([line for line in hosts.said if "leads" in line]) == 1


async def test_a_candidate_waits_while_the_key_only_changes(autojump_clock: MockClock, server: MemoryStore) -> None:
    hosts, other = Hosts(server), server.client("b")
    lease = await other.grant(1000.0)
    value = SEALS.seal(LEADER, Leader("b", "process of b"))
    async with trio.open_nursery() as nursery:
        first = await other.swap(LEADER, value, expected=ABSENT, lease=lease)
        nursery.start_soon(hosts.stand, "a")
        await trio.sleep(1)
        await other.swap(LEADER, value, expected=first.at, lease=lease)
        await trio.sleep(1)
        assert hosts.said == []
        await other.revoke(lease)
        await trio.sleep(1)
        assert hosts.said == ["a leads 1"]
        nursery.cancel_scope.cancel()


async def test_a_candidate_whose_watch_ends_asks_again(autojump_clock: MockClock) -> None:
    server = MemoryStore()
    hosts, other, client = Hosts(server), server.client("b"), server.client("a")
    hosts.clients["a"] = client

    @asynccontextmanager
    async def ending(prefix: str, after: int) -> AsyncIterator[AsyncIterator[Sequence[Change]]]:
        async def nothing() -> AsyncIterator[Sequence[Change]]:
            await trio.sleep(1)
            for one in ():
                yield one

        yield nothing()

    client.watch = ending  # type: ignore[method-assign]
    lease = await other.grant(1000.0)
    await other.swap(LEADER, SEALS.seal(LEADER, Leader("b", "b")), expected=ABSENT, lease=lease)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hosts.stand, "a")
        await trio.sleep(5)
        assert {*hosts.said} == {"a fails"}
        await other.revoke(lease)
        await trio.sleep(20)
        assert "a leads 1" not in hosts.said, "there is no head yet"
        await other.swap(HEAD, SEALS.seal(HEAD, Head("prod")), expected=ABSENT)
        await trio.sleep(60)
        assert hosts.said[-1] == "a leads 1"
        nursery.cancel_scope.cancel()
