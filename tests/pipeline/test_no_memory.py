"""Loading within the memory that there is, in a session that may end."""

from __future__ import annotations

from pathlib import Path

from shipper.pipeline.loading import Loading
from shipper.pipeline.loans import Borrower, Lender
from shipper.pipeline.recent import Recent
from shipper.spool.queue import Entry
from tests.fakes import bench


async def test_a_session_that_ends_while_it_waits_for_memory_loads_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        await on.activate(1, main="missing")
        await on.enter()
        lane = on.active["main"].id
        entries = await on.spool.window(lane, 0)

        class NoMemory(Borrower):
            async def borrow(self, size: int = 0) -> None:  # type: ignore[override]
                """As after `leave_queue`."""

        async def damaged(entry: Entry) -> None:
            raise AssertionError("nothing is read")

        loading = Loading(
            lane=lane,
            spool=on.spool,
            recent=Recent(),
            loans=NoMemory(Lender()),
            most_bytes=1 << 20,
            is_ending=lambda: False,
            on_damage=damaged,
            on_gone=lambda entry: None,
        )

        assert await loading.load(entries) == (None, [], entries)
