"""One connection through the proxy before the API server under test."""

from __future__ import annotations

import math
import ssl
from typing import TYPE_CHECKING

import h11
import trio

from tests.backends.kubernetes_faults import Loss, Reply, Request, expired_event, read

if TYPE_CHECKING:
    from tests.backends.kubernetes_proxy import Proxy

CHUNK = 1 << 16
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, trio.EndOfChannel, h11.RemoteProtocolError, OSError)


class Connection:
    """A client's connection and the one to the server: two readers for its whole life, and one task that decides."""

    def __init__(self, proxy: Proxy) -> None:
        self.scope = trio.CancelScope()
        self.request: Request | None = None
        """The one that is not answered to its end."""
        self._to_pass, self._from_server = trio.open_memory_channel[tuple[float, bytes | None]](math.inf)
        self._ended = False
        self._to_client, self._from_client = trio.open_memory_channel[bytes](64)
        self._proxy = proxy
        self._here, self._there = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)

    async def run(self, stream: trio.SocketStream, tls: ssl.SSLContext, trust: ssl.SSLContext, port: int) -> None:
        with self.scope:
            await self._proxy.may_pass(None)
            try:
                server = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                return
            try:
                self._client = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
                self._upstream = trio.SSLStream(server, trust, server_hostname="127.0.0.1", https_compatible=True)
                await self._converse()
            finally:
                await trio.aclose_forcefully(server)

    async def _converse(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_client)
            nursery.start_soon(self._read_server)
            try:
                while await self._exchange():
                    pass
            except _BROKEN:
                pass
            nursery.cancel_scope.cancel()

    async def _read_client(self) -> None:
        try:
            while chunk := bytes(await self._client.receive_some(CHUNK)):
                await self._to_client.send(chunk)
        except _BROKEN:
            pass
        self.scope.cancel()

    async def _read_server(self) -> None:
        try:
            while chunk := bytes(await self._upstream.receive_some(CHUNK)):
                self._to_pass.send_nowait((trio.current_time(), chunk))
        except _BROKEN:
            pass
        await self._proxy.may_pass(self.request)
        self._ended = True
        self._to_pass.close()  # what it has said before is still passed on
        if self.request is None:
            self.scope.cancel()

    def cut(self) -> None:
        self.scope.cancel()

    def expire(self) -> None:
        """Says ERROR 410 in the open watch, after what the server has said so far."""
        if not self._ended:
            self._to_pass.send_nowait((0.0, None))

    # -- one request ---------------------------------------------------------------------------------------------------

    async def _exchange(self) -> bool:
        """Reads a request and answers it; returns whether another one may follow."""
        head, body = await self._read_request()
        request = self.request = _described(head)
        self._proxy.requests.append(request)
        self._proxy.tell()
        await self._proxy.may_pass(request)
        reply = self._proxy.fault(Reply, request)
        if reply is not None:
            await self._answer(request, reply)
        elif not await self._forward(request, head, body):
            return False
        self.request = None
        self._proxy.tell()
        return not self._ended and _renewed(self._here) and (reply is not None or _renewed(self._there))

    async def _read_request(self) -> tuple[h11.Request, bytes]:
        head, body = None, bytearray()
        while True:
            event = self._here.next_event()
            if event is h11.NEED_DATA:
                self._here.receive_data(await self._from_client.receive())
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return head, bytes(body)
            else:
                raise trio.EndOfChannel

    async def _forward(self, request: Request, head: h11.Request, body: bytes) -> bool:
        """Passes a request and its answer on; returns whether the answer came to its end."""
        # An event that the proxy adds to a watch must find plain lines.
        headers = [(name, value) for name, value in head.headers if not (request.watch and name == b"accept-encoding")]
        to_server = h11.Request(method=head.method, target=head.target, headers=headers)
        parts = [self._there.send(event) for event in (to_server, h11.Data(data=body), h11.EndOfMessage())]
        await self._upstream.send_all(b"".join(part for part in parts if part))
        between_lines = expire = False
        while True:
            event = self._there.next_event()
            if event is h11.NEED_DATA:
                expire |= await self._receive(request)
            elif isinstance(event, h11.Response):
                self._proxy.answered(request, event.status_code)
                if self._lost(request):
                    return False
                between_lines = True
                await self._send(event)
            elif isinstance(event, h11.Data):
                between_lines = event.data.endswith(b"\n")
                await self._send(event)
            elif isinstance(event, h11.EndOfMessage):
                await self._send(event)
                return True
            if expire and between_lines:
                await self._send(h11.Data(data=expired_event()), h11.EndOfMessage())
                return False

    async def _receive(self, request: Request) -> bool:
        """Takes what the server has said next, when it may be passed on; returns whether the watch is to expire."""
        try:
            came, what = await self._from_server.receive()
        except trio.EndOfChannel:
            came, what = trio.current_time(), b""
        if not isinstance(what, bytes):
            return True
        await self._proxy.may_pass(request, came)
        self._there.receive_data(what)
        return False

    def _lost(self, request: Request) -> bool:
        loss = self._proxy.fault(Loss, request)
        if loss is None:
            return False
        request.lost = True
        loss.use()
        return True

    async def _answer(self, request: Request, reply: Reply) -> None:
        reply.use()
        self._proxy.answered(request, reply.status)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(reply.body))), *reply.headers]
        head = h11.Response(status_code=reply.status, headers=headers)
        await self._send(head, h11.Data(data=reply.body), h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        parts = [self._here.send(event) for event in events]
        await self._client.send_all(b"".join(part for part in parts if part))


def _renewed(connection: h11.Connection) -> bool:
    """Makes a connection ready for its next request, if both sides can go on."""
    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
        return False
    connection.start_next_cycle()
    return True


def _described(head: h11.Request) -> Request:
    agent = dict(head.headers).get(b"user-agent", b"")
    return read(head.method.decode(), head.target.decode(), agent.decode("latin-1"), trio.current_time())
