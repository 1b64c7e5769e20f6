"""HTTP/1.1 to one API server: httpcore2 for its pool and its protocol, over connections of our own.

Ours are resolved and secured as those of outputs are (`sdk.connection`): names without holding anybody up, TLS contexts
made in a thread of what the files hold now, and closing is aborting. What a peer sends is bounded: a head by httpcore2,
a body by `most`, a line of a watch by `stream`.

Calls use at most MOST_IDLE connections again; each watch has one of its own. `made` counts those that were made.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpcore2
import trio

from shipper.apiserver.login import Held, Login
from shipper.apiserver.server import Server
from shipper.apiserver.trust import Trust
from shipper.process.environment import Environment
from shipper.sdk.codes import Code
from shipper.sdk.connection import broken_off, open_stream
from shipper.sdk.http_answer import USER_AGENT, NoAnswer, Unreachable

MOST_IDLE = 4
IDLE_SECONDS = 60.0
"""After which a connection is not used again."""
DIAL_SECONDS = 10.0
LARGEST_ANSWER = 64 << 20
LARGEST_ERROR = 64 << 10


class TooLarge(NoAnswer):
    """An answer of more bytes than are taken."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the path begins with a slash and has its query."""

    method: str
    path: str
    body: bytes = b""
    type: str = "application/json"
    accept: str = "application/json"


class Answer:
    """The beginning of an answer; its body is read within the block of `Connections.begin`."""

    def __init__(self, response: httpcore2.Response, host: str) -> None:
        self.status = response.status
        self.headers = {name.decode().lower(): value.decode("latin-1") for name, value in response.headers}
        self._response, self.host = response, host

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yields what comes of the body until its end; raises NoAnswer if it is broken off."""
        try:
            async with aclosing(self._response.aiter_stream()) as found:
                async for block in found:
                    yield block
        except (httpcore2.ProtocolError, httpcore2.NetworkError):
            raise broken_off(self.host) from None

    async def body(self, most: int = LARGEST_ANSWER) -> bytes:
        """Returns all of the body; that of an error is cut. Raises NoAnswer, or TooLarge."""
        is_good = 200 <= self.status < 300
        most = most if is_good else LARGEST_ERROR
        found = bytearray()
        async with aclosing(self.blocks()) as blocks:  # type: ignore[type-var]
            async for block in blocks:
                found += block
                if len(found) > most:
                    if not is_good:
                        break
                    said = f"{self.host}: an answer of more than {most >> 20} MiB"
                    raise TooLarge(said, "broken", Code.BAD_ANSWER)
        return bytes(found)


class Connections:
    """The connections of one client."""

    def __init__(self, server: Server, trust: Trust, login: Login, environment: Environment) -> None:
        self.host = str(server)
        self.login = login
        self._server = server
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # not used: to httpcore2 all is http
            max_connections=None,
            max_keepalive_connections=MOST_IDLE,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=_Network(server, trust, login, environment),
        )

    @asynccontextmanager
    async def begin(self, request: Request, held: Held) -> AsyncIterator[Answer]:
        """Sends a request; yields the beginning of its answer. Raises NoAnswer.

        A connection whose answer was not read to its end is closed. The caller bounds the time.
        """
        endpoint = self._server.endpoint
        url = httpcore2.URL(
            scheme=b"http",
            host=endpoint.host.encode("idna" if not endpoint.host.isascii() else "ascii"),
            port=endpoint.port,
            target=(self._server.prefix + request.path).encode("ascii"),
        )
        response: httpcore2.Response | None = None
        try:
            headers = list(_headers(self.host, request, held).items())
            response = await self._pool.handle_async_request(
                httpcore2.Request(request.method, url, headers=headers, content=request.body or None)
            )
            yield Answer(response, self.host)
        except httpcore2.ProtocolError:
            raise NoAnswer(f"{self.host}: connection closed before the answer", "broken", Code.NO_ANSWER) from None
        except httpcore2.NetworkError as error:
            raise broken_off(self.host, error.__cause__) from None
        finally:
            if response is not None:
                with trio.CancelScope(shield=True):
                    await response.aclose()

    async def aclose(self) -> None:
        """Closes all connections."""
        with trio.CancelScope(shield=True):
            await self._pool.aclose()


def _headers(host: str, request: Request, held: Held) -> Mapping[str, str]:
    found = {"Host": host, "User-Agent": USER_AGENT, "Accept": request.accept}
    if request.body:
        found |= {"Content-Type": request.type, "Content-Length": str(len(request.body))}
    return {**found, "Authorization": f"Bearer {held.token}"} if held.token else found


class _Network(httpcore2.AsyncNetworkBackend):
    """Makes connections; for a while, files that do not fit leave it with those that it read before."""

    def __init__(self, server: Server, trust: Trust, login: Login, environment: Environment) -> None:
        self._server, self._trust, self._login, self._environment = server, trust, login, environment
        self._last: ssl.SSLContext | None = None
        self._reader = trio.CapacityLimiter(2)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the name of the method overridden
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        context = await self._context() if self._server.secure else None
        name = self._trust.server_name
        stream = await open_stream(self._server.endpoint, context, server_name=name, seconds=DIAL_SECONDS)
        return _Stream(stream, self._server)

    async def _context(self) -> ssl.SSLContext:
        identity = (await self._login.held()).identity
        in_thread = self._environment.in_thread
        try:
            self._last = await in_thread(self._trust.context, identity, abandon_on_cancel=True, limiter=self._reader)
        except ValueError as error:  # a certificate and its key are seldom replaced in one instant
            if self._last is None:
                raise Unreachable(f"TLS to {self._server}: {error}", "tls", Code.TLS_FAILED) from None
        return self._last


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection, after its handshake."""

    def __init__(self, stream: trio.abc.Stream, server: Server) -> None:
        self._stream, self._server = stream, server

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - overridden
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise broken_off(str(self._server), error) from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - overridden
        try:
            await self._stream.send_all(buffer)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore2.WriteError from error  # the peer may have said why, before it closed: httpcore2 reads it

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)

    def get_extra_info(self, info: str) -> Any:
        """Returns, of `is_readable`, whether something came unasked, such as the end of the connection; else None."""
        if info != "is_readable":
            return None
        below: Any = self._stream
        while not isinstance(below, trio.SocketStream):
            below = below.transport_stream
        return below.socket.fileno() < 0 or below.socket.is_readable()
