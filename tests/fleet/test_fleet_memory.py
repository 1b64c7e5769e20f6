"""The store in memory: its faults, as far as the laws for every store do not test them."""

import pytest
import trio

from shipper.fleet.store import SECONDS, Compacted, StoreRefused, StoreUnreachable
from tests.fleet.memory import LATE, MemoryStore


async def test_a_client_that_is_cut_off_gets_an_error_after_the_bound_and_nothing_has_changed(autojump_clock):
    server = MemoryStore()
    client = server.client("one")
    client.set(cut=True)
    start = trio.current_time()
    with pytest.raises(StoreUnreachable):
        await client.swap("a", b"1", expected=0)
    assert trio.current_time() - start == SECONDS
    assert (await server.client().read("a")).entry is None


@pytest.mark.parametrize(("mishap", "now", "later"), [("before", 0, 0), ("after", 1, 1), ("late", 0, 1)])
async def test_a_swap_that_loses_its_answer_has_its_effect_never_or_at_once_or_late(autojump_clock, mishap, now, later):
    server = MemoryStore()
    client = server.client()
    client.lose(mishap)
    with pytest.raises(StoreUnreachable):
        await client.swap("a", b"1", expected=0)
    assert len((await client.list("")).entries) == now
    await trio.sleep(LATE)
    assert len((await client.list("")).entries) == later


async def test_a_late_swap_of_a_key_that_has_changed_has_no_effect(autojump_clock):
    server = MemoryStore()
    client = server.client()
    client.lose("late")
    with pytest.raises(StoreUnreachable):
        await client.swap("a", b"1", expected=0)
    await client.swap("a", b"2", expected=0)
    await trio.sleep(LATE)
    found = await client.read("a")
    assert found.entry is not None
    assert found.entry.value == b"2"


async def test_a_watch_that_is_delayed_yields_later_and_nothing_is_missed(autojump_clock):
    server = MemoryStore()
    client = server.client()
    client.set(watch_delay=3.0)
    async with client.watch("", (await client.list("")).at) as changes:
        await client.swap("a", b"1", expected=0)
        start = trio.current_time()
        await client.swap("b", b"1", expected=0)
        seen = [change.key for change in await anext(changes)]
        assert trio.current_time() - start == 3.0
    assert seen == ["a", "b"]


async def test_a_watch_of_a_client_that_is_cut_off_for_a_while_goes_on_and_after_the_bound_raises(autojump_clock):
    server = MemoryStore()
    client, other = server.client(), server.client()
    async with client.watch("", (await client.list("")).at) as changes:
        client.set(cut=True)
        await other.swap("a", b"1", expected=0)
        with trio.move_on_after(SECONDS - 1) as scope:
            await anext(changes)
        assert scope.cancelled_caught
        client.set(cut=False)
        assert [change.key for change in await anext(changes)] == ["a"]
        client.set(cut=True)
        with pytest.raises(StoreUnreachable):
            await anext(changes)


async def test_a_client_that_is_stopped_gets_answers_when_it_goes_on_and_its_lease_has_ended(autojump_clock):
    server = MemoryStore()
    client = server.client()
    lease = await client.grant(5)
    await client.swap("a", b"1", expected=0, lease=lease)
    client.set(stopped=True)
    async with trio.open_nursery() as nursery:
        answers: list[bool] = []

        async def renew() -> None:
            answers.append(await client.renew(lease))

        nursery.start_soon(renew)
        await trio.sleep(60)
        assert answers == []
        client.set(stopped=False)
    assert answers == [False]
    assert (await client.read("a")).entry is None


async def test_a_client_with_a_slow_clock_loses_its_lease_earlier(autojump_clock):
    server = MemoryStore()
    slow = server.client(rate=1.5)
    await slow.swap("a", b"1", expected=0, lease=await slow.grant(15))
    async with slow.watch("a", (await slow.read("a")).at) as changes:
        await anext(changes)
    assert trio.current_time() == pytest.approx(10)


async def test_a_restore_goes_back_breaks_watches_and_refreshes_leases(autojump_clock):
    server = MemoryStore()
    client = server.client()
    lease = await client.grant(10)
    first = await client.swap("a", b"1", expected=0, lease=lease)
    snapshot = server.snapshot()
    await client.swap("b", b"1", expected=0)
    gone = await client.grant(10)
    await trio.sleep(9)
    async with client.watch("", first.at) as changes:
        server.restore(snapshot)
        with pytest.raises(Compacted):
            await anext(changes)
    listing = await client.list("")
    assert ([entry.key for entry in listing.entries], listing.at) == (["a"], first.at)
    await trio.sleep(9)
    assert (await client.read("a")).entry is not None
    assert await client.renew(lease)
    assert not await client.renew(gone)


async def test_no_lease_ends_while_the_store_is_down_and_each_begins_anew_after(autojump_clock):
    server = MemoryStore()
    client = server.client()
    lease = await client.grant(10)
    server.stop()
    await trio.sleep(3600)
    with pytest.raises(StoreUnreachable):
        await client.renew(lease)
    server.start()
    await trio.sleep(9)
    assert await client.renew(lease)


async def test_a_watch_may_be_broken_by_force_and_for_one_client_alone(autojump_clock):
    server = MemoryStore()
    one, other = server.client(), server.client()
    async with one.watch("", 1) as broken, other.watch("", 1) as whole:
        one.compact()
        await one.swap("a", b"1", expected=0)
        with pytest.raises(Compacted):
            await anext(broken)
        assert [change.key for change in await anext(whole)] == ["a"]


async def test_a_value_that_is_too_large_is_refused(autojump_clock):
    with pytest.raises(StoreRefused):
        await MemoryStore().client().swap("a", bytes(1_400_001), expected=0)
