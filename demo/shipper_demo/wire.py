"""The wire between the shipper and the destination: passes every byte on, and counts the answers by their status.

So the demo knows from the destination's own words how many requests were refused, whatever either side would say of it.
"""

from __future__ import annotations

import re
from collections import Counter

import trio

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_CHUNK = 1 << 16
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Wire:
    """Counts what a destination on loopback answers; `port` is where to send to instead."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        """How many answers had which HTTP status."""
        self.port = 0
        self.is_cut = False
        self._open: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """End every connection, and let none through until `mend`."""
        self.is_cut = True
        for scope in self._open:
            scope.cancel("the wire is cut")

    def mend(self) -> None:
        """Let connections through again."""
        self.is_cut = False

    async def serve(self, to: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass on what comes to `port` to the port `to`, until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]

        async def connected(client: trio.SocketStream) -> None:
            with trio.CancelScope() as scope:
                self._open.add(scope)
                try:
                    if self.is_cut:
                        await trio.aclose_forcefully(client)
                    else:
                        await self._connect(client, to)
                except _GONE:
                    return
                finally:
                    self._open.discard(scope)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, connected, listeners)
            task_status.started()

    async def _connect(self, client: trio.SocketStream, to: int) -> None:
        async with (
            client,
            await trio.open_tcp_stream("127.0.0.1", to) as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._pass_on, client, server, nursery.cancel_scope)
            nursery.start_soon(self._count, server, client, nursery.cancel_scope)

    async def _pass_on(self, source: trio.SocketStream, to: trio.SocketStream, both: trio.CancelScope) -> None:
        try:
            while chunk := await source.receive_some(_CHUNK):
                await to.send_all(chunk)
        except _GONE:
            pass
        both.cancel("one side has closed")

    async def _count(self, server: trio.SocketStream, client: trio.SocketStream, both: trio.CancelScope) -> None:
        statuses = Statuses()
        try:
            while chunk := await server.receive_some(_CHUNK):
                self.answers.update(statuses.feed(bytes(chunk)))
                await client.send_all(chunk)
        except _GONE:
            pass
        both.cancel("one side has closed")


class Statuses:
    """Finds the status lines in what a server sends, cut anywhere. A body of bulk answers holds none."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[int]:
        """The statuses that became whole with this chunk."""
        text = self._rest + chunk
        found = list(_STATUS_LINE.finditer(text))
        read = found[-1].end() if found else 0
        self._rest = text[max(read, len(text) - len("HTTP/1.1 20")) :]
        return [int(match[1]) for match in found]
