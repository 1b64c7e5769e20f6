"""A peer that takes a connection and reads nothing, to see what a closed output still sends."""

from __future__ import annotations

import array
import fcntl
import socket
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from shipper.testing.traces import PATIENCE

_BUFFER = 4096
_BLOCK = 1 << 16


class StalledPeer:
    """A listening socket on loopback; made by `open_stalled_peer`."""

    def __init__(self, listener: socket.socket) -> None:
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._connections: list[socket.socket] = []
        self._arrived = trio.Event()

    async def accept(self, listener: trio.socket.SocketType) -> None:
        """Take connections, for ever."""
        while True:
            connection, _ = await listener.accept()
            descriptor = connection.detach()
            self._connections.append(socket.socket(fileno=descriptor))
            self._arrived.set()

    async def wait_until_full(self) -> None:
        """Wait until a connection has come, and nothing more arrives on any."""
        await self._arrived.wait()
        before = -1
        while before != self.waiting or not before:
            before = self.waiting
            await trio.sleep(0.05)

    @property
    def waiting(self) -> int:
        """How many bytes have arrived and were not read."""
        return sum(map(_unread, self._connections))

    async def wrong(self) -> str | None:
        """What is wrong: a byte more comes than has arrived by now, or a connection is not closed."""
        arrived = self.waiting
        came = 0
        with trio.move_on_after(PATIENCE) as scope:
            for connection in self._connections:
                came += await _rest(connection)
        if scope.cancelled_caught:
            return "a connection was left open"
        return f"{came - arrived} bytes were sent after the output was closed" if came > arrived else None

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@asynccontextmanager
async def open_stalled_peer() -> AsyncIterator[StalledPeer]:
    """A peer on a free port; its buffer is small, so that most of a request waits on the other side."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        peer = StalledPeer(listener)
        async with trio.open_nursery() as nursery:
            accepting = trio.socket.from_stdlib_socket(listener.dup())
            with accepting:
                nursery.start_soon(peer.accept, accepting)
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
