"""The connections of a `syslog` input: accepts them, limits their number and idle time, and ends them without a loss.

A connection is open for `idle_seconds` after its last byte. Their number is limited; one more displaces another one, by
the first of these rules that names one, or is closed itself:

| displaced | if |
|---|---|
| the oldest that has never sent a message, of the address with the most of these | there is one |
| the one quiet for longest, of the address with the most | it has several; quiet for `QUIET_SECONDS` |
| the same | the address has more than half of all, and another one connects |

So one peer keeps no others out, however many connections it opens and whatever it sends.

*Leaving.* Syslog has no acknowledgement: messages may be on their way when a connection is closed. So a connection
leaves instead: it shuts down its sending side, and reads until the peer ends its own, for `LEAVING_SECONDS` at most.
rsyslog checks for that end before it sends, and mostly reconnects without a loss; over TLS it sees the end, since no
unread data precedes it, neither a session ticket nor `close_notify`. A peer that does not check, like syslog-ng over
TLS, writes until the connection is closed, and loses the messages after that.
"""

from __future__ import annotations

import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import trio

from shipper.plugin import Endpoint
from shipper.sdk.crowd import origin
from shipper.sdk.descriptors import in_words, is_reserved, is_short, shortage
from shipper_plugins.syslog.door import Door, Peer
from shipper_plugins.syslog.frames import Frames
from shipper_plugins.syslog.gathering import Gathering

HANDSHAKE_SECONDS = 10.0
LEAVING_SECONDS = 5.0
PAUSE_SECONDS = 0.5
QUIET_SECONDS = 10.0
"""A connection that has been silent for so long is not in use."""
_CHUNK = 64 << 10
_STEP = 150
"""Messages between two checkpoints: 0.5 ms, or 6 ms if each is read alone."""


class Connection:
    """A connection of a peer; it ends when its scope is cancelled."""

    def __init__(self, raw: trio.socket.SocketType, peer: Peer, tls: ssl.SSLContext | None) -> None:
        self.raw, self.peer, self.tls = raw, peer, tls
        self.address = peer.path or origin(peer.ip)
        self.source = peer.source
        self.heard_at = trio.current_time()
        self.scope = trio.CancelScope(shield=True)
        """Shielded: after a cancel of the input the connection leaves."""
        self.ended = trio.Event()
        self.leaves = False
        self.is_silent = True
        """Whether it has not sent a message yet."""

    def leave(self, seconds: float) -> None:
        """Shuts down the sending side; limits the time for the peer's last messages."""
        self.scope.deadline = min(self.scope.deadline, trio.current_time() + seconds)
        if not self.leaves:
            self.leaves = True
            with suppress(OSError):
                self.raw.shutdown(socket.SHUT_WR)


class Streams:
    """All connections of one input; `crowded` takes the reason why connections were turned away, and their number."""

    def __init__(self, door: Callable[[], Door], gathering: Gathering, crowded: Callable[[str, int], None]) -> None:
        self._door, self._gathering, self._crowded = door, gathering, crowded
        self._open: dict[Connection, None] = {}
        """The oldest first."""
        self.refused = 0
        """The number of connections from senders that the door refused."""

    def __len__(self) -> int:
        return len(self._open)

    async def accept(self, endpoint: Endpoint, listener: socket.socket, nursery: trio.Nursery) -> None:
        """Accepts until cancelled; connections run in the nursery."""
        accepting = trio.socket.from_stdlib_socket(listener)
        while True:
            try:
                raw, address = await accepting.accept()
            except OSError as error:  # no descriptors are left, or the peer has closed already
                if is_short(error):
                    self._crowded(in_words(error), 0)
                await trio.sleep(PAUSE_SECONDS)
                continue
            self._welcome(endpoint, raw, address, nursery)

    def _welcome(self, endpoint: Endpoint, raw: trio.socket.SocketType, address: object, nursery: trio.Nursery) -> None:
        door, peer = self._door(), Peer.of(endpoint, address)
        if is_reserved(raw.fileno()):
            raw.close()
            self._crowded(shortage(), 1)
        elif not door.lets_in(peer):
            raw.close()
            self.refused += 1
        else:
            connection = Connection(raw, peer, door.tls if endpoint.scheme == "tls" else None)
            if not self._has_room(connection, door.max_connections):
                raw.close()
                return
            self._open[connection] = None
            nursery.start_soon(self._serve, connection)

    def _has_room(self, newcomer: Connection, most: int) -> bool:
        """Returns whether there is room for a connection; makes another one leave for it, or closes that if it is
        silent. Those that leave take as many places again at most."""
        staying = [one for one in self._open if not one.leaves] if len(self._open) >= most else []
        if len(staying) < most and len(self._open) < 2 * most:
            return True
        self._crowded(f"connections closed, since {most} are open, the maximum; see who connects", 1)
        displaced = to_displace(staying, newcomer)
        if displaced is None:
            return False
        if displaced.is_silent:
            del self._open[displaced]
            displaced.scope.cancel("another connection takes its place")
        elif len(self._open) < 2 * most:
            displaced.leave(LEAVING_SECONDS)
        else:
            return False
        return True

    async def leave(self, connections: Iterable[Connection], seconds: float) -> None:
        """Makes connections leave; returns when they are closed."""
        leaving = list(connections)
        for connection in leaving:
            connection.leave(seconds)
        for connection in leaving:
            await connection.ended.wait()

    async def leave_all(self, seconds: float) -> None:
        """Makes all connections leave; returns when they are closed."""
        await self.leave(self._open, seconds)

    async def renew(self) -> None:
        """Makes connections leave that have an earlier certificate, or whose peer may not send any more; returns when
        they are closed."""
        door = self._door()
        leaving = [
            one for one in self._open if (one.tls is not None and one.tls is not door.tls) or not door.lets_in(one.peer)
        ]
        await self.leave(leaving, LEAVING_SECONDS)

    # -- one connection ------------------------------------------------------------------------------------------------

    async def _serve(self, connection: Connection) -> None:
        try:
            with connection.scope, suppress(trio.BrokenResourceError, OSError):
                stream = await _opened(connection)
                if stream is not None:
                    await self._read(connection, stream)
        finally:
            connection.raw.close()
            self._open.pop(connection, None)
            connection.ended.set()

    async def _read(self, connection: Connection, stream: trio.abc.ReceiveStream) -> None:
        frames = Frames(self._door().max_bytes)
        try:
            while data := await self._receive(connection, stream):
                frames.max_bytes = self._door().max_bytes
                await self._add(connection, frames.feed(data))
        except trio.BrokenResourceError:  # a reset, which ends a last line too
            pass
        await self._add(connection, frames.end())

    async def _receive(self, connection: Connection, stream: trio.abc.ReceiveStream) -> bytes:
        await self._gathering.room()
        if not connection.leaves:
            with trio.move_on_after(self._door().idle_seconds):
                data = bytes(await stream.receive_some(_CHUNK))
                connection.heard_at = trio.current_time()
                return data
            connection.leave(LEAVING_SECONDS)
        return bytes(await stream.receive_some(_CHUNK))

    async def _add(self, connection: Connection, frames: list[bytes]) -> None:
        for start in range(0, len(frames), _STEP):
            await self._gathering.room()
            self._gathering.add(self._door().block(frames[start : start + _STEP], connection.source))
            connection.is_silent = False
            await trio.lowlevel.checkpoint()


def to_displace(staying: Sequence[Connection], newcomer: Connection) -> Connection | None:
    """Returns the connection whose place another one gets, by the table above; the oldest come first."""
    silent = [one for one in staying if one.is_silent]
    among = silent or staying
    counts = Counter(one.address for one in among)
    chosen = min(among, key=lambda one: (-counts[one.address], 0.0 if silent else one.heard_at), default=None)
    if chosen is None or silent:
        return chosen
    of_address = counts[chosen.address]
    is_quiet = of_address > 1 and newcomer.heard_at - chosen.heard_at >= QUIET_SECONDS
    is_crowd = of_address > len(staying) / 2 and chosen.address != newcomer.address
    return chosen if is_quiet or is_crowd else None


async def _opened(connection: Connection) -> trio.abc.ReceiveStream | None:
    """Returns the stream of a connection, or None if its handshake takes too long."""
    if connection.peer.path == "":
        connection.raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain = trio.SocketStream(connection.raw)
    if connection.tls is None:
        return plain
    stream = trio.SSLStream(plain, connection.tls, server_side=True, https_compatible=True)
    with trio.move_on_after(HANDSHAKE_SECONDS):
        await stream.do_handshake()
        return stream
    return None
