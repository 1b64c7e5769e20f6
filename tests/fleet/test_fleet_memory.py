"""The store in memory: its faults, as far as the laws for every store do not test them."""

import pytest
import trio

from shipper.fleet.store import StoreUnreachable
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
