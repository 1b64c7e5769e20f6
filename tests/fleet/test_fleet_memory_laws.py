"""The store in memory obeys the laws of a store, as etcd does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from shipper.fleet.store import Store
from tests.fleet.conformance import Laws
from tests.fleet.memory import MemoryStore, jumping


class MemoryGround:
    """A store in memory; its time is trio's."""

    shortest = 4.0
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
    @pytest.fixture(params=[pytest.param(MemoryGround, marks=pytest.mark.trio(run=jumping))])
    def ground(self, request: pytest.FixtureRequest) -> MemoryGround:
        return MemoryGround()
