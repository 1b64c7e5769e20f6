"""Small requests that come together are stored together, and none waits for long for those before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest
import trio

from shipper.sdk.aio import Asyncio, open_asyncio
from shipper_plugins.relay.frames import Answered, Generation, Head
from shipper_plugins.relay.principal import gathering as relay_gathering
from shipper_plugins.relay.principal.door import Refused, busy
from shipper_plugins.relay.principal.gathering import Gathering
from shipper_plugins.relay.principal.parts import Parts, Sent


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(60):
        async with open_asyncio() as opened:
            yield opened


def sent(link: int) -> Sent:
    return Sent("berlin", Head(Generation("0" * 32, 1), link, 0), ())


class Storing:
    """Stands for `Parts`: what comes is stored when it may be. Of odd links nothing is stored together."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.may_go_on = trio.Event()

    async def take_together(self, requests: Sequence[Sent]) -> list[Answered | Refused | None]:
        self.groups.append([one.head.link for one in requests])
        await self.may_go_on.wait()
        return [None if one.head.link % 2 else Answered([one.head.link]) for one in requests]

    async def take(self, sent: Sent) -> Answered:
        raise busy("alone")


def gathering(storing: Any, aio: Asyncio) -> Gathering:
    return Gathering(cast(Parts, storing), aio)


async def answers(gathering: Gathering, *links: int) -> list[object]:
    return await asyncio.gather(*[gathering.answer(sent(link)) for link in links], return_exceptions=True)


async def test_what_comes_in_one_turn_is_stored_together_and_what_cannot_be_alone(aio: Asyncio) -> None:
    storing = Storing()
    storing.may_go_on.set()

    two, three, four = await aio.call(answers, gathering(storing, aio), 2, 3, 4)

    assert storing.groups == [[2, 3, 4]]
    assert (two, four) == (Answered([2]), Answered([4]))
    assert isinstance(three, Refused)
    assert three.status == 429


async def test_a_group_that_is_held_up_does_not_hold_up_the_next_one(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_gathering, "HELD_UP", 0.01)
    storing = Storing()

    async def take_together(requests: Sequence[Sent]) -> list[Answered | Refused | None]:
        if len(storing.groups) == 1:
            storing.may_go_on.set()
        return await Storing.take_together(storing, requests)

    monkeypatch.setattr(storing, "take_together", take_together)

    async def in_turn() -> list[object]:
        it = gathering(storing, aio)
        first = asyncio.ensure_future(it.answer(sent(2)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [*await answers(it, 4), await first]

    assert await aio.call(in_turn) == [Answered([4]), Answered([2])]
    assert storing.groups == [[2], [4]]


async def test_the_error_of_a_group_is_that_of_each_of_its_requests(aio: Asyncio) -> None:
    class Failing:
        async def take_together(self, requests: Sequence[Sent]) -> list[Answered | Refused | None]:
            raise OSError("no disk")

    assert [str(error) for error in await aio.call(answers, gathering(Failing(), aio), 2, 4)] == ["no disk"] * 2


async def test_the_end_of_a_server_waits_for_what_is_under_way_and_then_cancels_it(aio: Asyncio) -> None:
    async def end() -> bool:
        it = gathering(Storing(), aio)
        asking = asyncio.ensure_future(it.answer(sent(2)))
        await asyncio.sleep(0)
        await it.rest(0.01)
        is_answered = asking.done()
        await it.close()
        await it.rest(60)
        asking.cancel()
        return is_answered

    assert not await aio.call(end)
