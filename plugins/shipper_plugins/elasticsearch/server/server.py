"""The HTTP server of the `elasticsearch` input: admission, limits of size, limits of time.

A request passes the door first: its key, path, types and declared size are checked before a byte of its body is read.
Then it may finish, even if the door changes: its events belong to the revision in which they are stored. The door is
one immutable value, replaced in one assignment, so it applies to the next request, on old connections too.

All resources are bounded against hostile clients:

| what | bound |
|---|---|
| bodies and answers of all requests | 64 MiB, of one key (or address) half of what others leave; then 429 |
| a larger request | one at a time, beside that; up to its own limits |
| body, received and decompressed | the policy's limits, then 413; inflated in steps of 256 KiB |
| objects that a body becomes | a step of 256 KiB at a time, of one request after the other; 32 MiB of one document |
| answers of one request | 64 MiB, then 413 |
| time | a body arrives at 1 KiB/s after 30 s (408); an answer is read within 60 s; idle connections end after 120 s |
| connections of clients | 256; the next one displaces another, as `shipper.sdk.rooms` says, or is answered 429 |
| connections without an admitted request, TLS handshakes included | 128; the next one displaces another of them |
| a TLS handshake | 10 s |
| header | aiohttp's: 8 KiB a line, 128 lines |

So a flood of silent or slow strangers displaces strangers, not the clients that ship (`connections`). A small request
with the head of one that was stored on its connection is read without aiohttp (`_take_more`). aiohttp's own sites are
not used, since they accept without a limit, TLS handshakes included. Neither is its decompression, which is slower than
isal's and has no limit for the whole body.

This module is imported when an input is opened, since aiohttp.web takes 0.1 s.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web

from shipper.plugin import Backpressure, Batch
from shipper.sdk.bodies import Arrival, BodyRefused, Inflation, Memory, Share
from shipper.sdk.hosts import is_own_host
from shipper_plugins.elasticsearch.server.answer import RequestRefused
from shipper_plugins.elasticsearch.server.connections import Connections, Tell
from shipper_plugins.elasticsearch.server.door import Door, busy, of_body, recognized
from shipper_plugins.elasticsearch.server.http import (
    COME_AGAIN,
    bulk_index,
    encoding_of,
    headers_for,
    introduce,
    next_block,
    refused,
    reply,
    send,
    tell_to_continue,
    written,
)
from shipper_plugins.elasticsearch.server.request import BulkRequest

CLOSING_SECONDS = 1.0
NO_ROOM = "there is no room for more events now"

Store = Callable[[list[Batch]], Coroutine[Any, Any, None]]


# -- the server --------------------------------------------------------------------------------------------------------


class BulkServer:
    """Serves one listening socket, in the asyncio thread; `door` may be replaced from any thread at any time.

    `store` takes the batches of one request and returns when they are durable, or raises Backpressure. `tell` is called
    when connections are turned away.
    """

    def __init__(self, door: Door, store: Store, tell: Tell) -> None:
        self.door = door
        self._store, self._tell = store, tell
        self._memory = Memory()
        self._turn = asyncio.Lock()
        self._storing: set[asyncio.Future[None]] = set()
        """What small requests have brought that aiohttp did not see."""
        self._connections: Connections | None = None

    def close_door(self, *, tls: ssl.SSLContext | None) -> None:
        """Refuses all requests from now on; `tls` is the context of new connections."""
        self.door = replace(self.door, keys=(), tls=tls)

    async def renew(self) -> None:
        """Closes connections with an earlier certificate or a removed key; see `Connections.renew`."""
        if self._connections is not None:
            await self._connections.renew(lambda key: key in (self.door.keys or ()))

    async def serve(self, listener: socket.socket) -> None:
        """Accepts until cancelled; then requests under way have a second to end. The socket stays open."""
        self._server = web.Server(self._respond, handler_cancellation=True)
        connections = self._connections = Connections(self._server, lambda: self.door.tls, self._tell)
        own = listener.dup()
        own.setblocking(False)
        try:
            await connections.accept(own)
        finally:
            own.close()
            await self._close()

    async def _close(self) -> None:
        transports = [connection.transport for connection in self._server.connections]
        self._server.pre_shutdown()
        if self._storing:
            await asyncio.wait(self._storing, timeout=CLOSING_SECONDS)
        await self._server.shutdown(CLOSING_SECONDS)
        for transport in transports:
            if isinstance(transport, asyncio.Transport):
                transport.abort()
        for storing in list(self._storing):
            storing.cancel()

    # -- requests --------------------------------------------------------------------------------------------------

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._connections is not None
        with ExitStack() as held, self._connections.busy(request) as connection:
            response = await self._answer(request, held, self._connections)
            if connection.leaves:
                response.force_close()
            await send(request, response)
            return response

    async def _answer(self, request: web.BaseRequest, held: ExitStack, connections: Connections) -> web.Response:
        """Returns the answer; its memory is `held`."""
        try:
            door = self.door
            owner = self._admit(request, door, connections)
            connections.let_in(request)
            if request.method in ("GET", "HEAD"):
                return reply(request, 200, introduce(request))
            index = bulk_index(request)
            share = held.enter_context(self._memory.share(owner))
            return reply(request, 200, await self._take(request, door, index, share))
        except RequestRefused as refusal:
            return refused(request, refusal)
        except BodyRefused as why:
            return refused(request, of_body(why))

    def _admit(self, request: web.BaseRequest, door: Door, connections: Connections) -> Hashable:
        """Returns the owner of the memory of a request: its key, or its address. Raises RequestRefused."""
        if door.keys is None and not is_own_host(request.headers.get("Host", "localhost")):
            raise RequestRefused(421, "security_exception", "without credentials, Host is this host or an address")
        if door.tls is not None and not request.secure:
            raise RequestRefused(401, "security_exception", "this connection was opened before TLS was required")
        if door.keys is None:
            return connections.address(request)
        key = recognized(request.headers.get("Authorization", ""), door.keys)
        if key is None:
            raise RequestRefused(401, "security_exception", "unable to authenticate with the provided credentials")
        connections.note(request, key)
        return key

    async def _take(self, request: web.BaseRequest, door: Door, index: str | None, share: Share) -> bytes:
        """Reads and stores a bulk request; returns the body of its answer."""
        begun = time.monotonic()
        filter_path = request.rel_url.query.get("filter_path", "")
        new = partial(BulkRequest, stream=door.stream, index=index, filter_path=filter_path)
        bulk = new()
        encoding = encoding_of(request)
        declared = request.content_length or 0
        arrival = Arrival(door.max_body_bytes, begun=asyncio.get_running_loop().time(), declared=declared)
        share.expect(declared)
        await tell_to_continue(request)
        only = await self._read(request, arrival, Inflation(encoding, door.max_decompressed_bytes), bulk, share)
        if batches := bulk.finish():
            try:
                await self._store(batches)
            except Backpressure:
                raise busy(NO_ROOM) from None
            if encoding == "identity" and "Expect" not in request.headers and self._connections is not None:
                again = partial(self._take_more, door, share.owner, new, headers_for(request))
                self._connections.know(request, only, again)
        return bulk.answers.body(int((time.monotonic() - begun) * 1000))

    def _take_more(
        self, door: Door, owner: Hashable, new: Callable[[], BulkRequest], headers: Mapping[str, str], body: bytes
    ) -> tuple[asyncio.Future[None], Callable[[], bytes]] | None:
        """Takes the small body of a request with the head of one that was stored before; None if it must be judged like
        a new one."""
        begun = time.monotonic()
        if self.door is not door or len(body) > min(door.max_body_bytes, door.max_decompressed_bytes):
            return None
        with ExitStack() as held:
            share, bulk = held.enter_context(self._memory.share(owner)), new()
            try:
                bulk.feed(body)
                share.resize(bulk.held)
                batches = bulk.finish()
            except (RequestRefused, BodyRefused):
                return None
            storing = asyncio.ensure_future(self._store(batches))
            self._storing.add(storing)
            storing.add_done_callback(partial(self._stored, held.pop_all()))

        def answer() -> bytes:
            try:
                storing.result()
            except Backpressure:
                return written(429, {**headers, **COME_AGAIN}, busy(NO_ROOM).body())
            return written(200, headers, bulk.answers.body(int((time.monotonic() - begun) * 1000)))

        return storing, answer

    def _stored(self, held: ExitStack, storing: asyncio.Future[None]) -> None:
        held.close()
        self._storing.discard(storing)

    async def _read(
        self, request: web.BaseRequest, arrival: Arrival, inflation: Inflation, bulk: BulkRequest, share: Share
    ) -> bytes:
        """Returns the last block: all of the body, if it came in one."""
        clock, last = asyncio.get_running_loop().time, b""
        while block := await next_block(request, arrival.deadline):
            arrival.add(block, clock())
            last = block
            for piece in inflation.pieces(block):
                await self._feed(bulk, piece)
                share.resize(bulk.held)
            arrival.wait(clock())
        inflation.finish()
        return last

    async def _feed(self, bulk: BulkRequest, piece: bytes) -> None:
        """Feeds one request at a time, since only then the loaded objects of a single one are in memory."""
        async with self._turn:
            if bulk.is_long:
                await _in_a_thread(bulk.feed, piece)
            else:
                bulk.feed(piece)
                await asyncio.sleep(0)


async def _in_a_thread(function: Callable[[bytes], None], piece: bytes) -> None:
    """Runs the function in a thread; returns only after its end, even if cancelled."""
    running = asyncio.get_running_loop().run_in_executor(None, function, piece)
    try:
        await asyncio.shield(running)
    finally:
        await asyncio.wait({running})
