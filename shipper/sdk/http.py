"""PUBLIC: HTTP for an output whose credential may be revoked in the instant in which its lane is closed.

    def load(self) -> None:
        from shipper.sdk import http

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        from shipper.sdk.http import open_client

        async with open_client(context.aio, …) as client:
            yield MySender(client)

It imports aiohttp, which takes 0.1 s: see `Output.load`. What a request came to is in `http_answer`.

*Closing is aborting.* `drained` promises that nothing is sent with a credential any more. But a closed transport first
writes its buffer, and the kernel delivers what a closed socket still holds (2 MB were measured, even after kill -9). So
every close is an abort, whatever its cause: a cancel, a time-out, an odd answer, the end of the lane. SO_LINGER {1, 0}
is set from connect on, and `open_client` ends only when no socket is left.

A credential goes to the configured host and nowhere else: redirections are not followed, cookies are not kept, and the
proxies and .netrc of the environment are ignored.

Names are resolved by `resolve`. aiohttp's own resolver has six threads for all outputs: names without an answer occupy
them, and the end of the process waits for them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal
from weakref import WeakSet

import trio
from multidict import CIMultiDict

from shipper.sdk.aio import Asyncio
from shipper.sdk.codes import Code
from shipper.sdk.connection import RESET, by_way_of, cause_of, cause_of_name
from shipper.sdk.descriptors import is_short
from shipper.sdk.errors import NotBegun, forget_frames
from shipper.sdk.http_answer import USER_AGENT, NoAnswer, Response, Unreachable, address
from shipper.sdk.late_authorities import aiohttp
from shipper.sdk.proxies import Choice, Proxy, no_proxy
from shipper.sdk.resolve import AddressInfo, resolve
from shipper.sdk.tallies import Failure, Requests

LARGEST_ANSWER = 2 << 20
"""Bytes of an answer, before decompression, where a request says nothing else."""
IDLE_SECONDS = 15.0
"""How long a connection stays open without a request, where a client says nothing else."""

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_LARGEST_ERROR = 64 << 10
_CONNECT = 10.0
_PIECE = 256 << 10
_SMALL = 16 << 10
"""Bytes of a body that is written at once: those of a record of TLS."""


class Client:
    """One connection pool for one credential, made by `open_client`."""

    def __init__(self, pool: Pool, requests: Requests) -> None:
        self._pool, self._requests = pool, requests

    async def request(
        self,
        method: Method,
        host: str,
        path: str,
        body: Sequence[bytes] = (),
        *,
        headers: Mapping[str, str] | None = None,
        most: int = LARGEST_ANSWER,
    ) -> Response:
        """One request to a host's URL, its body in pieces, and its answer, read within bounds.

        `path` follows the path of the host, and has the query. `headers` stand beside those of the client and replace
        the ones with equal names. An answer of 2xx with more than `most` bytes is none. Each call sends one request at
        most: one that meets a kept connection in the instant in which its server closes it has no answer.

        On cancel its connection is aborted. Raises Unreachable if nothing was sent, NoAnswer or NotBegun.
        """
        began = trio.current_time()
        try:
            response = await self._pool.aio.call(self._pool.request, method, host, path, body, headers or {}, most)
        except NoAnswer as error:
            self._requests.failed(trio.current_time() - began, error.failure)
            raise
        self._requests.answered(trio.current_time() - began, response.status)
        return response

    async def post(
        self,
        host: str,
        path: str,
        body: Sequence[bytes],
        *,
        headers: Mapping[str, str] | None = None,
        most: int = LARGEST_ANSWER,
    ) -> Response:
        """See `request`."""
        return await self.request("POST", host, path, body, headers=headers, most=most)

    def uncounted(self) -> Client:
        """The same connections, for requests that are no part of the metrics, such as probes of a host."""
        return Client(self._pool, Requests())


@asynccontextmanager
async def open_client(
    aio: Asyncio,
    headers: Mapping[str, str],
    tls: ssl.SSLContext | Literal[False],
    *,
    server_name: str | None = None,
    connections: int,
    seconds: float,
    idle: float = IDLE_SECONDS,
    begins: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    may_begin: Callable[[], bool] = lambda: True,
    requests: Requests | None = None,
    proxy: Choice = no_proxy,
) -> AsyncIterator[Client]:
    """A client that contacts nobody by itself; at the end of the block every connection is aborted and closed.

    `headers` are sent with each request; without a User-Agent among them, it names this program. `tls` is False where
    no host is asked by https; `server_name` is asked for and checked instead of the host's. There are at most so many
    `connections`, each kept for `idle` seconds after a request, and a request takes so many `seconds`, a wait for one
    of them included. `begins`, `may_begin` and, for an output that `counts_requests`, `requests` are those of
    `OutputContext`; a request that was cancelled or did not begin is not counted. `proxy` chooses the proxy of a host;
    one that makes no tunnel is told as Unreachable.
    """
    pool = Pool(
        headers,
        tls,
        server_name,
        aio=aio,
        connections=connections,
        seconds=seconds,
        idle=idle,
        begins=begins,
        may_begin=may_begin,
        proxy=proxy,
    )
    with trio.CancelScope(shield=True):
        await aio.call(pool.open)
    try:
        yield Client(pool, requests or Requests())
    finally:
        with trio.CancelScope(shield=True):
            await aio.call(pool.close)


class Pool:
    """The client in the asyncio thread, where its coroutines run.

    `begins` is awaited, in trio, before the first request is written, on a connection that stands. `may_begin` is
    asked, here, in the instant before each request is written.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | Literal[False],
        server_name: str | None,
        *,
        aio: Asyncio,
        connections: int,
        seconds: float,
        idle: float = IDLE_SECONDS,
        begins: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        may_begin: Callable[[], bool] = lambda: True,
        proxy: Choice = no_proxy,
    ) -> None:
        self.aio = aio
        self._proxy = proxy
        self._headers = CIMultiDict({"User-Agent": USER_AGENT})
        self._headers.update(headers)
        self._tls = tls
        self._server_name = server_name
        self._connections = connections
        self._seconds = float(seconds)
        self._idle = float(idle)
        self._connecting = min(_CONNECT, self._seconds)
        self._may_begin, self._begins = may_begin, begins
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def open(self) -> None:
        """Make the session; contacts nobody."""
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                partial(self.aio.answer, self._begins),
                self._may_begin,
                limit=self._connections,
                keepalive_timeout=self._idle,
                ssl=self._tls,
                socket_factory=self._socket,
                resolver=_Names(self.aio),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._seconds, sock_connect=self._connecting),
            auto_decompress=False,
            trust_env=False,
        )
        self._session._retry_connection = False  # it would send a GET or PUT again, and may say then that none was sent

    def _socket(self, address_of: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address_of
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._sockets.add(made)
        return made

    async def close(self) -> None:
        """Abort every connection; returns when their sockets are closed."""
        await self._session.close()
        async with asyncio.timeout(5):  # aborted transports close theirs in the next steps; checked, not believed
            while any(made.fileno() >= 0 for made in self._sockets):  # noqa: ASYNC110 - nobody tells when
                await asyncio.sleep(0)

    async def request(
        self, method: Method, host: str, path: str, body: Sequence[bytes], headers: Mapping[str, str], most: int
    ) -> Response:
        """See `Client.request`."""
        proxy = self._proxy(host)
        shown = CIMultiDict(self._headers)
        shown.update(headers)
        try:
            async with self._session.request(
                method,
                host.rstrip("/") + path,
                data=_Body(body) if body else None,
                allow_redirects=False,
                server_hostname=self._server_name if host.startswith("https://") else None,
                **_by_proxy(proxy, shown, is_tunnel=host.startswith("https://")),
            ) as response:
                return await _read(response, most)
        except (aiohttp.ClientError, OSError) as error:
            forget_frames(error)
            kind = Unreachable if isinstance(error, _NOTHING_SENT) else NoAnswer
            where = by_way_of(address(host), proxy)
            raise kind(f"{where}: {self._cause(error)}", _failure(error), _code(error)) from None

    def _cause(self, error: Exception) -> str:
        """The cause in a few words, none of them the peer's."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                return f"no connection within {self._connecting:g}s"
            case TimeoutError():
                return f"timed out after {self._seconds:g}s"
            case aiohttp.ClientConnectorDNSError(os_error=cause):
                return cause_of_name(cause)
            case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
                return cause_of(cause)
            case aiohttp.ClientOSError(__cause__=ssl.SSLError() as cause):
                return cause_of(cause)
            case aiohttp.ClientOSError(errno=None, __cause__=OSError() as cause):  # its own text quotes the URL
                return cause_of(cause)
            case aiohttp.ClientPayloadError():
                return "the answer was broken off, or is too large"
            case aiohttp.ClientHttpProxyError(status=status):
                return f"the proxy answered {status}"
            case aiohttp.ClientResponseError():
                return "the answer is not HTTP"
            case _:
                return cause_of(error)


_NOTHING_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)


def _by_proxy(proxy: Proxy | None, headers: CIMultiDict[str], *, is_tunnel: bool) -> dict[str, Any]:
    """Returns what a request is told of its headers and of its proxy.

    Never as headers of the session: aiohttp shows those to a proxy too, a credential as `Proxy-Authorization`.
    """
    if proxy is None:
        return {"headers": headers}
    own = {"Proxy-Authorization": proxy.authorization} if proxy.user else {}
    if is_tunnel:
        return {"headers": headers, "proxy": proxy.url, "proxy_headers": own}
    return {"headers": CIMultiDict([*headers.items(), *own.items()]), "proxy": proxy.url}


def _failure(error: Exception) -> Failure:
    """The kind of what `request` met; a connection that is not made within its time is a time-out."""
    match error:
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ClientOSError(__cause__=ssl.SSLError()):
            return "tls"
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return "unreachable"
        case _:
            return "broken"


def _code(error: Exception) -> Code:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return Code.NAME_NOT_FOUND
        case OSError() if is_short(error):
            return Code.NO_DESCRIPTORS
        case aiohttp.ClientHttpProxyError():
            return Code.UNREACHABLE
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return Code.BAD_ANSWER
        case _:
            return _OF_FAILURE[_failure(error)]


_OF_FAILURE: Mapping[str, Code] = {
    "timeout": Code.TIMED_OUT,
    "tls": Code.TLS_FAILED,
    "unreachable": Code.UNREACHABLE,
    "broken": Code.NO_ANSWER,
}


async def _read(response: aiohttp.ClientResponse, most: int) -> Response:
    """The answer to its end, or the beginning of an error; what is left unread has its connection aborted."""
    is_good = 200 <= response.status < 300
    limit = most if is_good else _LARGEST_ERROR
    body = bytearray()  # a list of tiny chunks would take 30 times as much
    while len(body) <= limit and (chunk := await response.content.readany()):
        body += chunk
    if len(body) > limit and is_good:
        raise aiohttp.ClientPayloadError
    return Response(response.status, response.headers, bytes(body))


class _Names(aiohttp.abc.AbstractResolver):
    """Asks for names in trio, where one that is not answered holds up nobody else."""

    def __init__(self, aio: Asyncio) -> None:
        self._aio = aio

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[aiohttp.abc.ResolveResult]:
        async def ask() -> list[aiohttp.abc.ResolveResult]:
            found = await resolve(host, port, flags=socket.AI_ADDRCONFIG)
            return [_result(host, port, one) for one in found if family in (socket.AF_UNSPEC, one[0])]

        return await self._aio.answer(ask)

    async def close(self) -> None:
        """Nothing is held."""


def _result(host: str, port: int, found: AddressInfo) -> aiohttp.abc.ResolveResult:
    family, _, protocol, _, address = found
    scope = f"%{address[3]}" if family == socket.AF_INET6 and address[3] else ""  # of a link-local address
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return aiohttp.abc.ResolveResult(
        hostname=host, host=f"{address[0]}{scope}", port=port, family=family, proto=protocol, flags=numeric
    )


class _Connector(aiohttp.TCPConnector):
    """Connections that are aborted wherever aiohttp closes them, and not used when something came unasked.

    Its own `close` lets a transport flush: a cancelled request of 1 MB went on until the peer had all of it. And it
    takes what came while a connection was idle for the answer to the next request.

    Each request takes its connection here, a new or an idle one, and writes at once. In between, `begins` is awaited
    for the first request of all, and `may_begin` is asked; this one also before a proxy is asked for a tunnel, which
    shows it a credential of its own.
    """

    def __init__(self, begins: Callable[[], Awaitable[None]], may_begin: Callable[[], bool], **options: Any) -> None:
        super().__init__(**options)
        self._begins, self._may_begin = begins, may_begin
        self._has_begun = False

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the name of the method overridden
    ) -> Any:
        self._check()
        connection = await super().connect(req, traces, timeout)
        if (protocol := connection.protocol) is not None:
            protocol.close = protocol.abort  # type: ignore[method-assign]
            if protocol.should_close:
                connection.close()
                raise aiohttp.ServerDisconnectedError
        try:
            if not self._has_begun:
                await self._begins()
                self._has_begun = True
            self._check()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _create_direct_connection(self, *args: Any, **options: Any) -> tuple[Any, Any]:
        transport, protocol = await super()._create_direct_connection(*args, **options)
        if options.get("client_error") is aiohttp.ClientProxyConnectionError:
            try:
                self._check()
            except NotBegun:
                transport.abort()
                raise
        return transport, protocol

    def _check(self) -> None:
        if not self._may_begin():
            raise NotBegun("nothing may be sent now")


class _Body(aiohttp.Payload):
    """A request's body, written in pieces that are views of it; a small one at once, since each write is a system call
    and a record of TLS.

    aiohttp's own kind for bytes writes and buffers all at once (and warns above 1 MiB), that for BytesIO copies twice.
    """

    def __init__(self, body: Sequence[bytes]) -> None:
        self._size = sum(map(len, body))
        super().__init__(body if self._size > _SMALL else [b"".join(body)])

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("the body of a request is no text")

    async def write(self, writer: Any) -> None:
        for piece in self._value:
            view = memoryview(piece)
            for begin in range(0, len(view), _PIECE):
                await writer.write(view[begin : begin + _PIECE])
