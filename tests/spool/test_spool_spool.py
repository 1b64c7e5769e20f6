"""The spool as the rest of the program sees it: a real directory, and what a restart finds."""

from __future__ import annotations

from pathlib import Path

import trio

from shipper.messages import Counts
from shipper.spool.figures import Figures
from shipper.spool.queue import Verdict
from tests.fakes import bench


async def test_figures_after_a_restart_are_those_of_before(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1", other="missing-2")
        await on.enter(5, batches=3)
        lane = on.active["main"]
        (todo, *_) = await on.spool.window(lane.id, 0)
        batch = await on.spool.load(lane.id, todo)
        await on.spool.settle(lane.id, {todo.seq: Verdict(Counts(delivered=4), rest=batch.pick([2]))})
        before = on.spool.figures
        assert await on.spool.query(Figures.of) == before
    async with bench(tmp_path) as on:
        assert on.spool.figures == before


async def test_every_process_has_another_origin(tmp_path: Path) -> None:
    origins = set()
    for _ in range(3):
        async with bench(tmp_path) as on:
            origins.add(on.spool.origin)

    assert len(origins) == 3


async def test_whoever_waits_for_room_wakes_when_something_is_settled(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing-1")
        await on.enter(5)
        freed = on.spool.room
        (todo,) = await on.spool.window(on.active["main"].id, 0)
        await on.spool.settle(on.active["main"].id, {todo.seq: Verdict(Counts(delivered=5))})

        with trio.fail_after(1):
            await freed.wait()
        assert await on.spool.settle(on.active["main"].id, {todo.seq: Verdict(Counts(delivered=5))}) == 0
        assert on.spool.figures.total().events == 0
