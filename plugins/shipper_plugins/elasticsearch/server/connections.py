"""The connections of the bulk server: accepts and keeps them, and closes some to make room.

    accepted ──> newcomer (TLS handshake, first header) ──an admitted request──> client

`shipper.sdk.rooms` decides; a client without room is answered 429. Closed connections are reported while there is no
room, at most every `TELL_SECONDS`. A connection with a descriptor of the reserve is closed at once.

A request that a client sends again and again, byte by byte, can be answered without parsing it (`Connections.repeat`):
of a heartbeat, aiohttp's parser, objects and tasks, and what a handler does, are two thirds of the cost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from shipper.plugin import raised_at
from shipper.sdk.crowd import origin
from shipper.sdk.descriptors import in_words, is_reserved, is_short, shortage
from shipper.sdk.rooms import Rooms
from shipper_plugins.elasticsearch.server.answer import RequestRefused
from shipper_plugins.elasticsearch.server.door import busy
from shipper_plugins.elasticsearch.server.http import abort, refused

MOST_CLIENTS = 256
MOST_NEWCOMERS = 128
"""An open TLS connection takes 0.3 MiB."""
HANDSHAKE_SECONDS = 10.0
LEAVING_SECONDS = 60.0
"""The time for requests under way on connections with an earlier certificate."""
SHUTDOWN_SECONDS = 1.0
"""The time for a peer's answer to the end of a TLS connection."""
IDLE_SECONDS = 120.0
MOST_REPEATED = 16 << 10
"""Bytes of a request that can be recognized when it, or its head, is repeated."""
TELL_SECONDS = 10.0
PAUSE_SECONDS = 0.5

_CONTENT_LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]{1,6})(?![^\r])", re.IGNORECASE)

_log = logging.getLogger(__name__)

_TLS_SECONDS = {"ssl_handshake_timeout": HANDSHAKE_SECONDS, "ssl_shutdown_timeout": SHUTDOWN_SECONDS}

Tell = Callable[[int, str | None], Awaitable[None]]
"""Takes the number of connections that were turned away since the last call, and the problem; 0 and None at its end."""


class Ends(Protocol):
    """What ends, such as a future."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Has it called at the end, later in the asyncio thread."""


Again = Callable[[], bytes | None]
"""Returns the answer to a repeated request, head and body; None if it must be judged like a new one. Does not block."""

Answer = Callable[[], bytes]
"""Returns an answer that is there, head and body."""

Take = Callable[[bytes], tuple[Ends, Answer] | None]
"""Takes the body of a request with a known head; returns what ends when its answer is there, and the answer. None if
the request must be judged like a new one. Does not block."""


class _Repeated(NamedTuple):
    digest: bytes
    again: Again


class _Known(NamedTuple):
    digest: bytes
    """Of a head without the number of its Content-Length."""
    take: Take
    rooms: Rooms[_Connection]


class Connections:
    """The connections of one server, whose requests `server` answers; `tls` returns the context for a new one.

    At most `clients` of them are clients, by default MOST_CLIENTS.
    """

    def __init__(
        self, server: web.Server, tls: Callable[[], ssl.SSLContext | None], tell: Tell, *, clients: int | None = None
    ) -> None:
        self._server, self._tls, self._tell = server, tls, tell
        self._crowded = asyncio.Event()
        self._rooms: Rooms[_Connection] = Rooms(
            clients or MOST_CLIENTS, MOST_NEWCOMERS, drop=_Connection.drop, crowded=self._crowded.set
        )
        self._open_ones: set[_Connection] = set()
        """All connections, from their start until their socket is closed."""

    async def accept(self, listener: socket.socket) -> None:
        """Accepts until cancelled; connections that are being opened end then."""
        async with asyncio.TaskGroup() as openings:
            openings.create_task(self._tell_of_crowds())
            openings.create_task(self._close_idle())
            while True:
                try:
                    connection, address = await _accepted(listener)
                except OSError as error:  # no descriptors are left, or the peer has closed already
                    if is_short(error):
                        self._rooms.make_room(in_words(error))
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                if is_reserved(connection.fileno()):
                    connection.close()
                    self._rooms.turn_away(origin(address[0]))
                    self._rooms.make_room(shortage())
                else:
                    self._welcome(connection, origin(address[0]), openings)
                await asyncio.sleep(0)  # accepting does not suspend while more connections wait

    def _welcome(self, connection: socket.socket, address: str, openings: asyncio.TaskGroup) -> None:
        newcomer = _Connection(self._server, self._gone)
        newcomer.address = address
        newcomer.opening = openings.create_task(self._open(connection, newcomer))
        newcomer.opening.add_done_callback(
            lambda opening: self._failed(connection, newcomer) if opening.cancelled() else None
        )
        self._rooms.add(newcomer, address)

    async def _open(self, connection: socket.socket, newcomer: _Connection) -> None:
        tls = newcomer.tls = self._tls()
        seconds = {} if tls is None else _TLS_SECONDS
        self._open_ones.add(newcomer)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: newcomer, connection, ssl=tls, **seconds)
        except OSError:  # no TLS, or closed before it was open
            self._failed(connection, newcomer)

    def _failed(self, connection: socket.socket, newcomer: _Connection) -> None:
        connection.close()
        self._gone(newcomer)

    def _gone(self, connection: _Connection) -> None:
        connection.ended.set()
        self._open_ones.discard(connection)
        self._rooms.remove(connection)

    async def renew(self, admits: Callable[[Any], bool]) -> None:
        """Closes connections with another certificate than the current one, and those of which something was noted that
        `admits` nobody any more; returns when they are closed.

        Requests under way are answered first, within `LEAVING_SECONDS`, unless they only wait; new ones are not
        accepted.
        """
        tls = self._tls()
        leaving = [one for one in self._open_ones if one.tls is not tls or not all(map(admits, one.shown))]
        for one in leaving:
            one.leave(at_once=one.only_waits or not self._rooms.is_busy(one))
        ended = [asyncio.ensure_future(one.ended.wait()) for one in leaving]
        try:
            if ended and (await asyncio.wait(ended, timeout=LEAVING_SECONDS))[1]:
                for one in leaving:
                    one.drop()
                await asyncio.wait(ended)
        finally:
            for waiting in ended:
                waiting.cancel()

    # -- clients ---------------------------------------------------------------------------------------------------

    def note(self, request: web.BaseRequest, shown: Hashable) -> None:
        """Notes what the connection of a request was admitted by, no secret; call it in the step that decides."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.shown.add(shown)

    def let_in(self, request: web.BaseRequest) -> None:
        """Makes the connection of a valid request a client; raises RequestRefused (429) without room."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        if not self._rooms.let_in(connection):
            raise busy("too many clients are served now")

    def address(self, request: web.BaseRequest) -> str:
        """Returns the `origin` of the peer of a request."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        return connection.address

    @contextmanager
    def busy(self, request: web.BaseRequest) -> Iterator[_Connection]:
        """Marks the connection of a request as busy within the block; yields it."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.idle_since = None
        try:
            with self._rooms.busy(connection):
                yield connection
        finally:
            connection.idle_since = time.monotonic()

    @contextmanager
    def waiting(self, request: web.BaseRequest) -> Iterator[None]:
        """Marks a request within the block as one that only waits for something to be told, and may be broken off."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.only_waits = True
        try:
            yield
        finally:
            connection.only_waits = False

    def repeat(self, request: web.BaseRequest, body: bytes, again: Again) -> None:
        """Answers what repeats this request byte by byte by `again`, until anything else comes on its connection."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.repeat(request, body, lambda: again() if self._rooms.let_in(connection) else None)

    def know(self, request: web.BaseRequest, body: bytes, take: Take) -> None:
        """Has a request with the head of this one, but for the length of its body, answered by `take` if it comes whole
        and alone: that of many small requests aiohttp would take most of the time."""
        connection = request.protocol
        assert isinstance(connection, _Connection)
        connection.know(request, body, take, self._rooms)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SECONDS / 8)
            since = time.monotonic() - IDLE_SECONDS
            for one in list(self._open_ones):
                if one.idle_since is not None and one.idle_since <= since:
                    one.leave(at_once=True)

    # -- crowds ----------------------------------------------------------------------------------------------------

    async def _tell_of_crowds(self) -> None:
        while True:
            await self._crowded.wait()
            self._crowded.clear()
            await self._say(*self._rooms.tell())
            await asyncio.sleep(TELL_SECONDS)
            if not self._crowded.is_set():
                await self._say(0, None)

    async def _say(self, count: int, text: str | None) -> None:
        await self._tell(count, text)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the call of `tell` may have swallowed a cancel
            raise asyncio.CancelledError


class _Connection(web.RequestHandler):
    """Answers invalid HTTP with a text of its own, since aiohttp's quotes it; logs internal errors.

    An answer counts as written when the kernel has all of it. So an orderly close never waits for a peer that does not
    read.
    """

    opening: asyncio.Task[None]

    def __init__(self, server: web.Server, gone: Callable[[_Connection], None]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=math.inf,  # `Connections` closes idle ones: aiohttp does not see repeated requests
            access_log=None,  # type: ignore[arg-type]  # falsy means off
            auto_decompress=False,
            read_bufsize=1 << 16,
            logger=_log,
        )
        self._gone = gone
        self.address = ""
        """The `origin` of its peer."""
        self.tls: ssl.SSLContext | None = None
        """The context that it was opened with."""
        self.shown: set[Hashable] = set()
        """What it was admitted by."""
        self.only_waits = False
        """Whether nothing is lost if the request under way gets no answer."""
        self.ended = asyncio.Event()
        self.leaves = False
        """Whether it ends with the request under way."""
        self.idle_since: float | None = time.monotonic()
        """When its last request was answered, or when it was accepted; None while a request is under way."""
        self._arrived = b""
        """The digest of what aiohttp was given last, if that was little; a digest, as credentials are not kept."""
        self._repeated: _Repeated | None = None
        self._known: _Known | None = None
        self._taken: Rooms[_Connection] | None = None
        """While a request with a known head is under way, where the connection is busy."""
        self._later = b""
        """What came meanwhile; no more is read then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if isinstance(transport, asyncio.Transport):
            transport.set_write_buffer_limits(high=1, low=0)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._repeated = self._known = None
        self._later = b""
        self._gone(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what has arrived; aiohttp calls it with nothing, to go on with what it has."""
        if self._taken is not None:
            self._later += data
            if isinstance(self.transport, asyncio.Transport):
                self.transport.pause_reading()
            return
        if data:
            is_little = len(data) <= MOST_REPEATED
            if is_little and self._known is not None and self._take(data, self._known):
                return
            digest = sha256(data).digest() if is_little else b""
            if self._repeated is not None and digest == self._repeated.digest and self._answer(self._repeated.again):
                return
            self._arrived, self._repeated = digest, None
        super().data_received(data)

    def repeat(self, request: web.BaseRequest, body: bytes, again: Again) -> None:
        """See `Connections.repeat`. Nothing is repeated if the request came in pieces, or something came with it."""
        if self._came_alone(_as_sent(request, body)):
            self._repeated = _Repeated(self._arrived, again)

    def know(self, request: web.BaseRequest, body: bytes, take: Take, rooms: Rooms[_Connection]) -> None:
        """See `Connections.know`. Nothing is known of a request that came in pieces, or with something else."""
        sent = _as_sent(request, body)
        parted = _parted(sent)
        if parted is not None and self._came_alone(sent):
            self._known = _Known(parted[0], take, rooms)

    def _came_alone(self, sent: bytes) -> bool:
        others = getattr(self, "_messages", True)  # aiohttp's queue of requests that came at once
        return not others and self._arrived == sha256(sent).digest()

    @property
    def _is_free(self) -> bool:
        """Whether a request can be answered without aiohttp."""
        transport = self.transport
        is_open = transport is not None and not transport.is_closing()
        is_idle = self.idle_since is not None and not getattr(self, "_messages", True)
        return is_open and is_idle and not (self.leaves or self.writing_paused)

    def _answer(self, again: Again) -> bool:
        """Returns whether a repeated request was answered."""
        answer = again() if self._is_free else None
        if answer is not None:
            self._write(answer)
        return answer is not None

    def _take(self, data: bytes, known: _Known) -> bool:
        """Returns whether a request with a known head was taken; it is answered later."""
        parted = _parted(data) if self._is_free else None
        if parted is None or parted[0] != known.digest or not known.rooms.let_in(self):
            return False
        if (taken := known.take(parted[1])) is None:
            return False
        self._taken, self.idle_since = known.rooms, None
        known.rooms.begin(self)
        ends, answer = taken
        ends.add_done_callback(lambda _: self._end(answer))
        return True

    def _end(self, answer: Answer) -> None:
        """Answers a request that was taken, and goes on with what came meanwhile."""
        assert self._taken is not None
        self._taken.end(self)
        self._taken, later, self._later = None, self._later, b""
        if self.transport is None or self.transport.is_closing():
            return
        try:
            self._write(answer())
            if self.leaves:
                self.force_close()
            elif later and isinstance(self.transport, asyncio.Transport):
                self.transport.resume_reading()
                self.data_received(later)
        except Exception as error:
            _log.error("a request could not be answered: %s", raised_at(error))
            abort(self)

    def _write(self, answer: bytes) -> None:
        """Ends the connection of a peer that leaves answers unread."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.write(answer)
        self.idle_since = time.monotonic()
        if self.writing_paused:
            abort(self)

    def close(self) -> None:
        """Has the connection end in order, after the request under way."""
        self.leaves = True
        if self._taken is None:
            super().close()

    def leave(self, *, at_once: bool) -> None:
        """Closes the connection in order, after the request under way or at once."""
        self.leaves = True
        if not at_once:
            self.close()
        elif self.transport is None:
            self.drop()
        else:
            self.force_close()

    def drop(self) -> None:
        """Aborts the connection, or its opening."""
        self.opening.cancel()
        abort(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc  # the peer has closed; aiohttp expects this error
        if status >= 500:
            _log.error("a request could not be answered: %s", message if exc is None else raised_at(exc))
            refusal = RequestRefused(status, "exception", "internal error")
        else:
            refusal = RequestRefused(400, "illegal_argument_exception", "the request is not valid HTTP")
        response = refused(request, refusal)
        response.force_close()
        return response


def _as_sent(request: web.BaseRequest, body: bytes) -> bytes:
    """Returns the bytes of a request with this body, written in the common way.

    No shorter end of them is the same request. So if they are what was read last, that is this request alone, from its
    first byte to its last.
    """
    first = f"{request.method} {request.raw_path} HTTP/{request.version.major}.{request.version.minor}"
    fields = [name + b": " + value for name, value in request.raw_headers]
    return b"\r\n".join([first.encode(errors="surrogateescape"), *fields, b"", body])


def _parted(sent: bytes) -> tuple[bytes, bytes] | None:
    """Returns the digest of the head of a request, without the number of its Content-Length, and its body; None unless
    that is the length of all that is behind the head."""
    head, _, body = sent.partition(b"\r\n\r\n")
    found = _CONTENT_LENGTH.search(head)
    if found is None or int(found[1]) != len(body):
        return None
    return sha256(head[: found.start(1)] + b"\0" + head[found.end(1) :]).digest(), body


async def _accepted(listener: socket.socket) -> tuple[socket.socket, Any]:
    """Accepts the next connection; raises OSError. A cancel loses none, as asyncio's own `sock_accept` may."""
    while True:
        try:
            connection, address = listener.accept()
        except (BlockingIOError, InterruptedError):
            await _readable(listener)
        else:
            connection.setblocking(False)
            return connection, address


async def _readable(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(listener, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(listener)
