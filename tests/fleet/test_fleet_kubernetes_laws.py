"""The store on an API server obeys the laws of a store, as etcd does, behind a proxy that cuts all connections."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import trio

from shipper.apiserver import client
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_proxy import Proxy, open_proxy
from tests.fleet import kubernetes as fleets
from tests.fleet.conformance import Laws

pytestmark = pytest.mark.backend


@dataclass
class Ground(fleets.Place):
    """A fleet behind a proxy."""

    proxy: Proxy | None = None
    shortest: float = 4.0
    late: float = 60.0
    page: int = 20

    async def compact(self) -> None:
        """The cache of a server that starts has no history."""
        await trio.to_thread.run_sync(self.kubernetes.compact)
        await trio.to_thread.run_sync(self.kubernetes.restart, signal.SIGKILL)

    async def break_connections(self) -> None:
        """Each end of them, and etcd under the server."""
        assert self.proxy is not None
        self.kubernetes.etcd.kill()
        self.proxy.cut()
        await trio.to_thread.run_sync(self.kubernetes.start_etcd)
        self.proxy.cut()


class TestApiServer(Laws):
    @pytest.fixture
    async def ground(self, api_server: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
        monkeypatch.setattr(client, "PAGE", Ground.page)
        async with open_proxy(api_server) as proxy:
            yield Ground(api_server, url=proxy.url, proxy=proxy)
