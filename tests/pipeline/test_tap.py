"""A look at events as they pass."""

from __future__ import annotations

from threading import Thread

import pytest
import trio
from msgspec.structs import replace

from shipper.pipeline.tap import HELD_BYTES, HELD_PIECES, LARGEST_EVENT, PIECE_BYTES, Tap, Taps, shown
from shipper.process.environment import REAL
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields


class Clock:
    """A monotonic clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


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


async def taken(tap: Tap) -> list[Fields]:
    """What a tap has taken so far."""
    events: list[Fields] = []
    while tap._held:
        piece, count = await tap.take()
        events += shown(piece, range(count))
    return events


async def test_no_more_events_a_second_are_kept_than_asked_for() -> None:
    clock = Clock()
    taps = Taps(replace(REAL, monotonic=clock))
    with taps.opened("here", limit=1000, rate=2) as tap:
        seen = []
        for second in (0.0, 0.1, 1.0, 1.1, 100.0):
            clock.now = second
            taps.offer("here", batch(*range(5)))
            seen.append(len(await taken(tap)))

        assert seen == [2, 0, 2, 0, 2]
        assert tap.passed == 25


@pytest.mark.parametrize("size", [10, 10_000, 200_000])
async def test_what_nobody_takes_is_bounded_and_counted(size: int) -> None:
    clock = Clock()
    taps = Taps(replace(REAL, monotonic=clock))
    with taps.opened("here", limit=10_000) as tap:
        for second in range(1000):
            clock.now = float(second)
            taps.offer("here", Batch.documents([b'{"x":"%s"}' % (b"x" * size)]))

        assert len(tap._held) <= HELD_PIECES
        assert sum(len(piece.body) for piece, _ in tap._held) <= HELD_BYTES + LARGEST_EVENT
        assert tap.passed == 1000


async def test_a_large_batch_is_not_kept_as_a_whole() -> None:
    taps = Taps()
    with taps.opened("here", limit=5) as tap:
        taps.offer("here", Batch.lines(b"line\n" * 100_000, offset=7, shared={"of": "test"}))
        (piece, _) = tap._held[0]

        assert len(piece.body) <= PIECE_BYTES
        assert [event["log"]["offset"] for event in await taken(tap)] == [7, 12, 17, 22, 27]


async def test_an_event_that_is_too_large_is_counted_and_not_kept() -> None:
    taps = Taps()
    with taps.opened("here", limit=5) as tap:
        taps.offer("here", Batch.documents([b'{"x":"%s"}' % (b"x" * LARGEST_EVENT)]))
        taps.offer("here", batch(1))

        assert [event["n"] for event in await taken(tap)] == [1]
        assert (tap.passed, tap.too_large) == (2, 1)


async def test_threads_together_give_no_more_than_the_limit() -> None:
    taps = Taps()
    with taps.opened("here", limit=50) as tap:
        threads = [Thread(target=lambda: [taps.offer("here", batch(1, 2, 3)) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        with trio.fail_after(60):
            for thread in threads:
                await trio.to_thread.run_sync(thread.join)

        assert len(await taken(tap)) == 50
        assert tap.passed == 4 * 200 * 3
