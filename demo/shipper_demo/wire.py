"""The wire between the shipper and the destination: passes every byte on, and counts answers by status, and requests by
the key that they show.

So the demo knows from the destination's own words how many requests were refused, and which key was used, whatever
either side would say of it.
"""

from __future__ import annotations

import re
from collections import Counter

import trio

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})")
_AUTHORIZATION = re.compile(rb"\r\nAuthorization: ([^\r\n]{1,1000})\r\n")
_CHUNK = 1 << 16
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Wire:
    """Counts what a destination on loopback answers; `port` is where to send to instead."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        """How many answers had which HTTP status."""
        self.uses: Counter[str] = Counter()
        """How many requests had which `Authorization`."""
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
        found = authorizations()
        try:
            while chunk := await source.receive_some(_CHUNK):
                self.uses.update(value.decode() for value in found.feed(bytes(chunk)))
                await to.send_all(chunk)
        except _GONE:
            pass
        both.cancel("one side has closed")

    async def _count(self, server: trio.SocketStream, client: trio.SocketStream, both: trio.CancelScope) -> None:
        found = statuses()
        try:
            while chunk := await server.receive_some(_CHUNK):
                self.answers.update(int(status) for status in found.feed(bytes(chunk)))
                await client.send_all(chunk)
        except _GONE:
            pass
        both.cancel("one side has closed")


def statuses() -> Found:
    """Finds the statuses of answers; a body of bulk answers holds no status line."""
    return Found(_STATUS_LINE, len("HTTP/1.1 200"))


def authorizations() -> Found:
    """Finds what requests show as `Authorization`; a body of lines of JSON, compressed or not, holds no header."""
    return Found(_AUTHORIZATION, 1024)


class Found:
    """Finds in a stream, cut anywhere, what a pattern's first group matches."""

    def __init__(self, pattern: re.Pattern[bytes], longest: int) -> None:
        """`longest` is the size of the longest match."""
        self._pattern, self._longest = pattern, longest
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """What became whole with this chunk."""
        text = self._rest + chunk
        found = list(self._pattern.finditer(text))
        read = found[-1].end() if found else 0
        self._rest = text[max(read, len(text) - self._longest + 1) :]
        return [match[1] for match in found]
