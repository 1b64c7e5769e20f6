"""Tasks that look again and again wake the process together."""

from __future__ import annotations

import trio
import trio.testing

from shipper.process.ticks import tick


async def test_tasks_that_begin_at_different_times_wake_together(autojump_clock: trio.testing.MockClock) -> None:
    woken = list[float]()

    async def looks(after: float) -> None:
        await trio.sleep(after)
        began = trio.current_time()
        await tick(1.0)
        assert 0.5 <= trio.current_time() - began <= 1.5
        for _ in range(3):
            await tick(1.0)
            woken.append(trio.current_time() % 1.0)

    async with trio.open_nursery() as nursery:
        for after in (0.0, 0.1, 0.4, 0.7):
            nursery.start_soon(looks, after)

    assert len(woken) == 12
    assert max(woken) - min(woken) < 1e-9
