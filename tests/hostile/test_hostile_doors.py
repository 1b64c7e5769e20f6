"""What is no request, or has no end, at each door that takes HTTP: it takes no memory, and others are served."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
import trio

from shipper.plugin import Credential, CredentialId, Endpoint, Input
from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext
from shipper_plugins.elasticsearch.input import ElasticsearchInput
from shipper_plugins.http.input import HttpInput
from shipper_plugins.otlp.input import OtlpInput
from shipper_plugins.relay.input import Edge, RelayInput

FREE = "127.0.0.1:0"
KEY = CredentialId("k")
KEYS = {KEY: Credential.parse({"api_key": "id:a-secret-of-the-test"})}
SHOWN = f"Authorization: {KEYS[KEY].authorization()}\r\n".encode()
BLOCK = 64 << 10
MORE = 2 << 20
"""Bytes that follow, which no kernel keeps for a reader that does not come."""


@dataclass(frozen=True)
class Door:
    settings: Input
    target: bytes
    kind: bytes

    def head(self, more: bytes = b"") -> bytes:
        """The head of a request without its end, shown with the key."""
        return b"%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n%b%b" % (self.target, self.kind, SHOWN, more)


DOORS = {
    "http": Door(HttpInput(address=FREE, credentials=(KEY,)), b"POST /", b"text/plain"),
    "otlp": Door(OtlpInput(grpc=None, http=FREE, credentials=(KEY,)), b"POST /v1/logs", b"application/json"),
    "elasticsearch": Door(
        ElasticsearchInput(address=FREE, credentials=(KEY,)), b"POST /_bulk", b"application/x-ndjson"
    ),
    "relay": Door(
        RelayInput(address=FREE, edges={"berlin": Edge(credentials=(KEY,), collections=("c",))}),
        b"PUT /v1/state/c/k",
        b"application/json",
    ),
}
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"
ENDLESS: dict[str, Callable[[Door], tuple[bytes, bytes]]] = {
    "requests whose answers nobody reads": lambda door: (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "another protocol without a key": lambda door: (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + UPGRADE, b"x"),
    "another protocol": lambda door: (door.head(UPGRADE), b"x"),
    "a tunnel": lambda door: (b"CONNECT x:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"x"),
    "an extension of a chunk": lambda door: (door.head(CHUNKED + b"1;"), b"e"),
    "extensions of chunks": lambda door: (door.head(CHUNKED), b"1;" + b"e" * 500 + b"\r\nx\r\n"),
    "the size of a chunk": lambda door: (door.head(CHUNKED), b"0"),
    "headers behind a body": lambda door: (door.head(CHUNKED + b"1\r\nx\r\n0\r\n"), b"a: b\r\n"),
    "headers": lambda door: (door.head(), b"a: b\r\n"),
    "a header": lambda door: (door.head(b"X: "), b"a"),
    "a path": lambda door: (b"GET /", b"a"),
    "empty lines": lambda door: (b"", b"\r\n"),
    "TLS": lambda door: (b"\x16\x03\x01", b"\0"),
}


class Serving:
    def __init__(self, door: Door, port: int) -> None:
        self.door, self.port = door, port

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def serves(self) -> None:
        """Raises unless a client with the key is answered."""
        with trio.fail_after(60):
            async with await self.connect() as stream:
                request = b"GET /unknown HTTP/1.1\r\nHost: localhost\r\n%bConnection: close\r\n\r\n" % SHOWN
                await stream.send_all(request)
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 404 ")


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[Serving]:
    door = DOORS[name]
    async with open_asyncio() as aio:
        context = RecordingInputContext(aio=aio, credentials=KEYS)
        async with door.settings.open(context) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            port = (await context.listen(Endpoint("tcp", "127.0.0.1"))).getsockname()[1]
            yield Serving(door, port)
            nursery.cancel_scope.cancel()


async def go_on(stream: trio.SocketStream, begin: bytes, rest: bytes) -> None:
    """Sends more and more, until the other side has closed or reads no more."""
    block = rest * (BLOCK // len(rest))
    with trio.move_on_after(2), suppress(trio.BrokenResourceError):
        await stream.send_all(begin)
        for _ in range(MORE // BLOCK):
            await stream.send_all(block)


@pytest.mark.parametrize("name", DOORS)
async def test_what_has_no_end_takes_no_memory_and_others_are_served(name: str) -> None:
    async with serving(name) as on:
        await on.serves()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for make in ENDLESS.values():
            async with await on.connect() as stream, trio.open_nursery() as nursery:
                nursery.start_soon(go_on, stream, *make(on.door))
                await on.serves()
            await on.serves()

        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("begins", [False, True])
async def test_many_connections_that_show_no_request_keep_nobody_out(name: str, begins: bool) -> None:
    """More than there are places; all are of the address of those who are served."""
    async with serving(name) as on:
        streams = [await on.connect() for _ in range(300)]
        for stream in streams if begins else ():
            with suppress(trio.BrokenResourceError):
                await stream.send_all(on.door.head())
        await on.serves()
        for stream in streams:
            await trio.aclose_forcefully(stream)
        await on.serves()
