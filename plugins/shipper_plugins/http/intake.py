"""A request of the `http` input: admission, limits, storing, the answer.

| what | bound |
|---|---|
| bodies of all requests | 64 MiB, of one key (or address) half of what others leave; then 429 |
| body, received and decompressed | the policy's limits, then 413 |
| events of a request | 200,000, then 413 |
| objects of a body | of one request at a time, in a worker thread if it is not small; 32 MiB of one document |
| time | a body arrives at 1 KiB/s after 30 s, then 408 |
| connections | those of `shipper.sdk.server` |

At `health_path`, anybody is told whether a request would be taken: nothing else, and no event. Such a connection is no
client, so it takes no client's place.

A web page may post to loopback without asking first, but its browser says so (`Origin`, `Sec-Fetch-Site`). Where no
credentials are needed, such requests are refused, and those whose `Host` is the name of another host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import orjson
import trio

from shipper.plugin import Backpressure, Batch, Fields, InputContext, in_thread, raised_at
from shipper.sdk.bodies import ENCODINGS, BodyRefused, Memory, Share, decompressed, small
from shipper.sdk.hosts import is_own_host
from shipper.sdk.server import Peer
from shipper_plugins.elasticsearch.server.door import recognized
from shipper_plugins.http import bodies
from shipper_plugins.http.bodies import Format, Unfit
from shipper_plugins.http.connection import Connection, Malformed
from shipper_plugins.http.request import Request

_HEADERS = {"Content-Type": "application/json", "Server": "shipper", "Cache-Control": "no-store"}
_COME_AGAIN = {"Retry-After": "1"}
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
    health_path: str | None
    format: Format | None
    """None: by the Content-Type."""
    stream: Fields
    max_body_bytes: int
    max_decompressed_bytes: int

    def admit(self, request: Request, *, is_tls: bool) -> bytes | None:
        """Returns the key of a request, None where none is needed; raises Refused for one that may not be read."""
        if self.is_tls and not is_tls:
            raise Refused(401, "this connection was opened before TLS was required")
        if self.keys is None:
            _refuse_pages(request)
            return None
        key = recognized(request.headers.get("authorization", ""), self.keys)
        if key is None:
            raise Refused(401, "unable to authenticate with the provided credentials", {"WWW-Authenticate": _CHALLENGE})
        return key

    def is_of_health(self, request: Request) -> bool:
        return request.path == self.health_path and request.method in ("GET", "HEAD")

    def format_of(self, request: Request) -> Format:
        """Returns the format of the body; raises Refused for a request that is not one of events."""
        if request.path != self.path:
            raise Refused(404, f"unknown path: events are posted to {self.path}")
        if request.method not in ("POST", "PUT"):
            raise Refused(405, "the method is POST", {"Allow": "POST, PUT"})
        if request.encoding not in ENCODINGS:
            raise Refused(415, "a body is compressed by gzip or deflate, or not at all")
        found = self.format or bodies.format_of(request.kind)
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

    def __init__(self, door: Door, context: InputContext) -> None:
        self.door = door
        self.memory = Memory()
        self._context = context
        self._refused = 0
        """Bytes of the last request without room; 0 once another was stored."""
        self._one = trio.CapacityLimiter(1)

    async def talk(self, peer: Peer) -> None:
        """Answers the requests of a connection, until it ends."""
        connection = Connection(peer)
        try:
            while (request := await connection.begin()) is not None:
                with peer.busy():
                    is_of_health = self.door.is_of_health(request)
                    await (self._tell_health if is_of_health else self._answer)(request, peer, connection)
                if not await connection.end():
                    return
        except Malformed as why:
            await _refuse(connection, Refused(400, str(why)))
            await connection.end()

    async def _tell_health(self, request: Request, peer: Peer, connection: Connection) -> None:
        if key := recognized(request.headers.get("authorization", ""), self.door.keys or ()):
            peer.shown.add(key)
        if (why := self._no_room(peer)) is None:
            await connection.reply(200, _HEADERS, b'{"status":"ok"}')
        else:
            await _refuse(connection, Refused(503, why, _COME_AGAIN))

    def _no_room(self, peer: Peer) -> str | None:
        """Returns why a request of another client would be turned away now; None if it would not."""
        if self.door.keys == ():
            return "the input has no usable credentials"
        if peer.is_crowded:
            return "too many clients are served now"
        owners = [peer.address] if self.door.keys is None else self.door.keys
        if not any(map(self.memory.has_room, owners)):
            return "too many bytes of requests are under way"
        return self._context.no_room(self._refused)

    async def _answer(self, request: Request, peer: Peer, connection: Connection) -> None:
        try:
            count = await self._take(request, peer, connection)
        except Refused as refusal:
            await _refuse(connection, refusal)
        except BodyRefused as why:
            extra = _COME_AGAIN if why.status == 429 else None
            await _refuse(connection, Refused(why.status, why.reason, extra))
        except Exception as error:
            _log.error("a request could not be answered: %s", raised_at(error))
            await _refuse(connection, Refused(500, "internal error"))
        else:
            await connection.reply(200, _HEADERS, orjson.dumps({"events": count}))

    async def _take(self, request: Request, peer: Peer, connection: Connection) -> int:
        """Stores the events of a request; returns their number. Raises Refused and BodyRefused."""
        door = self.door
        if (key := door.admit(request, is_tls=peer.tls is not None)) is not None:
            peer.shown.add(key)
        if not peer.let_in():
            raise _no_room("too many clients are served now")
        with self.memory.share(key or peer.address) as share:
            return await self._store(request, connection, door, share)

    async def _store(self, request: Request, connection: Connection, door: Door, share: Share) -> int:
        format = door.format_of(request)
        codec = _codec_of(request, format)
        body = await connection.body(request, door.max_body_bytes, share)
        batches = await self._read(body, request.encoding, partial(_events, format=format, codec=codec, door=door))
        share.resize(len(body) + sum(len(batch.body) for batch in batches))
        if batches:
            try:
                await self._context.emit(*batches, wait=False)
            except Backpressure:
                self._refused = sum(len(batch.body) for batch in batches)
                raise _no_room("there is no room for more events now") from None
            self._refused = 0
        return sum(batch.count for batch in batches)

    async def _read(self, body: bytes, encoding: str, read: Callable[[bytes, str], list[Batch]]) -> list[Batch]:
        if (plain := small(body, encoding, self.door.max_decompressed_bytes)) is not None:
            return read(plain, "identity")
        return await in_thread(read, body, encoding, expected=(Refused, BodyRefused), limiter=self._one)


def _codec_of(request: Request, format: Format) -> str:
    codec = bodies.codec_of(request.charset) if format == "lines" else "utf-8"
    if codec is None:
        raise Refused(415, "the charset of the Content-Type is not known: send the text in UTF-8")
    return codec


def _events(body: bytes, encoding: str, format: Format, codec: str, door: Door) -> list[Batch]:
    """Reads a body; raises Refused and BodyRefused. Any thread."""
    try:
        whole = decompressed(body, encoding, door.max_decompressed_bytes)
        return bodies.batches(whole, format, door.stream, codec)
    except Unfit as why:
        raise Refused(413 if why.is_large else 400, str(why)) from None


def _no_room(reason: str) -> Refused:
    return Refused(429, reason, _COME_AGAIN)


async def _refuse(connection: Connection, refusal: Refused) -> None:
    await connection.reply(refusal.status, {**_HEADERS, **refusal.headers}, orjson.dumps({"error": refusal.reason}))
