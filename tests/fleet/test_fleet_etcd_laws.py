"""The store on etcd obeys the laws of a store, on three nodes of which one is killed after the other."""

from __future__ import annotations

import uuid
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
import trio

from shipper.fleet.etcd import http
from shipper.fleet.etcd import store as module
from shipper.fleet.etcd.store import open_etcd
from shipper.fleet.store import Store
from tests.backends.etcd import Etcd
from tests.fleet.conformance import Laws

pytestmark = pytest.mark.backend


@dataclass
class EtcdGround:
    """A prefix of an etcd."""

    etcd: Etcd
    prefix: str = field(default_factory=lambda: f"/laws/{uuid.uuid4()}/")
    shortest: float = 4.0
    late: float = 60.0
    page: int = 20

    def client(self) -> AbstractAsyncContextManager[Store]:
        return open_etcd(self.etcd.urls, self.prefix)

    async def compact(self) -> None:
        await trio.to_thread.run_sync(self.etcd.compact)

    async def break_connections(self) -> None:
        """By kill -9 of each node in turn."""
        for node in self.etcd.nodes:
            node.kill()
            await trio.to_thread.run_sync(self.etcd.start, node)


class TestThreeNodes(Laws):
    @pytest.fixture
    def ground(self, three: Etcd, monkeypatch: pytest.MonkeyPatch) -> EtcdGround:
        monkeypatch.setattr(module, "PAGE", EtcdGround.page)
        monkeypatch.setattr(http, "LARGEST_ANSWER", 2 << 20)
        return EtcdGround(three)
