"""The store in memory: its faults, as far as the laws for every store do not test them."""

import pytest
import trio

from shipper.fleet.store import Compacted, StoreUnreachable
from tests.fleet.memory import LATE, MemoryStore


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
