"""A link between an edge and its principal that can be cut, slowed, and that says again what was said."""

from __future__ import annotations

import re
from collections import Counter, deque
from contextlib import suppress
from random import Random

import trio

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
RECORDED = 50
RECORDED_BYTES = 1 << 18
_REQUEST = re.compile(rb"(?=POST /v1/relay/)")
_ASKED = re.compile(rb"POST /v1/relay/([a-z]+) ")
_ANSWERED = b"HTTP/1.1 "


class Link:
    """A TCP proxy, as good as its attributes say."""

    def __init__(self, random: Random, to: int) -> None:
        self.port = 0
        self.is_down = False
        """Whether new connections are refused; those that are open stay until `cut`."""
        self.hold_seconds = 0.0
        """How long each piece is held back, at most."""
        self.torn = 0.0
        """The share of pieces that end their connection in the middle."""
        self.mirrored = 0.0
        """The share of new connections that reach the other side twice, at the same time."""
        self.passed = 0
        """Bytes, both ways."""
        self.asked: Counter[str] = Counter()
        """Requests by what they are, whose first line came in one piece."""
        self.answered = 0
        self._random = random
        self._to = to
        self._open: set[trio.CancelScope] = set()
        self._said: deque[bytes] = deque(maxlen=RECORDED)

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass on what comes to `port`, until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._connected, listeners)

    def cut(self) -> None:
        """End every connection, whatever is on its way."""
        for scope in self._open:
            scope.cancel("the link is cut")

    def heal(self) -> None:
        """Pass everything on, at once."""
        self.is_down, self.hold_seconds, self.torn, self.mirrored = False, 0.0, 0.0, 0.0

    def forget(self) -> None:
        """Count from zero."""
        self.passed = self.answered = 0
        self.asked.clear()

    async def repeat(self) -> None:
        """Send the requests of an earlier connection again, over a connection of their own."""
        if not self._said:
            return
        _, *requests = _REQUEST.split(self._random.choice(self._said))
        with suppress(*GONE), trio.move_on_after(0.5):
            async with await trio.open_tcp_stream("127.0.0.1", self._to) as far:
                await far.send_all(b"".join(requests[self._random.randrange(len(requests) or 1) :]))
                await far.receive_some()

    async def _connected(self, near: trio.SocketStream) -> None:
        said = bytearray()
        try:
            async with near:
                if not self.is_down:
                    await self._pass_both_ways(near, said)
        except* GONE:
            pass
        self._said.append(bytes(said))

    async def _pass_both_ways(self, near: trio.SocketStream, said: bytearray) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self._to) as far, trio.open_nursery() as nursery:
            self._open.add(nursery.cancel_scope)
            try:
                to = [far]
                if self._random.random() < self.mirrored:
                    to.append(await trio.open_tcp_stream("127.0.0.1", self._to))
                    nursery.start_soon(self._swallow, to[1])
                nursery.start_soon(self._pass, far, [near], nursery.cancel_scope, None)
                await self._pass(near, to, nursery.cancel_scope, said)
            finally:
                self._open.discard(nursery.cancel_scope)

    async def _pass(
        self, source: trio.SocketStream, to: list[trio.SocketStream], both: trio.CancelScope, said: bytearray | None
    ) -> None:
        with suppress(*GONE):
            async for data in source:
                self._count(data)
                if said is not None and len(said) < RECORDED_BYTES:
                    said += data
                is_torn = self._random.random() < self.torn
                await trio.sleep(self._random.random() * self.hold_seconds)
                for stream in to:
                    await stream.send_all(data[: self._random.randrange(len(data))] if is_torn else data)
                if is_torn:
                    break
        both.cancel("one side has ended")

    def _count(self, data: bytes) -> None:
        self.passed += len(data)
        self.asked.update(what.decode() for what in _ASKED.findall(data))
        self.answered += data.startswith(_ANSWERED)

    async def _swallow(self, stream: trio.SocketStream) -> None:
        """Read the answers that nobody asked for."""
        with suppress(*GONE):
            async with stream:
                async for _ in stream:
                    pass
