"""`tcp_lines`: receives lines over TCP, and answers each block with the total number of stored bytes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from shipper.plugin import Batch, Endpoint, Input, InputContext, Source
from shipper.sdk.server import Peer, Server

LONGEST = 64 << 10


class TcpLines(Input, frozen=True, kw_only=True):
    """Receives lines of UTF-8 over TCP; acknowledged lines are durable."""

    address: str
    """Address to listen on, such as `127.0.0.1:7000`."""

    def __post_init__(self) -> None:
        self.endpoint()

    def endpoint(self) -> Endpoint:
        """Returns the address; raises BadOption."""
        return Endpoint.parse(self.address, "address", schemes={"tcp"})

    def identity(self) -> object:
        return str(self.endpoint())

    def listens(self) -> Sequence[Endpoint]:
        return (self.endpoint(),)

    @asynccontextmanager
    async def open(self, context: InputContext) -> AsyncIterator[Source]:
        yield Lines(context, await context.listen(self.endpoint()))


class Lines(Source):
    """See `Source`."""

    def __init__(self, context: InputContext, listener: socket.socket) -> None:
        self._context, self._listener = context, listener
        self._server = Server(self._talk, tell=self._tell)
        self._turn = trio.Lock()
        self._taken = 0

    async def run(self) -> None:
        self._taken = int(await self._context.position("taken") or b"0")
        await self._server.serve(self._listener)

    async def _talk(self, peer: Peer) -> None:
        rest = b""
        while len(rest) < LONGEST and (block := await peer.receive()):
            text, end, rest = (rest + block).rpartition(b"\n")
            if not end:
                continue
            peer.let_in()
            with peer.busy():
                await self._store(text + end)
            await peer.send(b"%d\n" % self._taken)

    async def _store(self, text: bytes) -> None:
        lines = text.decode(errors="replace").encode()
        async with self._turn:
            taken = self._taken + len(lines)
            batch = Batch.lines(lines, offset=self._taken, shared={"log": {"source": {"address": "tcp"}}})
            await self._context.emit(batch, positions={"taken": b"%d" % taken})
            self._taken = taken

    def _tell(self, turned_away: int, problem: str | None) -> None:
        self._context.turned_away(turned_away)
        self._context.report(problem)
