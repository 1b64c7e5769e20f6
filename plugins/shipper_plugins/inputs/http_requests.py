"""A request of the `http` input: admission, limits, storing, the answer.

| what | bound |
|---|---|
| bodies of all requests | 64 MiB, then 429; a single request is always admitted (up to its own limits) |
| body, received and decompressed | the policy's limits, then 413 |
| events of a request | 200,000, then 413 |
| objects of a body | of one request at a time, in a worker thread; 32 MiB of one document |
| time | a body arrives at 1 KiB/s after 30 s, then 408 |
| connections | those of `shipper.sdk.server` |

A web page may post to loopback without asking first, but its browser says so (`Origin`, `Sec-Fetch-Site`). Where no
credentials are needed, such requests are refused, and those whose `Host` is the name of another host.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import orjson
import trio

from shipper.plugin import Backpressure, Batch, Fields, Size, is_own_host, raised_at
from shipper.sdk.server import Peer
from shipper_plugins.inputs import http_bodies
from shipper_plugins.inputs.bulk_answer import RequestRefused
from shipper_plugins.inputs.bulk_limits import Inflation, Memory, Share, fingerprint
from shipper_plugins.inputs.http_bodies import Format, Unfit
from shipper_plugins.inputs.http_connection import Connection, Malformed, Request, TooSlow

BODY_SECONDS = 30.0
BODY_BYTES_PER_SECOND = 1024

_HEADERS = {"Content-Type": "application/json", "Server": "shipper", "Cache-Control": "no-store"}
_CHALLENGE = 'Bearer, Basic realm="shipper", ApiKey'
_log = logging.getLogger(__name__)


class Refused(Exception):
    """The request is answered with this status, and nothing of it is stored."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.headers = headers or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """The settings of one revision for requests."""

    keys: tuple[bytes, ...] | None
    """`fingerprint` of each permitted Authorization header; None: no header is needed."""
    is_tls: bool
    path: str
    format: Format | None
    """None: by the Content-Type."""
    stream: Fields
    max_body_bytes: int
    max_decompressed_bytes: int

    def admit(self, request: Request, *, is_tls: bool) -> None:
        """Raises Refused for a request that may not be read."""
        if self.is_tls and not is_tls:
            raise Refused(401, "this connection was opened before TLS was required")
        if self.keys is None:
            _refuse_pages(request)
            return
        shown = fingerprint(request.headers.get("authorization", ""))
        if sum([hmac.compare_digest(shown, key) for key in self.keys]) == 0:
            raise Refused(401, "unable to authenticate with the provided credentials", {"WWW-Authenticate": _CHALLENGE})

    def format_of(self, request: Request) -> Format:
        """Returns the format of the body; raises Refused for a request that is not one of events."""
        if request.path != self.path:
            raise Refused(404, f"unknown path: events are posted to {self.path}")
        if request.method not in ("POST", "PUT"):
            raise Refused(405, "the method is POST", {"Allow": "POST, PUT"})
        if request.encoding not in ("identity", "gzip", "deflate"):
            raise Refused(415, "a body is compressed by gzip or deflate, or not at all")
        found = self.format or http_bodies.format_of(request.kind)
        if found is None:
            raise Refused(415, "the Content-Type is application/json, application/x-ndjson or text/plain")
        return found


def _refuse_pages(request: Request) -> None:
    headers = request.headers
    if not is_own_host(headers.get("host", "localhost")):
        raise Refused(421, "without credentials, Host is this host or an address")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise Refused(403, "without credentials, no web page may send events")


class Intake:
    """Takes requests; `door` may be replaced at any time."""

    def __init__(self, door: Door, emit: Callable[..., Awaitable[None]]) -> None:
        self.door = door
        self.memory = Memory()
        self._emit = emit
        self._one = trio.CapacityLimiter(1)

    async def talk(self, peer: Peer) -> None:
        """Answers the requests of a connection, until it ends."""
        connection = Connection(peer)
        try:
            while (request := await connection.begin()) is not None:
                with peer.busy():
                    await self._answer(request, peer, connection)
                if not await connection.end():
                    return
        except Malformed as why:
            await _refuse(connection, Refused(400, str(why)))
            await connection.end()

    async def _answer(self, request: Request, peer: Peer, connection: Connection) -> None:
        with self.memory.share() as share:
            try:
                count = await self._take(request, peer, connection, share)
            except Refused as refusal:
                await _refuse(connection, refusal)
            except Malformed as why:
                await _refuse(connection, Refused(400, str(why)))
            except Exception as error:
                _log.error("a request could not be answered: %s", raised_at(error))
                await _refuse(connection, Refused(500, "internal error"))
            else:
                await connection.reply(200, _HEADERS, orjson.dumps({"events": count}))

    async def _take(self, request: Request, peer: Peer, connection: Connection, share: Share) -> int:
        """Stores the events of a request; returns their number. Raises Refused and Malformed."""
        door = self.door
        door.admit(request, is_tls=peer.tls is not None)
        if not peer.let_in():
            raise _no_room("too many clients are served now")
        format = door.format_of(request)
        body = await _read(connection, door.max_body_bytes, request.declared, share)
        read = partial(_events, body, request.encoding, format, door)
        batches = await trio.to_thread.run_sync(read, limiter=self._one)
        _hold(share, len(body) + sum(len(batch.body) for batch in batches))
        if batches:
            try:
                await self._emit(*batches, wait=False)
            except Backpressure:
                raise _no_room("there is no room for more events now") from None
        return sum(batch.count for batch in batches)


async def _read(connection: Connection, limit: int, declared: int, share: Share) -> bytes:
    if declared > limit:
        raise _too_large(limit)
    _hold(share, declared)
    begun, body = trio.current_time(), bytearray()  # a list of blocks would take 30 times as much for tiny chunks
    try:
        while block := await connection.block(begun + BODY_SECONDS + len(body) / BODY_BYTES_PER_SECOND):
            body += block
            if len(body) > limit:
                raise _too_large(limit)
            _hold(share, max(len(body), declared))
    except TooSlow:
        raise Refused(408, "the body comes too slowly") from None
    return bytes(body)


def _events(body: bytes, encoding: str, format: Format, door: Door) -> list[Batch]:
    """Reads a body in a worker thread; raises Refused."""
    try:
        return http_bodies.batches(_decompressed(body, encoding, door.max_decompressed_bytes), format, door.stream)
    except Unfit as why:
        raise Refused(413 if why.is_large else 400, str(why)) from None


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding == "identity":
        return body
    inflation, pieces, size = Inflation(encoding), [], 0
    try:
        for piece in inflation.pieces(body):
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
        inflation.finish()
    except RequestRefused:
        raise Refused(400, "the body cannot be decompressed") from None
    return b"".join(pieces)


def _hold(share: Share, size: int) -> None:
    """Changes the share to `size` bytes; raises Refused if they do not fit in addition to the other requests."""
    try:
        share.resize(size)
    except RequestRefused:
        raise _no_room("too many bytes of requests are under way") from None


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {Size(limit)}")


def _no_room(reason: str) -> Refused:
    return Refused(429, reason, {"Retry-After": "1"})


async def _refuse(connection: Connection, refusal: Refused) -> None:
    await connection.reply(refusal.status, {**_HEADERS, **refusal.headers}, orjson.dumps({"error": refusal.reason}))
