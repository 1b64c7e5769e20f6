"""Between an output and a real broker: whoever comes to `front` of the broker gets here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from tests.backends.kafka import Kafka


class Proxy:
    """It counts what comes, and withholds answers when it is told to."""

    def __init__(self, behind: str) -> None:
        host, _, port = behind.rpartition(":")
        self._behind = host, int(port)
        self.connections = 0
        self.received = 0
        """Bytes from the output."""
        self.reading = trio.Event()
        """Until it is set, nothing more of the output is read."""
        self.reading.set()
        self.withholds: Callable[[int], bool] = lambda received: False
        """Asked, before an answer goes back, whether the connection is cut instead."""

    async def serve(self, client: trio.SocketStream) -> None:
        self.connections += 1
        try:
            server = await trio.open_tcp_stream(*self._behind)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._up, client, server, nursery.cancel_scope)
                nursery.start_soon(self._down, client, server, nursery.cancel_scope)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass
        finally:
            self.connections -= 1

    async def _up(self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope) -> None:
        async for data in client:
            self.received += len(data)
            await server.send_all(data)
            await self.reading.wait()
        scope.cancel()

    async def _down(self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope) -> None:
        async for data in server:
            if self.withholds(self.received):
                break
            await client.send_all(data)
        scope.cancel()


@asynccontextmanager
async def proxied(kafka: Kafka) -> AsyncIterator[Proxy]:
    """Until the block is left: then nobody listens."""
    proxy = Proxy(kafka.behind)
    host, _, port = kafka.front.rpartition(":")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(trio.serve_tcp, proxy.serve, int(port), host=host))
        yield proxy
        nursery.cancel_scope.cancel()
