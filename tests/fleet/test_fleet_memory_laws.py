"""The store in memory obeys the laws of a store, as etcd does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from shipper.fleet.store import Store
from tests.fleet.conformance import Laws
from tests.fleet.memory import MemoryStore


class MemoryGround:
    """A store in memory; its time is trio's."""

    shortest = 2.0
    late = 0.0
    page = 10

    def __init__(self) -> None:
        self._server = MemoryStore()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Store]:
        yield self._server.client()

    async def compact(self) -> None:
        self._server.compact()

    async def break_connections(self) -> None:
        self._server.stop()
        await trio.sleep(1)
        self._server.start()


class TestMemory(Laws):
    @pytest.fixture
    def ground(self, autojump_clock: MockClock) -> MemoryGround:
        return MemoryGround()
