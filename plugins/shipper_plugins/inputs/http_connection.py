"""One connection of an HTTP/1.1 server, over a `Peer` of `shipper.sdk.server`. Imports h11.

    connection = Connection(peer)
    while (request := await connection.begin()) is not None:
        with peer.busy(), memory.share(peer.address) as share:
            body = await connection.body(request, limit, share)
            await connection.reply(200, {"Content-Type": "application/json"}, b"{}")
        if not await connection.end():
            return

A request whose body is not read to its end can be answered too: the connection ends then. Before that, some of the rest
is read, since a socket that is closed with unread bytes discards the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import h11
import trio

from shipper.sdk.bodies import Body, BodyRefused, Share, too_slow
from shipper.sdk.server import Peer

_CHARSET = re.compile(r""";[ \t]*charset[ \t]*=[ \t]*["']?([^"';\s]*)""", re.IGNORECASE)
_LARGEST_HEADER = 32 << 10
_HEAD_SECONDS = 120.0
"""For a whole head, however it drips, and the wait for it."""
_LINGER_BYTES, _LINGER_SECONDS = 1 << 20, 2.0


class Malformed(Exception):
    """The peer sent something that is not HTTP; the text says where, and quotes nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request; names of headers are in small letters."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]

    @property
    def declared(self) -> int:
        """Bytes of the body, where the peer says how many."""
        return int(self.headers.get("content-length", "0"))

    @property
    def kind(self) -> str:
        """The Content-Type, without parameters, in small letters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The charset of the Content-Type, in small letters; `utf-8` where it names none."""
        found = _CHARSET.search(self.headers.get("content-type", ""))
        return found[1].lower() if found else "utf-8"

    @property
    def encoding(self) -> str:
        """The Content-Encoding, in small letters."""
        return self.headers.get("content-encoding", "identity").strip().lower()


class Connection:
    """The requests of a peer, one after the other."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEADER)
        self._is_head = False

    async def begin(self) -> Request | None:
        """Returns the next request; None at the end of the connection, or of the time for a head. Raises Malformed."""
        event: object = None
        with trio.move_on_after(_HEAD_SECONDS):
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
        body = Body(limit, share, begun=trio.current_time(), declared=request.declared)
        while block := await self._block(body.deadline):
            body.add(block, trio.current_time())
        return body.whole()

    async def _block(self, deadline: float) -> bytes:
        """Returns the next bytes of the body, none at its end."""
        with trio.move_on_at(deadline):
            try:
                event = await self._next()
            except h11.RemoteProtocolError:
                raise BodyRefused(400, "the framing of the body is not valid HTTP") from None
            return bytes(event.data) if isinstance(event, h11.Data) else b""
        raise too_slow()

    async def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answers the request, or what is no request."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        whole = {"Content-Length": str(len(body)), **headers}
        if self._peer.leaves or not self._is_read:
            whole["Connection"] = "close"
        response = h11.Response(status_code=status, headers=list(whole.items()))
        content = () if self._is_head else (h11.Data(data=body),)
        await self._put(response, *content, h11.EndOfMessage())

    async def end(self) -> bool:
        """Ends the request that was answered; returns whether the connection can be used again."""
        if not self._is_read:
            await self._linger()
            return False
        if self._http.our_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    @property
    def _is_read(self) -> bool:
        return self._http.their_state is h11.DONE

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
