"""The order `forget_edge` at a relay's door, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from shipper.plugin import Asyncio, Later
from shipper.plugin.relay import NotOrdered
from shipper.plugin.state import Change, Quota
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.input import Edge
from shipper_plugins.relay.principal import forget as relay_forget
from shipper_plugins.relay.principal.door import Refused
from shipper_plugins.relay.principal.forget import begun
from shipper_plugins.relay.principal.state import KeyedState
from shipper_plugins.relay.state import Limits
from tests.plugins.relay.pair import Principal, edge, entry, principal
from tests.plugins.running import becomes

GONE = "shipper_plugins.relay.principal.generations.GONE_SECONDS"
LIMITS = Limits(frozenset({"things"}), 1000, Quota(1000, 1 << 20))


async def gone(door: Principal) -> None:
    """No edge is connected any more."""
    await becomes(lambda: all(one.connected_seconds is None for one in door.source.edges()))


async def keys(context: RecordingInputContext, *owners: str) -> None:
    await context.keep([Change("things", f"k{n}", b"{}", owner) for owner in owners for n in range(3)])


def left(context: RecordingInputContext) -> list[str]:
    return sorted({owner for (owner, _, _), (document, _) in context.state.items() if document is not None})


async def test_what_a_forgotten_edge_sends_again_enters_again(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GONE, 0.0)
    context = RecordingInputContext(aio=aio)
    async with principal(aio, context=context) as door:
        for _ in range(2):
            async with edge(aio, door.url) as sender:
                await sender.send(entry(1))
        await gone(door)
        assert await door.source.forget_edge("berlin", "keep") == 0
        assert context.stored == {}
        async with edge(aio, door.url) as sender:
            await sender.send(entry(1))

    assert door.numbers == [1, 1]


async def test_answers_that_a_forgotten_edge_waited_for_are_gone(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GONE, 0.0)
    async with principal(aio, acknowledge="delivered") as door:
        async with edge(aio, door.url) as sender, trio.open_nursery() as nursery:
            nursery.start_soon(sender.send, entry(1))
            await door.context.wait_until(lambda: bool(door.context.awaited))
            nursery.cancel_scope.cancel()
        await gone(door)
        await door.source.forget_edge("berlin", "keep")

        assert door.context.awaited == {}


async def test_an_edge_that_is_connected_is_not_forgotten(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        before = dict(door.context.stored)
        with pytest.raises(NotOrdered, match="edge berlin is connected") as refused:
            await door.source.forget_edge("berlin", "delete")
        await sender.send(entry(2))

    assert refused.value.code == "edge_connected"
    assert before.keys() == door.context.stored.keys()


async def test_an_edge_that_the_policy_has_no_more_is_forgotten_though_it_is_connected(aio: Asyncio) -> None:
    async with principal(aio) as door, edge(aio, door.url) as sender:
        await sender.send(entry(1))
        door.change(edges={"paris": Edge(credentials=("other",))})
        await door.source.forget_edge("berlin", "keep")

    assert door.context.stored == {}


async def test_nothing_is_forgotten_of_an_edge_that_nobody_knows(aio: Asyncio) -> None:
    async with principal(aio) as door:
        with pytest.raises(NotOrdered, match="knows no edge oslo"):
            await door.source.forget_edge("oslo", "delete")


async def test_its_keys_stay_or_are_deleted_with_those_below_it_and_no_others(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_forget, "STEP", 2)
    async with principal(aio) as door:
        await keys(door.context, "berlin", "berlin/mitte", "berlin-2", "paris")
        before = dict(door.context.state)
        assert await door.source.forget_edge("berlin", "keep") == 0
        assert door.context.state == before

        assert await door.source.forget_edge("berlin", "delete") == 6
        assert left(door.context) == ["berlin-2", "paris"]
        places = [kept.place for owner, (_, kept) in door.context.state.items() if owner[0].startswith("berlin/")]
        assert min(places) > max(kept.place for _, kept in before.values())
        assert door.context.stored == {}


async def test_an_order_that_a_crash_has_interrupted_is_completed_at_the_next_start(aio: Asyncio) -> None:
    context = RecordingInputContext(aio=aio)
    await keys(context, "berlin", "paris")
    await relay_forget.forget_memory(context, "berlin", "delete", (), ())
    async with principal(aio, context=context):
        await context.wait_until(lambda: not context.stored)

    assert left(context) == ["paris"]


class Slow(RecordingInputContext):
    """Deletes keys when the test lets it."""

    def __init__(self, aio: Asyncio) -> None:
        super().__init__(aio=aio)
        self.begun, self.may_go_on = trio.Event(), trio.Event()

    async def versions(self, keys: Any) -> Any:
        found = await super().versions(keys)
        self.begun.set()
        await self.may_go_on.wait()
        return found


async def test_an_edge_that_comes_back_has_no_session_before_its_keys_are_deleted(aio: Asyncio) -> None:
    context = Slow(aio)
    await keys(context, "berlin")
    await relay_forget.forget_memory(context, "berlin", "delete", (), ())
    async with principal(aio, context=context) as door, edge(aio, door.url) as sender:
        state = KeyedState(door.source._edges)
        await context.begun.wait()
        with pytest.raises(Later, match="429 busy"):
            await sender.send(entry(1))
        with pytest.raises(Refused, match="being forgotten") as refused:
            await state.put("berlin", "things", "k1", b"{}", LIMITS)
        await state.put("paris", "things", "k1", b"{}", LIMITS)
        context.may_go_on.set()
        await context.wait_until(lambda: not begun(context.stored))
        await sender.send(entry(1))
        await state.put("berlin", "things", "k1", b"{}", LIMITS)

    assert refused.value.status == 429
    assert left(context) == ["berlin", "paris"]
    assert [document for document, _ in context.state.values()] == [None, b"{}", None, b"{}"]


async def test_an_order_that_another_source_of_the_input_has_completed_deletes_nothing_more(aio: Asyncio) -> None:
    context = Slow(aio)
    await keys(context, "berlin")
    deleted: list[int] = []
    async with principal(aio, context=context) as door:

        async def forget() -> None:
            deleted.append(await door.source.forget_edge("berlin", "delete"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(forget)
            await context.begun.wait()
            del context.stored["FORGOTTEN/berlin"]
            await keys(context, "berlin")
            context.may_go_on.set()

    assert deleted == [0]
    assert left(context) == ["berlin"]
