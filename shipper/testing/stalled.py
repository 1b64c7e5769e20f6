"""A peer that takes connections and answers nothing, to see what an output sends, and what a closed one still sends."""

from __future__ import annotations

import array
import fcntl
import socket
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from shipper.plugin import Asyncio
from shipper.testing.traces import for_a_while, round_trips

_BUFFER = 4096
_BLOCK = 1 << 16
_ROUNDS = 50


class StalledPeer:
    """A listening socket on loopback; made by `open_stalled_peer`."""

    def __init__(self, listener: socket.socket, greeting: bytes, *, reads: bool) -> None:
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self.heard = trio.Event()
        """Set when it has read something, of one that `reads`."""
        self._greeting, self._reads = greeting, reads
        self._connections: list[socket.socket] = []
        self._arrived = trio.Event()

    async def serve(self, listener: trio.socket.SocketType) -> None:
        """Take connections, and greet each, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                connection, _ = await listener.accept()
                kept = socket.socket(fileno=connection.detach())
                self._connections.append(kept)
                self._arrived.set()
                nursery.start_soon(self._talk, kept)

    async def _talk(self, connection: socket.socket) -> None:
        talking = trio.socket.from_stdlib_socket(connection.dup())
        with talking, suppress(OSError):
            if self._greeting:
                await talking.send(self._greeting)
            if self._reads and await talking.recv(_BLOCK):
                self.heard.set()

    async def wait_until_full(self, aio: Asyncio | None) -> None:
        """Wait until something has come, and no more comes while tasks, and coroutines of the loop, can go on."""
        await self._arrived.wait()
        await trio.lowlevel.wait_readable(self._connections[0])
        before = 0
        while before != self.waiting:
            before = self.waiting
            await round_trips(aio, _ROUNDS)

    @property
    def waiting(self) -> int:
        """How many bytes have arrived and were not read."""
        return sum(map(_unread, self._connections))

    async def wrong(self) -> str | None:
        """What is wrong: a byte more comes than has arrived by now, or a connection is not closed."""
        arrived = self.waiting
        came = 0
        with for_a_while() as scope:
            for connection in self._connections:
                came += await _rest(connection)
        if scope.cancelled_caught:
            return "a connection was left open"
        return f"{came - arrived} bytes were sent after the output was closed" if came > arrived else None

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@asynccontextmanager
async def open_stalled_peer(greeting: bytes = b"", *, reads: bool = False) -> AsyncIterator[StalledPeer]:
    """A peer on a free port, which sends the greeting on each connection; one that `reads` takes a first block.

    Its buffer is small, so that most of a request waits on the other side.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        peer = StalledPeer(listener, greeting, reads=reads)
        async with trio.open_nursery() as nursery:
            accepting = trio.socket.from_stdlib_socket(listener.dup())
            with accepting:
                nursery.start_soon(peer.serve, accepting)
                try:
                    yield peer
                finally:
                    nursery.cancel_scope.cancel()
                    peer.close()


def _unread(connection: socket.socket) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.FIONREAD, size)
    return size[0]


async def _rest(connection: socket.socket) -> int:
    """Read it to its end."""
    reading = trio.socket.from_stdlib_socket(connection.dup())
    size = 0
    with reading:
        try:
            while block := await reading.recv(_BLOCK):
                size += len(block)
        except ConnectionError:
            pass
    return size
