"""A look at events as they pass."""

from __future__ import annotations

import pytest
import trio

from shipper.pipeline.tap import Taps
from shipper.sdk.event import Batch


def batch(*numbers: int) -> Batch:
    return Batch.documents([b'{"n":%d}' % n for n in numbers], shared={"of": "test"})


async def test_a_sample_is_bounded_and_whole() -> None:
    taps = Taps()
    async with trio.open_nursery() as nursery:

        async def offer() -> None:
            await trio.testing.wait_all_tasks_blocked()
            taps.offer("elsewhere", batch(9))
            taps.offer("here", batch(1, 2))
            taps.offer("here", batch(3, 4))
            taps.offer("here", batch(5))

        nursery.start_soon(offer)
        with trio.fail_after(30):
            assert await taps.collect("here", 3, 5) == [{"of": "test", "n": n} for n in (1, 2, 3)]


async def test_a_tap_that_sees_nothing_ends_in_time() -> None:
    assert await Taps().collect("here", 3, 0.01) == []


async def test_two_taps_at_one_point_see_the_same() -> None:
    taps, seen = Taps(), []

    async def look(count: int, seconds: float) -> None:
        seen.append(await taps.collect("here", count, seconds))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look, 1, 30.0)
            nursery.start_soon(look, 5, 0.01)
            while not seen:  # noqa: ASYNC110 - a tap tells nobody
                await trio.sleep(0.001)
            taps.offer("here", batch(1))

    assert seen == [[], [{"of": "test", "n": 1}]]


async def test_a_cancelled_tap_costs_nothing_afterwards() -> None:
    taps = Taps()
    with trio.move_on_after(0.01):
        await taps.collect("here", 5, 10)

    assert taps._open == {}


@pytest.mark.parametrize("count", [0, 1000])
async def test_without_a_tap_nothing_is_kept(count: int) -> None:
    taps = Taps()
    taps.offer("here", batch(*range(count)))

    assert taps._open == {}
