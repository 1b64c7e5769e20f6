"""One connection of an HTTP/1.1 server, over a `Peer` of `shipper.sdk.server`. Imports h11.

    connection = Connection(peer)
    while (request := await connection.begin()) is not None:
        with peer.busy(), memory.share(peer.address) as share:
            body = await connection.body(request, limit, share)
            await connection.reply(200, {"Content-Type": "application/json"}, b"{}")
        if not await connection.end():
            return

An ordinary request, whose head came in one block, is read and answered without h11 (`request`).

A request whose body is not read to its end can be answered too: the connection ends then. Before that, some of the rest
is read, since a socket that is closed with unread bytes discards the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import h11
import trio

from shipper.sdk.bodies import Body, BodyRefused, Share, too_slow
from shipper.sdk.server import Peer
from shipper_plugins.http.request import Request, ordinary, written

_LARGEST_HEADER = 32 << 10
_NOTHING = b"", False
_HEAD_SECONDS = 120.0
"""For a whole head, however it drips, and the wait for it."""
_LINGER_BYTES, _LINGER_SECONDS = 1 << 20, 2.0


class Malformed(Exception):
    """The peer sent something that is not HTTP; the text says where, and quotes nothing."""


class Connection:
    """The requests of a peer, one after the other."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEADER)
        self._is_head = False
        self._left: int | None = None
        """Bytes of the body of an ordinary request that are not read yet; None: h11 reads the request."""
        self._ahead = b""
        """What has come behind the head of an ordinary request, and is not read yet."""

    async def begin(self) -> Request | None:
        """Returns the next request; None at the end of the connection, or of the time for a head. Raises Malformed."""
        deadline = trio.current_time() + _HEAD_SECONDS
        if self._http.trailing_data == _NOTHING:
            block, self._ahead = self._ahead or await self._receive(), b""
            if (found := ordinary(block)) is not None:
                request, self._ahead = found
                self._left = request.declared
                return request
            self._http.receive_data(block)
        event: object = None
        with trio.move_on_at(deadline):
            try:
                event = await self._next()
            except h11.RemoteProtocolError:
                raise Malformed("the request is not valid HTTP") from None
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        path = event.target.decode("latin-1").partition("?")[0]
        return Request(event.method.decode("latin-1"), path, headers)

    async def body(self, request: Request, limit: int, share: Share) -> bytes:
        """Returns the body of a request, of at most `limit` bytes; raises BodyRefused."""
        if self._left is not None and self._left <= min(len(self._ahead), limit):
            share.resize(self._left)
            return self._here()
        body = Body(limit, share, begun=trio.current_time(), declared=request.declared)
        while block := self._here() or await self._block(body.deadline):
            body.add(block, trio.current_time())
        return body.whole()

    def _here(self) -> bytes:
        """Returns what has come of the body of an ordinary request."""
        if not self._left:
            return b""
        block, self._ahead = self._ahead[: self._left], self._ahead[self._left :]
        self._left -= len(block)
        return block

    async def _block(self, deadline: float) -> bytes:
        """Returns the next bytes of the body, none at its end."""
        if self._left == 0:
            return b""
        with trio.move_on_at(deadline):
            if self._left is not None:
                return await self._next_here()
            try:
                event = await self._next()
            except h11.RemoteProtocolError:
                raise BodyRefused(400, "the framing of the body is not valid HTTP") from None
            return bytes(event.data) if isinstance(event, h11.Data) else b""
        raise too_slow()

    async def _next_here(self) -> bytes:
        self._ahead = await self._receive()
        if not self._ahead:
            raise BodyRefused(400, "the body ends too early")
        return self._here()

    async def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answers the request, or what is no request."""
        whole = {"Content-Length": str(len(body)), **headers}
        if self._peer.leaves or not self._is_read:
            whole["Connection"] = "close"
        if self._left is not None:
            await self._peer.send(written(status, whole.items(), body))
            return
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        response = h11.Response(status_code=status, headers=list(whole.items()))
        content = () if self._is_head else (h11.Data(data=body),)
        await self._put(response, *content, h11.EndOfMessage())

    async def end(self) -> bool:
        """Ends the request that was answered; returns whether the connection can be used again."""
        if not self._is_read:
            await self._linger()
            return False
        if self._left is not None:
            self._left = None
            return not self._peer.leaves
        if self._http.our_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    @property
    def _is_read(self) -> bool:
        return self._http.their_state is h11.DONE if self._left is None else not self._left

    async def _next(self) -> object:
        """Returns the next event of h11; raises RemoteProtocolError. Others run in between: a block of 64 KiB may have
        thousands of chunks."""
        await trio.lowlevel.checkpoint()
        while True:
            event = self._http.next_event()
            if event is h11.PAUSED:
                return h11.ConnectionClosed()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._put(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._receive())

    async def _receive(self) -> bytes:
        """Returns the next bytes; none at the end, or where the peer has aborted the connection."""
        try:
            return await self._peer.receive()
        except (OSError, trio.BrokenResourceError):
            return b""

    async def _put(self, *events: h11.Event) -> None:
        await self._peer.send(b"".join([self._http.send(event) or b"" for event in events]))

    async def _linger(self) -> None:
        left = _LINGER_BYTES
        with trio.move_on_after(_LINGER_SECONDS):
            while left > 0 and (block := await self._peer.receive()):
                left -= len(block)
