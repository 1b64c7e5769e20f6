"""Publishers of one fleet: each version has one number and one publisher, whatever is lost, killed or cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from shipper.fleet import publisher as module
from shipper.fleet.errors import Refused
from shipper.fleet.publisher import OutcomeUnknown, Publisher
from shipper.fleet.records import HEAD, SECRETS, VERSIONS, Head, Secret, Settings, Text
from shipper.fleet.seal import Seals, Unauthentic, digest
from shipper.fleet.store import SECONDS, Change, Found, Lease, Listing, StoreRefused, StoreUnreachable, Swapped
from shipper.sdk.errors import PolicyError
from tests.fleet.memory import LATE, Client, MemoryStore, Snapshot

SEALS = Seals("prod", [b"k" * 32])
POLICY = "version: 1\noutputs:\n  main: {type: console}\n"
WITH_ES = "version: 1\noutputs:\n  main: {type: elasticsearch, hosts: ['https://h:1'], credential: {fleet: es}}\n"


def of(client: Client, by: str = "me@host") -> Publisher:
    return Publisher(client, SEALS, by)


async def keep(server: MemoryStore, history: int) -> None:
    """Makes a fleet that keeps so many versions."""
    raw = SEALS.seal(HEAD, Head("prod", settings=Settings(history=history)))
    await server.client().swap(HEAD, raw, expected=0)


async def records(server: MemoryStore, prefix: str) -> list[str]:
    return [entry.key for entry in (await server.client().list(prefix)).entries]


async def checked(server: MemoryStore) -> Head:
    """Returns the head, after checking that the numbers rise by one, and that each version has its text and secrets."""
    publisher = of(server.client())
    head, _ = await publisher.head()
    numbers = [line.version.number for line in head.history]
    assert numbers == list(range(head.number - len(numbers) + 1, head.number + 1))
    assert len({line.publish for line in head.history}) == len(numbers)
    for line in head.history:
        text = await publisher.text(line.version)
        assert digest(text) == line.version.sha256
        assert text.secrets == line.secrets
    for id in head.secrets.values():
        entry = (await server.client().read(SECRETS + id)).entry
        assert entry is not None
        assert SEALS.open(entry.key, entry.value, Secret)
    return head


async def test_an_invalid_policy_and_an_unmet_condition_write_nothing(autojump_clock):
    server = MemoryStore()
    client = server.client()
    with pytest.raises(PolicyError, match="version"):
        await of(client).publish("outputs: {}\n")
    with pytest.raises(Refused, match="the newest version is 0, not 3"):
        await of(client).publish(POLICY, if_version=3)
    with pytest.raises(Refused, match="set each with"):
        await of(client).publish(WITH_ES)
    assert client.calls["written"] == 0


async def test_t152_1_publishers_in_bursts_each_get_numbers_of_their_own(autojump_clock):
    server = MemoryStore()
    got: list[tuple[str, int]] = []

    async def burst(name: str, delay: float) -> None:
        client = server.client(name)
        client.set(delay=delay)
        for _ in range(15):
            version = await of(client, name).publish(POLICY)
            got.append((name, version.number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(burst, "one", 0.01)
        nursery.start_soon(burst, "two", 0.013)

    head = await checked(server)
    assert head.number == 30
    assert sorted(number for _, number in got) == list(range(1, 31))
    assert {(line.by, line.version.number) for line in head.history} == set(got)
    for name in ("one", "two"):
        assert (numbers := [number for by, number in got if by == name]) == sorted(numbers)


async def test_t152_2_a_version_is_durable_before_the_head_names_it(autojump_clock):
    server = MemoryStore()
    publisher = of(server.client())
    async with server.client().watch("", 1) as changes:
        for number in range(5):
            await publisher.set_secret("es", f"id:{number}".encode())
            await publisher.publish(WITH_ES)
        seen: list[Change] = []
        with trio.move_on_after(1):
            async for batch in changes:
                seen += batch
    written: set[str] = set()
    for change in seen:
        if change.key == HEAD and change.entry is not None:
            head = SEALS.open(HEAD, change.entry.value, Head)
            assert {VERSIONS + line.version.sha256 for line in head.history} <= written
            assert {SECRETS + id for id in head.secrets.values()} <= written
        written.add(change.key)


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
@pytest.mark.parametrize("prefix", [HEAD, VERSIONS])
async def test_a_lost_answer_ends_in_one_version_and_certain_knowledge(autojump_clock, mishap, prefix):
    server = MemoryStore()
    client = server.client()
    client.lose(mishap, prefix)
    version = await of(client).publish(POLICY)
    await trio.sleep(LATE)
    head = await checked(server)

    assert [line.version for line in head.history] == [version]
    assert version.number == 1


@pytest.mark.parametrize("mishap", ["before", "after"])
async def test_a_swap_that_is_sent_again_to_a_restored_store_names_no_version_without_its_text(autojump_clock, mishap):
    """The restored store has the expected revision of the head again, and not the text that was written after it."""
    server = MemoryStore()
    await of(server.client()).publish(POLICY)
    snapshot, client = server.snapshot(), server.client()
    client.lose(mishap, HEAD)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(of(client).publish, POLICY + "# again\n")
        await trio.testing.wait_all_tasks_blocked()
        server.restore(snapshot)

    assert (await checked(server)).number == 2


@pytest.mark.parametrize(("mishap", "number"), [("before", 4), ("after", 1), ("late", 4)])
async def test_a_lost_answer_is_settled_though_others_publish_meanwhile(autojump_clock, mishap, number):
    server = MemoryStore()
    client = server.client()
    client.lose(mishap, HEAD)
    got = []

    async def lost() -> None:
        got.append(await of(client, "lost").publish(POLICY))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lost)
        await trio.sleep(1)
        for _ in range(3):
            await of(server.client(), "other").publish(POLICY)
    await trio.sleep(LATE)
    head = await checked(server)

    assert [line.by for line in head.history].count("lost") == 1
    assert [line.version for line in head.history if line.by == "lost"] == got
    assert got[0].number == number
    assert head.number == 4


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
async def test_a_lost_answer_to_a_secret_ends_in_one_id(autojump_clock, mishap):
    server = MemoryStore()
    client = server.client()
    client.lose(mishap, HEAD)
    id, version = await of(client).set_secret("es", b"id:first")
    client.lose(mishap, HEAD)
    assert await of(client).set_secret("es", b"id:first") == (id, None)
    head = await checked(server)
    assert (head.secrets, version) == ({"es": id}, None)

    client.lose(mishap, HEAD)
    await of(client).remove_secret("es")
    await trio.sleep(LATE)
    assert (await checked(server)).secrets == {}


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
async def test_a_lost_answer_to_settings_ends_in_these_settings(autojump_clock, mishap):
    server = MemoryStore()
    client = server.client()
    client.lose(mishap, HEAD)

    assert await of(client).configure(history=9) == Settings(history=9)
    await trio.sleep(LATE)
    await of(client).configure(release_grace=0.0)
    assert (await checked(server)).settings == Settings(9, 0.0)


async def test_settings_whose_outcome_is_unknown_end_in_an_error_that_says_where_to_look(autojump_clock):
    server = MemoryStore()
    client = server.client()
    client.lose("after", HEAD)

    async def cut() -> None:
        await trio.sleep(1)
        client.set(cut=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        with pytest.raises(OutcomeUnknown, match="settings were changed: see `shipper fleet settings`"):
            await of(client).configure(history=9)


async def test_a_store_that_is_away_ends_in_an_error_that_nothing_was_changed(autojump_clock):
    server = MemoryStore()
    client = server.client()
    client.set(cut=True)
    start = trio.current_time()
    with pytest.raises(StoreUnreachable, match="nothing was changed") as caught:
        await of(client).publish(POLICY)

    assert not isinstance(caught.value, OutcomeUnknown)
    assert trio.current_time() - start <= module.PATIENCE + 30
    assert await records(server, "") == []


@pytest.mark.parametrize("mishap", ["before", "after"])
async def test_a_store_that_stays_away_after_the_swap_ends_in_an_error_that_says_how_to_find_out(
    autojump_clock, mishap
):
    server = MemoryStore()
    client = server.client()
    client.lose(mishap, HEAD)

    async def cut() -> None:
        await trio.sleep(1)
        client.set(cut=True)

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        with pytest.raises(OutcomeUnknown, match="it is unknown whether version 1 was published") as caught:
            await of(client).publish(POLICY)
    assert trio.current_time() - start <= module.PATIENCE + 30
    head = await checked(server)
    shown = [line.publish[:8] in str(caught.value) for line in head.history]
    assert shown == ([True] if mishap == "after" else [])


async def test_after_a_new_key_of_the_fleet_a_secret_that_is_set_again_needs_the_former_key_no_more(autojump_clock):
    server = MemoryStore()
    id, _ = await of(server.client()).set_secret("es", b"id:first")
    await of(server.client()).publish(WITH_ES)
    both = Publisher(server.client(), Seals("prod", [b"n" * 32, b"k" * 32]), "me@host")
    again, version = await both.set_secret("es", b"id:first\n")

    assert again == id
    assert version is not None
    only = Seals("prod", [b"n" * 32])
    (record,) = (await server.client().list(SECRETS)).entries
    assert only.open(record.key, record.value, Secret) == Secret("es", b"id:first")
    assert (await Publisher(server.client(), only, "me@host").text(version)).secrets == {"es": id}
    assert await both.set_secret("es", b"id:first") == (id, None)


async def test_t152_1_a_publisher_that_is_killed_anywhere_leaves_numbers_that_rise(autojump_clock):
    for seconds in range(14):
        server = MemoryStore()
        await keep(server, 1)
        await of(server.client()).set_secret("es", b"id:first")
        await of(server.client()).publish(WITH_ES)
        client = server.client("killed")
        client.set(delay=1.0)
        with trio.move_on_after(seconds + 0.5):
            await of(client, "killed").set_secret("es", b"id:second")
            await of(client, "killed").publish(POLICY)
        before = (await checked(server)).number
        version = await of(server.client(), "next").publish(POLICY)

        assert version.number == before + 1
        head = await checked(server)
        assert await records(server, VERSIONS) == [VERSIONS + version.sha256]
        assert {SECRETS + id for id in head.fingerprints} == set(await records(server, SECRETS))


async def test_what_falls_out_of_the_history_is_removed_from_the_store(autojump_clock):
    server = MemoryStore()
    await keep(server, 3)
    versions = [await of(server.client()).publish(POLICY) for _ in range(8)]

    assert set(await records(server, VERSIONS)) == {VERSIONS + version.sha256 for version in versions[-3:]}
    with pytest.raises(Refused, match="the text of version 5 is no longer kept"):
        await of(server.client()).text(versions[4])


@given(
    delays=st.lists(st.integers(0, 5), min_size=2, max_size=4),
    lost=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["before", "after", "late"])), max_size=4),
    history=st.integers(1, 3),
)
def test_no_record_that_a_swap_on_its_way_needs_is_ever_removed(delays, lost, history):
    async def main() -> None:
        server = MemoryStore()
        await keep(server, history)
        clients = [server.client(str(at)) for at in range(len(delays))]
        for client, delay in zip(clients, delays, strict=True):
            client.set(delay=delay / 10)
        for at, mishap in lost:
            clients[at % len(clients)].lose(mishap, HEAD)
        await of(server.client()).set_secret("es", b"id:0")

        async def burst(client: Client) -> None:
            for number in range(3):
                with suppress(OutcomeUnknown):  # a short history has lost the line
                    await of(client, client.name).publish(WITH_ES)
                with suppress(OutcomeUnknown):
                    await of(client, client.name).set_secret("es", f"id:{number}".encode())

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(burst, client)
        await trio.sleep(LATE)
        await checked(server)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_publisher_that_learns_late_of_its_success_removes_nothing_that_is_newer(autojump_clock):
    server = MemoryStore()
    await keep(server, 2)
    await of(server.client()).publish(POLICY)
    client = server.client()
    client.lose("after", HEAD)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(of(client).publish, POLICY)
        await trio.sleep(1)
        third = await of(server.client()).publish(POLICY)
    head = await checked(server)

    assert head.newest == third
    assert len(await records(server, VERSIONS)) == 2


class Unpruned:
    """A store in which nothing can be removed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.largest = client.largest
        self.refused = 0

    async def swap(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Swapped:
        if value is None:
            self.refused += 1
            raise StoreRefused("no right to remove")
        return await self.client.swap(key, value, expected=expected, lease=lease, renews=renews)

    async def read(self, key: str, *, seconds: float = SECONDS) -> Found:
        return await self.client.read(key, seconds=seconds)

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        return await self.client.list(prefix, keys_only=keys_only)

    def watch(self, prefix: str, after: int) -> AbstractAsyncContextManager[AsyncIterator[Sequence[Change]]]:
        return self.client.watch(prefix, after)

    async def grant(self, seconds: float) -> Lease:
        return await self.client.grant(seconds)

    async def renew(self, lease: Lease) -> bool:
        return await self.client.renew(lease)

    async def revoke(self, lease: Lease) -> None:
        await self.client.revoke(lease)


async def test_a_failure_to_remove_what_is_old_fails_no_publish(autojump_clock):
    server = MemoryStore()
    await keep(server, 1)
    store = Unpruned(server.client())
    versions = [await Publisher(store, SEALS, "me@host").publish(POLICY) for _ in range(3)]

    assert [version.number for version in versions] == [1, 2, 3]
    assert store.refused == 2


class RestoredMeanwhile(Unpruned):
    """A store that is restored while the publisher is suspended: after it has read a record that it will remove."""

    def __init__(self, client: Client, to: Snapshot) -> None:
        super().__init__(client)
        self.to: Snapshot | None = to

    async def read(self, key: str, *, seconds: float = SECONDS) -> Found:
        found = await super().read(key, seconds=seconds)
        if key != HEAD and self.to is not None:
            self.client.server.restore(self.to)
            self.to = None
        return found

    async def swap(
        self,
        key: str,
        value: bytes | None,
        *,
        expected: int,
        lease: Lease | None = None,
        renews: Lease | None = None,
    ) -> Swapped:
        return await self.client.swap(key, value, expected=expected, lease=lease, renews=renews)


async def test_a_publisher_that_was_suspended_over_a_restore_removes_nothing_that_the_restored_head_names(
    autojump_clock,
):
    server = MemoryStore()
    await keep(server, 2)
    first, second = [await of(server.client()).publish(POLICY) for _ in range(2)]
    store = RestoredMeanwhile(server.client(), server.snapshot())
    await Publisher(store, SEALS, "me@host").publish(POLICY)

    assert store.to is None
    assert [line.version for line in (await checked(server)).history] == [first, second]
    assert await of(server.client()).text(first)


async def test_a_rollback_publishes_the_old_text_with_the_present_ids(autojump_clock):
    server = MemoryStore()
    publisher = of(server.client())
    await publisher.set_secret("es", b"id:first")
    await publisher.publish(WITH_ES)
    await publisher.publish(POLICY)
    id, _ = await publisher.set_secret("es", b"id:second")
    version = await publisher.rollback(1)
    text = await publisher.text(version)

    assert (version.number, text.policy, text.secrets) == (3, WITH_ES, {"es": id})
    with pytest.raises(Refused, match="there is no version 9: 1 to 3 are kept"):
        await publisher.rollback(9)


async def test_a_forged_head_or_text_is_never_built_upon(autojump_clock):
    server = MemoryStore()
    client = server.client()
    publisher = of(client)
    version = await publisher.publish(POLICY)
    other = await publisher.publish(POLICY + "# another\n")
    text = (await client.read(VERSIONS + version.sha256)).entry
    copied = (await client.read(VERSIONS + other.sha256)).entry
    assert text is not None
    assert copied is not None
    await client.swap(text.key, copied.value, expected=text.revision)
    with pytest.raises(Unauthentic):
        await publisher.rollback(1)
    head = (await client.read(HEAD)).entry
    assert head is not None
    forged = Seals("prod", [b"x" * 32]).seal(HEAD, Head("prod", number=99))
    await client.swap(HEAD, forged, expected=head.revision)
    written = client.calls["written"]
    for change in (publisher.publish(POLICY), publisher.set_secret("es", b"id:x"), publisher.rollback(2)):
        with pytest.raises(Unauthentic):
            await change
    assert client.calls["written"] == written


async def test_a_text_under_the_digest_of_another_is_refused_though_the_fleet_sealed_it(autojump_clock):
    client = MemoryStore().client()
    version = await of(client).publish(POLICY)
    key = VERSIONS + version.sha256
    entry = (await client.read(key)).entry
    assert entry is not None
    await client.swap(key, SEALS.seal(key, Text("another", {}, "n")), expected=entry.revision)

    with pytest.raises(Unauthentic, match="is the text of another version"):
        await of(client).text(version)


async def test_nothing_is_in_the_store_in_the_clear(autojump_clock):
    server = MemoryStore()
    publisher = of(server.client(), "canary@host")
    await publisher.set_secret("es", b"id:canary")
    await publisher.publish(WITH_ES + "# canary\n")

    entries = (await server.client().list("")).entries
    assert len(entries) == 3
    assert not any(b"canary" in entry.value or b"elasticsearch" in entry.value for entry in entries)


async def test_a_head_that_is_too_large_for_the_store_is_refused(autojump_clock):
    client = MemoryStore().client()
    client.largest = 100
    with pytest.raises(Refused, match="too many secrets for so long a history"):
        await of(client).publish(POLICY)


async def test_a_publisher_that_others_always_outrun_gives_up_and_says_so(autojump_clock):
    server = MemoryStore()
    slow = server.client("slow")
    slow.set(delay=1.0)

    async def fast() -> None:
        while True:
            await of(server.client(), "fast").set_secret("es", f"id:{trio.current_time()}".encode())
            await trio.sleep(0.5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fast)
        with pytest.raises(Refused, match="other publishers were faster for 60 s; nothing was changed: try again"):
            await of(slow, "slow").publish(POLICY)
        nursery.cancel_scope.cancel()
    assert (await checked(server)).number == 0
