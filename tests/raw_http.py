"""Servers of HTTP on loopback that a test writes byte by byte."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

Talk = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def raw_server(talk: Talk) -> AsyncIterator[str]:
    """Its URL. `talk` gets each connection, and closes it by returning."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await talk(stream)
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def read_request(stream: trio.SocketStream) -> bytes:
    """One request with its body."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += await some(stream)
    head, _, body = text.partition(b"\r\n\r\n")
    lengths = [int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length:")]
    while len(body) < sum(lengths):
        body += await some(stream)
    return head + b"\r\n\r\n" + body


async def some(stream: trio.SocketStream) -> bytes:
    chunk = await stream.receive_some(65536)
    if not chunk:
        raise trio.BrokenResourceError
    return bytes(chunk)


def saying(answer: bytes) -> Talk:
    async def talk(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(answer)

    return talk


def http(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body
