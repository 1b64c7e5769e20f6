"""A clock that jumps where everybody waits for time alone, and not for a socket or a thread on this machine."""

from __future__ import annotations

import pytest
import trio.testing


@pytest.fixture
def jumping_clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.05)
