"""Loading within the memory that there is, in a session that may end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shipper.pipeline.memory.loading import LaneMemory, Load
from shipper.pipeline.memory.loans import Borrower, Lender
from shipper.pipeline.memory.recent import Recent
from shipper.sdk.weights import MOST_WEIGHT
from shipper.spool.queue import Entry
from tests.fakes import bench


async def test_entries_that_share_much_are_not_loaded_together(tmp_path: Path) -> None:
    """Each is some kilobytes where it is stored, and 2 MB where it is written."""
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        await on.enter(20, batches=12, shared={"a": "x" * 100_000})
        lane = on.active["main"].id
        entries = await on.spool.queue.window(lane, 0)
        memory = LaneMemory(lane, on.spool.queue, Lender(), Recent())
        left: Sequence[Entry] = entries
        while left:
            load = await loads(memory, left)
            left = load.left
            assert load.loan is not None
            assert load.loaded
            assert not load.damaged
            assert sum(batch.weight for _, batch in load.loaded) <= MOST_WEIGHT
            load.loan.give_back()


async def loads(memory: LaneMemory, entries: Sequence[Entry]) -> Load:
    return await memory.load(entries, 1 << 20, lambda: False)


async def test_a_session_that_ends_while_it_waits_for_memory_loads_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        await on.enter()
        lane = on.active["main"].id
        entries = await on.spool.queue.window(lane, 0)

        class NoMemory(Borrower):
            async def borrow(self, size: int = 0) -> None:  # type: ignore[override]
                """As after `leave_queue`."""

        memory = LaneMemory(lane, on.spool.queue, Lender(), Recent())
        memory.loans = NoMemory(Lender())
        assert await loads(memory, entries) == Load(entries)
