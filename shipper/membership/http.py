"""The address `http` of a member: questions about the fleet, and those about its sidecar, which are passed on to it.

    GET /fleet/versions/7?stage=drained&wait=30s     `questions` has all of /fleet/
    GET /livez, /readyz, /metrics, /status           answered by the sidecar; 503 while there is none
    GET /                                            a page of both, and its files; by the rules of /status

The supervisor has the address, so that a question is answered while the sidecar restarts. A client on another host
needs TLS and `Authorization: Bearer …` for questions about the fleet, and then for /metrics and /status, too. Where
neither is configured, an address that is not loopback answers only the questions about the sidecar. A browser may give
the token as the password of `Authorization: Basic …`, with any name, which the page asks for. Without a token, a
request needs a `Host` of this host (`sdk/hosts`), so that a web page whose name resolves to 127.0.0.1 reads nothing.

A renewed certificate is taken at once; a question that waits on a connection of the previous one is still answered.

A client that disconnects ends its question at once. There are at most `LIMITS.clients` questions at a time, and
`LIMITS.newcomers` other connections. Requests have no body, and a head of at most 16 KiB.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NoReturn
from urllib.parse import parse_qsl

import h11
import trio

from shipper.membership import sidecar_http
from shipper.membership.door import Answer, Door, Refused, Request, refusal
from shipper.process import log
from shipper.sdk.errors import raised_at
from shipper.sdk.hosts import is_own_host
from shipper.sdk.resolve import resolve
from shipper.sdk.server import Limits, Peer, Server
from shipper.sdk.sockets import BACKLOG
from shipper.status.http import parse_address
from shipper.status.page.document import FILES, PATHS

LONGEST_WAIT = 300.0
"""Seconds of one question; a longer one is asked again."""
LIMITS = Limits(
    clients=40,
    newcomers=24,
    handshake_seconds=10.0,
    idle_seconds=LONGEST_WAIT + 30.0,
    leaving_seconds=LONGEST_WAIT + 30.0,
)
OF_FLEET = "/fleet/"
PROBES = ("/livez", "/readyz")
"""They say nothing but whether the sidecar is well, and need no token."""
OF_SIDECAR = (*PROBES, "/metrics", "/status")

_LARGEST_HEAD = 16 << 10
_MOST_UNASKED = 64 << 10
"""Bytes of further requests that are read while one is answered."""
_KEEP_ALIVE_SECONDS = 75.0
_METHODS = ("GET", "HEAD")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = log.get(__name__)


Page = Callable[[str, bytes | None, str, bool], Awaitable[Answer]]
"""Returns the page, or a file of it: see `page.Page.answer`."""


@asynccontextmanager
async def serve(
    address: str,
    door: Door,
    ask: Callable[[Request], Awaitable[Answer]],
    sidecar: Callable[[], str | None],
    renewals: AsyncIterator[ssl.SSLContext] | None = None,
    without: Callable[[str], Answer | None] = lambda path: None,
    page: Page | None = None,
) -> AsyncIterator[str | None]:
    """Serves while the block runs; yields the bound `host:port`, or None if it cannot be bound: the log has the reason.

    `ask` answers a question about the fleet or raises Refused, and is cancelled when its client disconnects. `sidecar`
    returns the address of the sidecar's own server, or None; what `without` returns for a path is answered then, in
    place of 503. `renewals` are contexts that replace `door.tls`; `page` makes the page. Raises OptionError for an
    invalid address.
    """
    host, port = parse_address(address)
    try:
        listeners = await _listen(host, port)
    except OSError as error:
        _log.warning("the address could not be listened on", address=address, reason=error.strerror or str(error))
        yield None
        return
    server = Server(
        lambda peer: _Connection(peer, door, ask, sidecar, without, page).talk(), tls=door.tls, limits=LIMITS
    )
    try:
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(server.serve, listener)
            if renewals is not None:
                nursery.start_soon(_renew, server, renewals, nursery)
            name = listeners[0].getsockname()
            yield f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
            nursery.cancel_scope.cancel()
    finally:
        for listener in listeners:
            listener.close()


async def _renew(server: Server, renewals: AsyncIterator[ssl.SSLContext], nursery: trio.Nursery) -> None:
    async for server.tls in renewals:
        nursery.start_soon(server.renew)


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Returns sockets on all addresses of a host; raises OSError."""
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, found in await resolve(host, port):
            made = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(made)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(found)
            made.listen(BACKLOG)
            port = port or made.getsockname()[1]
    except OSError:
        for made in listeners:
            made.close()
        raise
    return listeners


class _Connection:
    """One connection: requests one after the other."""

    def __init__(
        self,
        peer: Peer,
        door: Door,
        ask: Callable[[Request], Awaitable[Answer]],
        sidecar: Callable[[], str | None],
        without: Callable[[str], Answer | None],
        page: Page | None,
    ) -> None:
        self._page = page
        self._peer, self._door, self._ask, self._sidecar, self._without = peer, door, ask, sidecar, without
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
        self._is_head = False

    async def talk(self) -> None:
        """Answers requests until the connection ends."""
        try:
            while (request := await self._next()) is not None and await self._answered(request):
                self._http.start_next_cycle()
        except h11.RemoteProtocolError:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._send(refusal(400, "bad_request", "the request is not valid HTTP", {"Connection": "close"}))

    async def _next(self) -> h11.Request | None:
        """Returns the head of the next request, or None at the end of the connection."""
        with trio.move_on_after(_KEEP_ALIVE_SECONDS):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._peer.receive())
            return event if isinstance(event, h11.Request) else None
        return None

    async def _answered(self, request: h11.Request) -> bool:
        """Answers a request; returns whether the connection can be used again."""
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        self._is_head = request.method == b"HEAD"
        path, _, query = request.target.decode("latin-1").partition("?")
        with self._peer.busy():
            try:
                self._check(request)
                if path in OF_SIDECAR:
                    self._check_access(headers, is_open=path in PROBES)
                    found = self._without(path) if self._sidecar() is None else None
                    if found is None:
                        return await self._pass_on(request) and self._is_reusable()
                    answer = found
                elif path in PATHS and self._page is not None:
                    answer = await self._of_page(self._page, path, headers)
                else:
                    answer = await self._about_the_fleet(path, query, headers)
            except Refused as refused:
                answer = refused.answer
            if not self._is_read():
                answer = Answer(answer.status, answer.body, {**answer.headers, "Connection": "close"})
            await self._send(answer)
        return self._is_reusable()

    def _check(self, request: h11.Request) -> None:
        if request.method.decode() not in _METHODS:
            raise Refused(refusal(405, "method", "the method is GET or HEAD", {"Allow": ", ".join(_METHODS)}))
        if not self._is_read():
            raise Refused(refusal(413, "too_large", "a question has no body"))

    def _is_read(self) -> bool:
        """Whether all of the request was read; takes its end, which follows the head of a request without a body."""
        if self._http.their_state is h11.SEND_BODY and not self._http.they_are_waiting_for_100_continue:
            self._http.next_event()
        return self._http.their_state in (h11.DONE, h11.MUST_CLOSE)

    def _is_reusable(self) -> bool:
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def _check_access(self, headers: Mapping[str, str], *, is_open: bool = False) -> None:
        """Raises Refused for who may not ask about the sidecar; `is_open`: without a token."""
        if is_open or not self._door.tokens or not self._is_admitted(headers):
            self._check_host(headers)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        if not is_own_host(headers.get("host", self._door.host), self._door.host):
            raise Refused(refusal(421, "unknown_host", "Host is not this host"))

    def _is_admitted(self, headers: Mapping[str, str]) -> bool:
        return self._door.admit(headers.get("authorization", ""), is_tls=self._peer.tls is not None)

    async def _about_the_fleet(self, path: str, query: str, headers: Mapping[str, str]) -> Answer:
        if not path.startswith(OF_FLEET):
            raise Refused(refusal(404, "not_found", f"unknown path; there are {', '.join(OF_SIDECAR)} and {OF_FLEET}"))
        if not self._is_admitted(headers):
            self._check_host(headers)
        if not self._peer.let_in():
            raise Refused(refusal(503, "busy", "too many questions wait here", {"Retry-After": "5"}))
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=16)
        except ValueError:
            raise Refused(refusal(400, "bad_request", "the query is not NAME=VALUE&…")) from None
        answer = refusal(500, "internal", "internal error")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_peer)
            try:
                answer = await self._ask(Request(path, dict(pairs)))
            except Refused as refused:
                answer = refused.answer
            except Exception as error:
                _log.error("a question could not be answered", error=raised_at(error))
            nursery.cancel_scope.cancel()
        return answer

    async def _of_page(self, page: Page, path: str, headers: Mapping[str, str]) -> Answer:
        try:
            self._check_access(headers)
        except Refused as refused:
            answer = refused.answer
            if answer.status != HTTPStatus.UNAUTHORIZED:
                raise
            ask = {"WWW-Authenticate": 'Basic realm="shipper: any name, and the token", charset="UTF-8"'}
            raise Refused(Answer(answer.status, answer.body, ask)) from None
        if path in FILES:
            return await page(path, None, "", False)
        served, reason = await sidecar_http.status(self._sidecar())
        return await page(path, served, reason, self._may_ask(headers))

    def _may_ask(self, headers: Mapping[str, str]) -> bool:
        try:
            self._is_admitted(headers)
        except Refused:
            return False
        return True

    async def _watch_peer(self) -> None:
        """Ends the connection when the peer disconnects, or sends too much that was not asked for yet."""
        read = 0
        while read < _MOST_UNASKED and (block := await self._peer.receive()):
            self._http.receive_data(block)
            read += len(block)
        await self._drop()

    async def _drop(self) -> NoReturn:
        self._peer.drop()
        await trio.lowlevel.checkpoint()
        raise AssertionError

    async def _pass_on(self, request: h11.Request) -> bool:
        """Answers by what the sidecar answers; returns False if its answer was broken off."""
        address = self._sidecar()
        try:
            if address is None:
                raise OSError("it does not run, or has no address")
            with trio.fail_after(sidecar_http.SECONDS):
                await sidecar_http.ask(address, request, self._put)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError, h11.RemoteProtocolError) as error:
            if self._http.our_state is not h11.SEND_RESPONSE:
                return False
            cause = "it has not answered" if isinstance(error, trio.TooSlowError) else str(error) or "it has ended"
            await self._send(refusal(503, "sidecar_unreachable", f"the sidecar cannot be asked: {cause}"))
        return True

    async def _send(self, answer: Answer) -> None:
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(answer.body)),
            **_HEADERS,
            **answer.headers,
        }
        head = h11.Response(status_code=answer.status, headers=list(headers.items()))
        body = [] if self._is_head else [h11.Data(data=answer.body)]
        await self._put(head, *body, h11.EndOfMessage())

    async def _put(self, *events: h11.Event) -> None:
        await self._peer.send(b"".join([self._http.send(event) or b"" for event in events]))
