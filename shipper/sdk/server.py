"""PUBLIC: a server for a listening socket of `InputContext.listen`; all of its resources are bounded.

    server = Server(self._talk, tls=…, tell=…)
    await server.serve(listener)                    # in `Source.run`

    async def _talk(self, peer: Peer) -> None:
        while block := await peer.receive():
            with peer.busy():                       # not displaced, nor cut off by a new certificate
                await self._context.emit(…)
            peer.shown.add(digest)                  # of the credential that it was admitted by
            peer.let_in()                           # it is authenticated, or its request is valid

| what | bound |
|---|---|
| peers that were let in | `Limits.clients`; the next one displaces another, as `rooms` says, or is refused |
| other peers, TLS handshakes too | `Limits.newcomers`; the next one displaces the oldest of the address with the most |
| a TLS handshake | `Limits.handshake_seconds` |
| a peer that sends nothing, or reads nothing | `Limits.idle_seconds` |

`Server.tls` may be replaced at any time, and credentials removed; `renew` then closes the connections of the previous
one, and those that have shown such a credential; `Source.changed` awaits it. A server of aiohttp decides by `rooms` in
the same way.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn

import trio

from shipper.sdk.crowd import origin
from shipper.sdk.descriptors import in_words, is_reserved, is_short, shortage
from shipper.sdk.errors import raised_at
from shipper.sdk.rooms import Busy, Rooms

_log = logging.getLogger(__name__)

TELL_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.5
BLOCK: Final = 64 << 10
LOCAL = "this host"
"""The origin of peers of a socket in the file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of numbers and times for all peers."""

    clients: int = 256
    newcomers: int = 128
    """An open TLS connection takes 0.3 MiB."""
    handshake_seconds: float = 10.0
    idle_seconds: float = 120.0
    leaving_seconds: float = 60.0
    """For busy connections that were opened with a previous certificate, or have shown a removed credential."""


class Peer:
    """One connection, for its handler. It is closed when the handler returns."""

    def __init__(self, server: Server, socket: socket.socket, address: str, tls: ssl.SSLContext | None) -> None:
        self.address = address
        """Its IP address, or its 64 bits of IPv6; `this host` of a socket in the file system."""
        self.tls = tls
        self.shown: set[bytes] = set()
        """Digests of the credentials that it was admitted by; the handler adds them, in the step that decides."""
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._socket = socket
        plain = trio.SocketStream(trio.socket.from_stdlib_socket(socket))
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream] = plain
        self._server = server
        self.leaves = False
        """Whether it ends when it is not busy any more."""

    async def receive(self, most: int = BLOCK) -> bytes:
        """Returns the next bytes, or none at the end; a peer that sends nothing for too long is cancelled."""
        self.scope.deadline = trio.current_time() + self._server.limits.idle_seconds
        try:
            if self.tls is not None:
                return bytes(await self._stream.receive_some(most))
            return await self._received(most)
        finally:
            self.scope.deadline = math.inf

    async def _received(self, most: int) -> bytes:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            with suppress(BlockingIOError):
                return self._socket.recv(most)

    async def send(self, data: bytes) -> None:
        """Returns when the kernel has all of it; a peer that does not read for too long is cancelled."""
        if self.tls is None and not (data := data[self._sent(data) :]):
            return
        with trio.move_on_after(self._server.limits.idle_seconds):
            await self._stream.send_all(data)
            return
        await self._late()

    def _sent(self, data: bytes) -> int:
        """Returns how many bytes the kernel takes at once."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def let_in(self) -> bool:
        """Makes the peer a client; returns False if there is no room for it."""
        return self._server.rooms.let_in(self)

    @property
    def is_crowded(self) -> bool:
        """Whether there is no room for it as a client."""
        return self._server.rooms.are_full(self)

    def busy(self) -> BusyPeer:
        """Marks the peer as not idle within this block: it is not displaced, and may finish with a previous
        certificate, or a removed credential."""
        return BusyPeer(self, self._server.rooms.busy(self))

    async def shake_hands(self) -> None:
        """Does the TLS handshake, if TLS is set; raises OSError or trio.BrokenResourceError."""
        if self.tls is not None:
            assert isinstance(self._stream, trio.SocketStream)
            stream = trio.SSLStream(self._stream, self.tls, server_side=True, https_compatible=True)
            self._stream = stream
            with trio.move_on_after(self._server.limits.handshake_seconds):
                await stream.do_handshake()
                return
            await self._late()

    async def _late(self) -> NoReturn:
        """Ends a connection that took too long."""
        self.drop()
        await trio.lowlevel.checkpoint_if_cancelled()
        raise AssertionError

    def leave(self) -> None:
        """Ends the connection, once it is not busy."""
        self.leaves = True
        if not self._server.rooms.is_busy(self):
            self.drop()

    def drop(self) -> None:
        """Ends the connection now."""
        self.scope.cancel("the server closes this connection")

    async def close(self) -> None:
        """Closes the socket, without a TLS closure alert."""
        await trio.aclose_forcefully(self._stream)


class BusyPeer:
    """See `Peer.busy`."""

    __slots__ = ("_busy", "_peer")

    def __init__(self, peer: Peer, busy: Busy[Peer]) -> None:
        self._peer, self._busy = peer, busy

    def __enter__(self) -> None:
        self._busy.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._busy.__exit__()
        if kind is None and self._peer.leaves:
            self._peer.drop()


def _tell_nobody(turned_away: int, problem: str | None) -> None:
    """The default `tell`: does nothing."""


class Server:
    """Serves a listening socket of streams; each connection is a call of `handler`.

    `tell` is called when connections are turned away: with their number and a sentence, at most every `TELL_SECONDS`,
    and with 0 and None when it is over. An error of the handler ends its connection, and is logged.
    """

    def __init__(
        self,
        handler: Callable[[Peer], Awaitable[None]],
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        tell: Callable[[int, str | None], None] = _tell_nobody,
    ) -> None:
        self.tls = tls
        """The TLS context of new connections."""
        self.limits = limits or Limits()
        self._handler, self._tell = handler, tell
        self._crowded = trio.Event()
        self._peers: set[Peer] = set()
        self.rooms: Rooms[Peer] = Rooms(
            self.limits.clients, self.limits.newcomers, drop=Peer.drop, crowded=lambda: self._crowded.set()
        )

    async def serve(self, listener: socket.socket) -> None:
        """Accepts until cancelled; closes every connection then, and leaves the listening socket open."""
        accepting = trio.socket.from_stdlib_socket(listener.dup())
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_of_crowds)
                while True:
                    await self._accept(accepting, nursery)
        finally:
            accepting.close()

    async def _accept(self, accepting: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        try:
            connection, address = await accepting.accept()
        except OSError as error:  # no descriptors left, or the peer has disconnected
            if is_short(error):
                self.rooms.make_room(in_words(error))
            await trio.sleep(PAUSE_SECONDS)
            return
        whence = origin(address[0]) if isinstance(address, tuple) else LOCAL
        if is_reserved(connection.fileno()):
            connection.close()
            self.rooms.turn_away(whence)
            self.rooms.make_room(shortage())
            return
        plain = socket.socket(fileno=connection.detach())
        plain.setblocking(False)
        peer = Peer(self, plain, whence, self.tls)
        self._peers.add(peer)
        self.rooms.add(peer, whence)
        nursery.start_soon(self._serve, peer)

    async def _serve(self, peer: Peer) -> None:
        try:
            with peer.scope, suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                await peer.shake_hands()
                await self._handler(peer)
        except Exception as error:
            _log.error("a connection could not be served: %s", raised_at(error))
        finally:
            with trio.CancelScope(shield=True):
                await peer.close()
            self._peers.discard(peer)
            self.rooms.remove(peer)
            peer.ended.set()

    async def renew(self, keys: Collection[bytes] = ()) -> None:
        """Closes connections that were opened with another `tls` than the present one, or have `shown` a credential
        that is not among `keys`; returns when they are closed.

        A busy one may finish first, within `Limits.leaving_seconds`.
        """
        leaving = [peer for peer in self._peers if peer.tls is not self.tls or not peer.shown.issubset(keys)]
        for peer in leaving:
            peer.leave()
        with trio.move_on_after(self.limits.leaving_seconds):
            for peer in leaving:
                await peer.ended.wait()
        for peer in leaving:
            peer.drop()
        for peer in leaving:
            await peer.ended.wait()

    async def _tell_of_crowds(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded = trio.Event()
            self._tell(*self.rooms.tell())
            await trio.sleep(TELL_SECONDS)
            if not self._crowded.is_set():
                self._tell(0, None)
