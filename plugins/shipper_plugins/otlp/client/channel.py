"""Unary calls of gRPC with a credential that may be revoked in the instant in which the channel is closed. Imports h2.

    call ──> an idle connection, or a new one ──> one stream ──> its answer ──> idle again

Each connection has one call at a time, so there are no background tasks, and a cancel aborts the connection: with
SO_LINGER {1, 0} from connect on, the kernel discards unsent bytes. Bytes that arrived while a connection was idle are
read before its next call; a connection that its server is about to close is not used again.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from isal import igzip_lib, isal_zlib

from shipper.plugin import Code, Endpoint, NotBegun
from shipper.sdk.connection import CONNECT_SECONDS, broken_off, by_way_of, open_stream
from shipper.sdk.http_answer import NoAnswer, Unreachable
from shipper.sdk.proxies import Proxy
from shipper_plugins.bad_answers import unreadable
from shipper_plugins.otlp import grpc
from shipper_plugins.otlp.client.answers import Reply, reply_without_status
from shipper_plugins.otlp.model import Unfit

_IDLE_READ = 0.05
_BLOCK = 1 << 16
_LARGEST_ANSWER = 1 << 20
_GZIP = 31  # window bits
_CODE = re.compile(r"[0-9]{1,3}")
_IsalError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says instance
_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class _Broken(Exception):
    """The connection, or the stream, ended before the answer; the text quotes nothing of the peer."""


class Channel:
    """Calls to one server; made by `open_channel`."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        headers: Mapping[str, str],
        *,
        server_name: str | None,
        seconds: float,
        begins: Callable[[], Awaitable[None]],
        may_begin: Callable[[], bool],
        proxy: Proxy | None,
    ) -> None:
        self._endpoint, self._tls, self._server_name = Endpoint("tcp", host, port), tls, server_name
        self.address = self._endpoint.address
        self._proxy, self._where = proxy, by_way_of(self.address, proxy)
        scheme = "http" if tls is None else "https"
        pseudo = {":method": "POST", ":scheme": scheme, ":authority": self.address, ":path": grpc.PATH}
        self._headers = [*pseudo.items(), *headers.items()]
        self._seconds = float(seconds)
        self._begins, self._may_begin = begins, may_begin
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def call(self, body: bytes) -> Reply:
        """Makes one call; a cancel aborts its connection. Raises Unreachable, NoAnswer or NotBegun."""
        self._check()
        with trio.move_on_after(self._seconds):
            return await self._call(body)
        raise NoAnswer(f"{self._where}: timed out after {self._seconds:g}s", "timeout", Code.TIMED_OUT)

    async def _call(self, body: bytes) -> Reply:
        connection = await self._fresh() or await self._connected()
        try:
            await self._begins()
            self._check()
            reply = await self._asked(connection, body)
        except BaseException:
            await self._drop(connection)
            raise
        if connection.is_usable:
            self._idle.append(connection)
        else:
            await self._drop(connection)
        return reply

    async def _asked(self, connection: _Connection, body: bytes) -> Reply:
        """Returns the answer over this connection; raises NoAnswer for whatever h2 or a reader makes of its bytes."""
        try:
            return await connection.ask(self._headers, body)
        except Exception as error:
            raise self._no_answer(error) from None

    def _check(self) -> None:
        if not self._may_begin():
            raise NotBegun("nothing may be sent now")

    async def _fresh(self) -> _Connection | None:
        """Returns a usable idle connection, or None."""
        while self._idle:
            connection = self._idle.pop()
            try:
                if await connection.is_fresh():
                    return connection
            except BaseException:
                await self._drop(connection)
                raise
            await self._drop(connection)
        return None

    async def _connected(self) -> _Connection:
        seconds = min(CONNECT_SECONDS, self._seconds)
        stream = await open_stream(
            self._endpoint,
            self._tls,
            server_name=self._server_name,
            seconds=seconds,
            proxy=self._proxy,
            may_begin=self._may_begin,
        )
        connection = _Connection(stream)
        self._open.add(connection)
        if isinstance(stream, trio.SSLStream) and stream.selected_alpn_protocol() not in ("h2", None):
            await self._drop(connection)
            raise Unreachable(f"{self._where}: the server speaks no HTTP/2", "unreachable", Code.UNREACHABLE)
        return connection

    async def _drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        await connection.abort()

    async def close(self) -> None:
        """Aborts every connection."""
        self._idle.clear()
        for connection in tuple(self._open):
            await self._drop(connection)

    def _no_answer(self, error: Exception) -> NoAnswer:
        match error:
            case _Broken():
                return NoAnswer(f"{self._where}: {error}", "broken", Code.NO_ANSWER)
            case ProtocolError():
                return NoAnswer(f"{self._where}: the answer is not HTTP/2", "broken", Code.BAD_ANSWER)
            case _ if isinstance(error, _GONE):
                return broken_off(self._where, error)
            case _:
                return NoAnswer(f"{self._where}: {unreadable(error)}", "broken", Code.BAD_ANSWER)


@asynccontextmanager
async def open_channel(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    headers: Mapping[str, str],
    *,
    server_name: str | None,
    seconds: float,
    begins: Callable[[], Awaitable[None]],
    may_begin: Callable[[], bool],
    proxy: Proxy | None = None,
) -> AsyncIterator[Channel]:
    """Yields a channel that connects only for calls; aborts and closes every connection at the end of the block.

    The arguments are those of `shipper.sdk.http.open_client`, but for `proxy`, which always makes a tunnel.
    """
    channel = Channel(
        host,
        port,
        tls,
        headers,
        server_name=server_name,
        seconds=seconds,
        begins=begins,
        may_begin=may_begin,
        proxy=proxy,
    )
    try:
        yield channel
    finally:
        await channel.close()


class _Call:
    """The answer to a request while it arrives."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_over = False


class _Connection:
    """One connection, with one call at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
        self._h2.initiate_connection()
        self._is_leaving = False
        self.is_usable = True

    async def is_fresh(self) -> bool:
        """Returns whether the connection can be used for one more call; reads the bytes since the last one."""
        raw = self._stream.transport_stream if isinstance(self._stream, trio.SSLStream) else self._stream
        assert isinstance(raw, trio.SocketStream)
        try:
            while raw.socket.is_readable() and not self._is_leaving:
                block = None
                with trio.move_on_after(_IDLE_READ):  # a record of TLS may have no data
                    block = await self._stream.receive_some(_BLOCK)
                if block is None:
                    break
                if not block:
                    return False
                self._note(self._h2.receive_data(bytes(block)), None)
        except Exception:  # gone, or h2 fails on what came
            return False
        return not self._is_leaving

    async def ask(self, headers: list[tuple[str, str]], body: bytes) -> Reply:
        """Sends a request and returns its answer; raises `_Broken`, and errors of h2 and trio."""
        self.is_usable = False
        call = _Call(self._h2.get_next_available_stream_id())
        self._h2.send_headers(call.id, headers)
        sent = 0
        while not call.is_over:
            if sent < len(body) and (size := min(self._h2.local_flow_control_window(call.id), _BLOCK)) > 0:
                sent += self._write(call, body[sent : sent + size], is_last=sent + size >= len(body))
                await self._flush()
                continue
            await self._flush()
            block = await self._stream.receive_some(_BLOCK)
            if not block:
                raise _Broken("connection closed before the answer")
            self._note(self._h2.receive_data(bytes(block)), call)
        self.is_usable = sent == len(body) and not self._is_leaving
        return _reply(call)

    def _write(self, call: _Call, piece: bytes, *, is_last: bool) -> int:
        most = self._h2.max_outbound_frame_size
        for begin in range(0, len(piece), most):
            part = piece[begin : begin + most]
            self._h2.send_data(call.id, part, end_stream=is_last and begin + most >= len(piece))
        return len(piece)

    async def _flush(self) -> None:
        if data := self._h2.data_to_send():
            await self._stream.send_all(data)

    def _note(self, events: list[Event], call: _Call | None) -> None:
        for event in events:
            if isinstance(event, ConnectionTerminated):
                self._is_leaving = True
                if call is not None and (event.last_stream_id or 0) < call.id:
                    raise _Broken("the server is going away")
            elif call is not None and getattr(event, "stream_id", None) == call.id:
                self._note_of_call(event, call)

    def _note_of_call(self, event: Event, call: _Call) -> None:
        match event:
            case ResponseReceived(headers=headers) | TrailersReceived(headers=headers):
                call.headers.update(headers or ())  # type: ignore[arg-type]
            case DataReceived(data=data, flow_controlled_length=int(length)):
                call.body += data or b""
                if len(call.body) > _LARGEST_ANSWER:
                    raise _Broken("the answer is too large")
                if length:
                    self._h2.acknowledge_received_data(length, call.id)
            case StreamEnded():
                call.is_over = True
            case StreamReset() if "grpc-status" not in call.headers:
                raise _Broken("the server has reset the request")
            case StreamReset():
                call.is_over = True

    async def abort(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)


def _reply(call: _Call) -> Reply:
    status = call.headers.get("grpc-status", "")
    if not _CODE.fullmatch(status):
        http = call.headers.get(":status", "")
        reply = reply_without_status(int(http)) if _CODE.fullmatch(http) else None
        if reply is None:
            raise _Broken("the answer is not one of gRPC")
        return reply
    body = b""
    if call.body:
        try:
            body, is_compressed = grpc.message_of(bytes(call.body))
            body = _inflated(body) if is_compressed else body
        except (Unfit, _IsalError):
            raise _Broken("the answer is not one of gRPC") from None
    return Reply(int(status), grpc.unquoted(call.headers.get("grpc-message", "")), _details(call), body)


def _inflated(message: bytes) -> bytes:
    """Returns a decompressed message; raises Unfit. grpc-go compresses like the request, against `accept-encoding`."""
    stream = isal_zlib.decompressobj(_GZIP)
    plain: bytes = stream.decompress(message, _LARGEST_ANSWER)
    if not stream.eof:
        raise Unfit("the answer is too large, or ends too early")
    return plain


def _details(call: _Call) -> bytes:
    text = call.headers.get("grpc-status-details-bin", "")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
