"""How long something must last before `--once-timeout` gives up."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from shipper.supervise.once import lasting


@pytest.mark.parametrize(("seconds", "ends"), [(0.0, 5.0), (2.0, 9.0)])
async def test_a_condition_lasts_from_its_last_break_and_none_is_awaited_where_no_time_is_given(
    autojump_clock: MockClock, seconds: float, ends: float
) -> None:
    start = trio.current_time()

    def holds() -> bool:
        return 5 <= trio.current_time() - start < 6 or trio.current_time() - start >= 7

    await lasting(seconds, holds)

    assert trio.current_time() - start == pytest.approx(ends, abs=0.15)
