"""Small messages become batches, and whoever reads waits for room."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import trio

from shipper.testing import RecordingInputContext
from shipper_plugins.syslog.block import Block
from shipper_plugins.syslog.gathering import Gathering


def event(text: str) -> Block:
    return Block(orjson.dumps({"message": text}) + b"\n", have_hosts=False)


EVENT = event("x" * 1000)


@asynccontextmanager
async def gathering(**settings: Any) -> AsyncIterator[tuple[Gathering, RecordingInputContext]]:
    """What gathers while the block runs, and what it stores in."""
    context = RecordingInputContext()
    for name, value in settings.items():
        setattr(context, name, value)
    made = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.store)
        yield made, context
        made.close(1)


async def test_what_comes_together_is_one_batch(autojump_clock):
    async with gathering() as (made, context):
        for number in range(100):
            made.add(event(str(number)))
            await trio.sleep(0.0001)
        await context.wait_for(100)
        made.add(Block(b"", have_hosts=True))

    assert len(context.batches) == 1


async def test_much_waits_for_no_more(autojump_clock):
    async with gathering() as (made, context):
        started = trio.current_time()
        made.add(Block(EVENT.documents * 300, have_hosts=False))
        await context.wait_for(300)
        assert trio.current_time() == started


async def test_who_reads_waits_while_much_is_gathered_and_goes_on_when_that_is_stored(autojump_clock):
    async with gathering(full=True) as (made, context):
        added = 0
        with trio.move_on_after(5):
            while True:
                await made.room()
                made.add(EVENT)
                added += 1
                await trio.lowlevel.checkpoint()
        most = context.chunk_bytes // len(EVENT.documents)
        assert most < added <= 2 * most + 2
        context.full = False
        await made.room()

    assert context.count == added


async def test_what_is_gathered_at_the_end_is_stored_within_its_time(autojump_clock):
    context = RecordingInputContext()
    made = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.store)
        made.add(EVENT)
        nursery.cancel_scope.cancel()
        made.close(1)

    assert context.count == 1


async def test_while_processors_hold_events_others_are_emitted_in_order(autojump_clock):
    async with gathering(is_held=True, full=True) as (made, context):
        for number in range(20):
            made.add(event(str(number)))
            await trio.sleep(1)
        context.full = False
        await context.wait_for(20)

    assert len(context.batches) == 20


async def test_of_what_processors_hold_there_is_a_bound(autojump_clock, monkeypatch):
    monkeypatch.setattr("shipper_plugins.syslog.gathering.HELD_BYTES", 2000)
    async with gathering(is_held=True, full=True) as (made, context):
        for _ in range(5):
            made.add(EVENT)
            await trio.sleep(1)
        context.full = False
        await context.wait_for(5)

    assert [batch.count for batch in context.batches] == [1, 1, 3]
