"""A proxy on loopback that keeps what it sees: tunnels (CONNECT), and requests with whole URLs."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import trio

from tests.raw_http import raw_server, read_request


@dataclass
class ForwardProxy:
    """`names` are the ports on loopback of the hosts that it knows, by `name:port`."""

    names: Mapping[str, int]
    login: str = ""
    """`user:password` that it wants."""
    refusal: bytes = b""
    """An answer to all requests, if any."""
    heads: list[str] = field(default_factory=list)
    """The head of each request to itself."""
    tunnelled: bytes = b""
    """What went through its tunnels from clients."""
    url: str = ""
    asked: trio.Event = field(default_factory=trio.Event)

    async def talk(self, stream: trio.SocketStream) -> None:
        request = await read_request(stream)
        self.heads.append(request.partition(b"\r\n\r\n")[0].decode())
        self.asked.set()
        method, target, _ = self.heads[-1].partition("\r\n")[0].split(" ")
        if self.refusal:
            await stream.send_all(self.refusal)
            await trio.sleep_forever()
        if self.login and f"Basic {base64.b64encode(self.login.encode()).decode()}" not in self.heads[-1]:
            await stream.send_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        host = target if method == "CONNECT" else urlsplit(target).netloc
        async with await trio.open_tcp_stream("127.0.0.1", self.names[host]) as server:
            if method == "CONNECT":
                await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await server.send_all(request.replace(target.encode(), urlsplit(target).path.encode() or b"/", 1))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._forward, server, stream, False)
                await self._forward(stream, server, True)
                nursery.cancel_scope.cancel()

    async def _forward(self, source: trio.SocketStream, sink: trio.SocketStream, is_client: bool) -> None:
        try:
            async for block in source:
                if is_client:
                    self.tunnelled += block
                await sink.send_all(block)
        except trio.BrokenResourceError:
            pass


@asynccontextmanager
async def open_proxy(names: Mapping[str, int], *, login: str = "", refusal: bytes = b"") -> AsyncIterator[ForwardProxy]:
    """A proxy that runs."""
    proxy = ForwardProxy(names, login, refusal)
    async with raw_server(proxy.talk) as proxy.url:
        yield proxy
