from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import DataStream
from shipper.testing import RecordingInputContext
from shipper_plugins.generate import GenerateInput, _batch
from tests.plugins.running import running as running_input


async def run_to_end(context: RecordingInputContext, **options: Any) -> None:
    with trio.fail_after(30):
        async with GenerateInput(**options).open(context) as source:
            await source.run()


def running(context: RecordingInputContext, **options: Any) -> AbstractAsyncContextManager[Any]:
    """For an hour of the clock at most, which may be one that jumps."""
    return running_input(GenerateInput(**options), context, seconds=3600)


def numbers(context: RecordingInputContext) -> list[int]:
    return [int(event["message"].split()[0]) for event in context.events]


async def test_it_ends_when_the_count_is_reached() -> None:
    context = RecordingInputContext()
    await run_to_end(context, count=5000)

    assert numbers(context) == list(range(5000))
    assert context.stored == {"next": b"5000"}


async def test_at_the_end_a_restart_makes_nothing() -> None:
    context = RecordingInputContext(positions={"next": b"5"})
    await run_to_end(context, count=5)

    assert context.batches == []


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 10**11), st.integers(1, 50))
def test_each_message_has_its_length_number_and_offset_and_is_always_the_same(
    length: int, first: int, count: int
) -> None:
    events = _batch(GenerateInput(bytes=length), first, count).whole()

    assert events == _batch(GenerateInput(bytes=length), first, count).whole()
    for n, event in enumerate(events, first):
        assert event["message"].split()[0] == f"{n:0{min(12, length)}d}"
        assert len(event["message"]) == max(length, len(str(n)) if length < 12 else 0)
    assert events[0]["log"]["offset"] == first * (length + 1)


async def test_an_event_says_its_dataset() -> None:
    context = RecordingInputContext()
    await run_to_end(context, count=1, data_stream=DataStream(dataset="load"))
    (event,) = context.events

    assert event["event"] == {"dataset": "load"}


async def test_the_rate_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    context = RecordingInputContext()
    async with running(context, rate=100):
        await trio.sleep(10.001)

        assert 998 <= context.count <= 1001
        assert len(context.batches) <= 1001


async def test_a_high_rate_makes_batches_not_a_hot_loop(autojump_clock: trio.testing.MockClock) -> None:
    context = RecordingInputContext()
    async with running(context, rate=50_000):
        await trio.sleep(1.001)

    assert 49_000 <= context.count <= 50_100
    assert len(context.batches) <= 101


async def test_a_low_rate_waits(autojump_clock: trio.testing.MockClock) -> None:
    context = RecordingInputContext()
    async with running(context, rate=0.01):
        await trio.sleep(99)
        assert context.count == 0

        await trio.sleep(2)
        assert context.count == 1


async def test_after_back_pressure_it_catches_up(autojump_clock: trio.testing.MockClock) -> None:
    context = RecordingInputContext()
    context.full = True
    async with running(context, rate=100):
        await trio.sleep(10)
        assert context.count == 0

        context.full = False
        await trio.sleep(0.011)
        assert 990 <= context.count <= 1010


async def test_a_change_acts_at_once_and_goes_on_with_the_next_number(autojump_clock: trio.testing.MockClock) -> None:
    context = RecordingInputContext()
    async with running(context, rate=0.001, bytes=50) as source:
        await trio.sleep(1)
        source.change(GenerateInput(rate=10, bytes=60), {})
        await trio.sleep(1.01)

        assert numbers(context) == list(range(10))
        assert {len(event["message"]) for event in context.events} == {60}


def test_only_the_count_says_what_is_made() -> None:
    assert GenerateInput(rate=1, count=5).identity() == GenerateInput(rate=2, bytes=7, count=5).identity()
    assert GenerateInput(count=5).identity() != GenerateInput(count=6).identity()


@pytest.mark.parametrize("options", [{"rate": 0}, {"rate": -1}, {"count": -1}, {"bytes": 0}])
def test_settings_out_of_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, GenerateInput)
