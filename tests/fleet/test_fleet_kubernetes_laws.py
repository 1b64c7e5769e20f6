"""The store on an API server obeys the laws of a store, as etcd does: with the server's cache, behind a proxy that cuts
all connections, and without the cache, over kill -9 of the server."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import trio

from shipper.apiserver.client import PAGE
from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_proxy import Proxy, open_proxy
from tests.fleet import kubernetes as fleets
from tests.fleet.conformance import Laws

pytestmark = [pytest.mark.backend, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cached() -> Iterator[Kubernetes]:
    """With the flags of every cluster."""
    with fleets.running() as found:
        yield found


@pytest.fixture(scope="module")
def uncached() -> Iterator[Kubernetes]:
    """It reads and watches records in etcd itself, so that its restarts lose no history."""
    with fleets.running(["--watch-cache-sizes=shipperfleetrecords.shipper.dev#0"]) as found:
        yield found


@dataclass
class CachedGround(fleets.Place):
    """A fleet behind a proxy."""

    proxy: Proxy | None = None
    shortest: float = 2.0
    late: float = 20.0
    page: int = PAGE

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


class TestCached(Laws):
    @pytest.fixture
    async def ground(self, cached: Kubernetes) -> AsyncIterator[CachedGround]:
        async with open_proxy(cached) as proxy:
            yield CachedGround(cached, url=proxy.url, proxy=proxy)


@dataclass
class UncachedGround(fleets.Place):
    """A fleet on a server that may be restarted."""

    shortest: float = 2.0
    late: float = 20.0
    page: int = PAGE

    async def compact(self) -> None:
        await trio.to_thread.run_sync(self.kubernetes.compact)

    async def break_connections(self) -> None:
        """By kill -9 of the server."""
        await trio.to_thread.run_sync(self.kubernetes.restart, signal.SIGKILL)


class TestUncached(Laws):
    @pytest.fixture
    def ground(self, uncached: Kubernetes) -> UncachedGround:
        return UncachedGround(uncached)
