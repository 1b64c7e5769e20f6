"""Small messages become batches, and whoever reads waits for room."""

import orjson
import trio

from shipper.testing import RecordingInputContext
from shipper_plugins.inputs.syslog_gathering import Gathering

EVENT = {"message": "x" * 1000}


async def test_what_comes_together_is_one_batch(autojump_clock):
    context = RecordingInputContext()
    gathering = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.store)
        for number in range(100):
            gathering.add([{"message": str(number)}])
            await trio.sleep(0.0001)
        await context.wait_for(100)
        gathering.add([])
        gathering.close(1)

    assert len(context.batches) == 1


async def test_much_waits_for_no_more(autojump_clock):
    context = RecordingInputContext()
    gathering = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.store)
        started = trio.current_time()
        gathering.add([EVENT] * 300)
        await context.wait_for(300)
        assert trio.current_time() == started
        gathering.close(1)


async def test_who_reads_waits_while_much_is_gathered_and_goes_on_when_that_is_stored(autojump_clock):
    context = RecordingInputContext()
    context.full = True
    gathering = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.store)
        added = 0
        with trio.move_on_after(5):
            while True:
                await gathering.room()
                gathering.add([EVENT])
                added += 1
                await trio.lowlevel.checkpoint()
        most = context.chunk_bytes // len(orjson.dumps(EVENT))
        assert most < added <= 2 * most + 2
        context.full = False
        await gathering.room()
        gathering.close(1)

    assert context.count == added


async def test_what_is_gathered_at_the_end_is_stored_within_its_time(autojump_clock):
    context = RecordingInputContext()
    gathering = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.store)
        gathering.add([EVENT])
        nursery.cancel_scope.cancel()
        gathering.close(1)

    assert context.count == 1


async def test_while_processors_hold_events_others_are_emitted_in_order(autojump_clock):
    context = RecordingInputContext()
    context.is_held, context.full = True, True
    gathering = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.store)
        for number in range(20):
            gathering.add([{"message": str(number)}])
            await trio.sleep(1)
        context.full = False
        await context.wait_for(20)
        gathering.close(1)

    assert len(context.batches) == 20


async def test_of_what_processors_hold_there_is_a_bound(autojump_clock, monkeypatch):
    monkeypatch.setattr("shipper_plugins.inputs.syslog_gathering.HELD_BYTES", 2000)
    context = RecordingInputContext()
    context.is_held, context.full = True, True
    gathering = Gathering(context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gathering.store)
        for _ in range(5):
            gathering.add([EVENT])
            await trio.sleep(1)
        context.full = False
        await context.wait_for(5)
        gathering.close(1)

    assert [batch.count for batch in context.batches] == [1, 1, 3]
