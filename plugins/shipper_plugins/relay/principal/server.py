"""The HTTP server of the `relay` input: who sends, within which bounds, and what is answered.

A request is judged by its headers before a byte of its body is read. Every resource is bounded:

| what | bound |
|---|---|
| bodies and parts held by all requests | 128 MiB, then 429 |
| the same of one edge | 48 MiB, and half of what others leave, then 429 |
| a larger request | one at a time, beside that; up to its own limits |
| a handshake, a heartbeat, a question for answers or about keys | 16 KiB, beside that: they wait for no parts |
| a body | the largest part and 64 KiB, then 413 |
| the parts of a request, by what they become (`Batch.size`) | `max_part_bytes` together, then 413 |
| time | after 30 s a body comes at 1 KiB/s (408); an answer is read within 60 s; idle connections end after 120 s |
| connections of one edge | 20, then 429 |
| connections of edges | 4096; the next one displaces another, as `shipper.sdk.rooms` says |
| connections without an admitted request, TLS handshakes included | 128; the next one displaces another of them |

`elasticsearch.server.connections` keeps the connections. Of small parts, which come together from many edges, aiohttp
and the way to trio and back would take most of the time: they are stored in groups (`gathering`), and a request with a
head that was admitted on its connection is read without aiohttp (`RelayServer._take_more`).

This module is imported when an input is opened: aiohttp.web takes 0.1 s.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
import orjson
from aiohttp import web

from shipper.plugin import Asyncio
from shipper.plugin.state import Kept, compact
from shipper.sdk.bodies import Arrival, BodyRefused, Memory, Share
from shipper_plugins.elasticsearch.server.connections import Connections, Tell
from shipper_plugins.elasticsearch.server.door import fingerprint
from shipper_plugins.elasticsearch.server.http import next_block, send, tell_to_continue, written
from shipper_plugins.relay import frames, state
from shipper_plugins.relay.frames import Answered, FrameError, Head, Hello, Poll, Told, Welcome
from shipper_plugins.relay.principal.answers import Answers
from shipper_plugins.relay.principal.door import Door, Refused
from shipper_plugins.relay.principal.edges import Begun, Edges
from shipper_plugins.relay.principal.gathering import Answer, Gathering
from shipper_plugins.relay.principal.parts import Parts, Sent
from shipper_plugins.relay.principal.state import KeyedState
from shipper_plugins.relay.state import Compare, Compared, Given, Named, StateAnswered, Surplus, Wanted

CLOSING_SECONDS = 1.0
MOST_CONNECTIONS = 4096
MOST_OF_ONE = 20
MORE_THAN_A_PART = 64 << 10
_JSON = "application/json"
_STATE = "/v1/state/"
_SMALL = 16 << 10
"""The most bytes of a body that is not parts."""
MOST_SURPLUS = 128 << 10
"""The most bytes of a body that asks for names."""
_BIG = 16 << 10
"""Bytes of a body from which on it is unpacked in a thread."""
MOST_HELD = 128 << 20
MOST_HELD_BY_ONE = 48 << 20
MOST_UNPACKED = 16
"""The memory that is reserved before the content of a body is known, in sizes of the body."""
MOST_TOGETHER = 64 << 10
"""The most bytes of the parts of a request, by what they become, that is stored together with those of other edges."""
UNPACKING = 2
"""Large bodies that are unpacked at once: their further memory is not reserved before."""

_CODES = {413: "too_large", 429: "busy"}
"""By the status of a body that is refused."""
_STATUS = {"too_large": 413, frames.FOREIGN: 403}
"""By the code of an invalid request, its status."""
_HEADERS = {"Content-Type": _JSON, "Server": "shipper", "Cache-Control": "no-store"}
_HEARD = msgspec.json.encode(Answered([]))

M = TypeVar("M", bound=msgspec.Struct)
T = TypeVar("T")


class RelayServer:
    """Serves one listening socket, in the asyncio thread; `door` may be replaced from any thread at any time."""

    def __init__(self, door: Door, edges: Edges, aio: Asyncio, tell: Tell) -> None:
        self.door = door
        self._edges, self._aio, self._tell = edges, aio, tell
        self._memory = Memory(MOST_HELD, MOST_HELD_BY_ONE)
        self._unpacking = asyncio.Semaphore(UNPACKING)
        self._parts, self._answers, self._state = Parts(edges), Answers(edges), KeyedState(edges)
        self._gathering = Gathering(self._parts, aio)
        self._connections: Connections | None = None
        self._admitted: dict[str, set[web.RequestHandler]] = {}
        """By edge, all connections that have shown its credential, whatever they ask for."""
        self._open: dict[str, set[web.RequestHandler]] = {}
        """By edge, those that belong to the served instance."""
        self._served: dict[str, str] = {}
        """By edge, that instance."""

    def close_door(self, *, tls: ssl.SSLContext | None) -> None:
        """Refuses all requests from now on; `tls` is the context of new connections."""
        self.door = replace(self.door, keys={}, names={}, tls=tls)

    @property
    def connections(self) -> int:
        """Returns the figures of edges."""
        return sum(len(_living(those)) for those in list(self._open.values()))

    def is_connected(self, edge: str) -> bool:
        """Whether the served instance of an edge has a connection; from any thread."""
        return any(map(_lives, list(self._open.get(edge, ()))))

    async def renew(self) -> None:
        """Closes connections with an earlier certificate, and those that no longer show their edge."""
        if self._connections is not None:
            await self._connections.renew(lambda shown: _is_known(shown, self.door))

    async def serve(self, listener: socket.socket) -> None:
        """Accepts until cancelled; then requests under way have a second to end. The socket stays open."""
        self._server = web.Server(self._respond, handler_cancellation=True)
        self._connections = Connections(self._server, lambda: self.door.tls, self._tell, clients=MOST_CONNECTIONS)
        own = listener.dup()
        own.setblocking(False)
        try:
            await self._connections.accept(own)
        finally:
            own.close()
            await self._close()

    async def _close(self) -> None:
        transports = [connection.transport for connection in self._server.connections]
        self._server.pre_shutdown()
        until = asyncio.get_running_loop().time() + CLOSING_SECONDS
        await self._gathering.rest(CLOSING_SECONDS)
        await self._server.shutdown(max(0.1, until - asyncio.get_running_loop().time()))
        await self._gathering.close()
        for transport in transports:
            if isinstance(transport, asyncio.Transport):
                transport.abort()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._connections is not None
        with self._connections.busy(request) as connection:
            response = await self._answer(request, self._connections)
            if connection.leaves:
                response.force_close()
            await send(request, response)
            return response

    async def _answer(self, request: web.BaseRequest, connections: Connections) -> web.Response:
        try:
            door = self.door
            edge = self._admit(request, door, connections)
            connections.let_in(request)
            with self._memory.share(edge) as share:
                answer = await self._handle(request, door, edge, share)
        except Refused as refusal:
            return _refused(request, refusal)
        except FrameError as error:
            if error.code == frames.FOREIGN:
                self._parts.foreign.add()
            return _refused(request, Refused(_STATUS.get(error.code, 400), error.code, str(error)))
        except BodyRefused as why:
            retry_after = 1.0 if why.status == 429 else None
            return _refused(
                request, Refused(why.status, _CODES.get(why.status, "bad_request"), why.reason, retry_after)
            )
        return _response(200, msgspec.json.encode(answer))

    def _admit(self, request: web.BaseRequest, door: Door, connections: Connections) -> str:
        """Returns the edge that sends a request. Raises Refused."""
        if door.tls is not None and not request.secure:
            raise Refused(401, "unauthorized", "this connection was opened before TLS was required")
        shown = request.headers.get("Authorization")
        key, names = b"" if shown is None else fingerprint(shown) or b"?", _names(request)
        edge = door.edge(key, names)
        connections.note(request, _Shown(key, tuple(names), edge))
        self._count(request, edge)
        return edge

    def _count(self, request: web.BaseRequest, edge: str) -> None:
        """Counts the connection of a request as one of an edge. Raises Refused if that has too many."""
        living = self._admitted[edge] = _living(self._admitted.get(edge, set()))
        if len(living) >= MOST_OF_ONE and request.protocol not in living:
            raise Refused(429, "busy", f"this edge has {MOST_OF_ONE} connections", 1.0)
        _add(living, request)

    async def _handle(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> msgspec.Struct:
        if request.path.startswith(_STATE):
            return await self._put(request, door, edge, share)
        handle = {
            "/v1/relay/session": self._begin,
            "/v1/relay/parts": self._take,
            "/v1/relay/answers": self._tell_answers,
            "/v1/relay/heartbeat": self._hear,
            "/v1/relay/versions": self._keep,
            "/v1/relay/compare": self._compare,
            "/v1/relay/surplus": self._name,
            "/v1/relay/documents": self._give,
        }.get(request.path)
        if handle is None:
            raise Refused(404, "not_found", "there is nothing at this path")
        if request.method != "POST":
            raise Refused(405, "method_not_allowed", "allowed: POST")
        return await handle(request, door, edge, share)

    async def _begin(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Welcome:
        hello = await self._message(request, share, Hello)
        if hello.protocol != frames.PROTOCOL:
            raise Refused(400, "protocol", f"this is protocol {frames.PROTOCOL}")
        is_connected = self.is_connected(edge)

        async def begin() -> Begun:
            return await self._edges.begin(edge, hello, is_connected=is_connected)

        begun = await self._aio.answer(begin)
        if self._served.get(edge) != hello.instance:
            self._served[edge], self._open[edge] = hello.instance, set()
        self._belongs(request, edge)
        door = self.door  # of now: where another mode came before the session began, that one counts
        confirms = self._edges.promise(awaits=door.awaits)
        return Welcome(
            frames.PROTOCOL,
            begun.generation,
            edge,
            confirms,
            frames.HEARTBEAT_SECONDS,
            max_part_bytes=door.max_part_bytes,
            lineage=begun.lineage,
            highest=begun.highest,
            max_document_bytes=door.limits_of(edge).max_document_bytes,
            told=begun.told,
        )

    async def _hear(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Answered:
        body = await self._read(request, share, _JSON, _SMALL)
        head = frames.read(body, Head)
        self._edges.heard(edge, head)
        self._belongs(request, edge)
        assert self._connections is not None
        self._connections.repeat(request, body, lambda: self._hear_again(door, edge, head))
        return Answered([])

    def _hear_again(self, door: Door, edge: str, head: Head) -> bytes | None:
        """Returns the answer to a heartbeat that repeats the last one on its connection; None if that is no longer
        admitted."""
        if self.door is not door:
            return None
        try:
            self._edges.heard(edge, head)
        except Refused:
            return None
        return _written(200, _HEARD)

    async def _take(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Answered:
        if not door.takes_events:
            raise Refused(403, frames.NO_EVENTS, "this door takes keyed state alone")
        body = await self._read(request, share, frames.MEDIA_TYPE, door.max_part_bytes + MORE_THAN_A_PART)
        self._reserve(share, body, door)
        async with self._unpacking if len(body) >= _BIG else nullcontext():
            sent = await _in_thread(partial(_read, edge=edge, door=door), body, door.max_part_bytes)
        size = _size(sent)
        share.resize(len(body) + size)
        if not _is_small(body, size):
            answered = await self._aio.answer(self._parts.take, sent)
        else:
            answered = await self._gathering.answer(sent)
            assert self._connections is not None
            self._connections.know(request, body, partial(self._take_more, door, edge, request.protocol))
        self._belongs(request, edge)
        return answered

    def _take_more(
        self, door: Door, edge: str, connection: web.RequestHandler, body: bytes
    ) -> tuple[Answer, Callable[[], bytes]] | None:
        """Takes the body of a request with the head of one that this edge has sent on its connection; None if it is not
        admitted as it is, or not small."""
        if self.door is not door or len(body) >= _BIG:
            return None
        share = Share(self._memory, edge)
        try:
            self._reserve(share, body, door)
            sent = _read(body, door.max_part_bytes, edge, door)
            size = _size(sent)
            share.resize(len(body) + size)
        except (FrameError, BodyRefused):
            share.release()
            return None
        if not _is_small(body, size):
            share.release()
            return None
        answer = self._gathering.take(sent)
        answer.add_done_callback(lambda _: share.release())

        def answered_with() -> bytes:
            try:
                answered = answer.result()
            except Refused as refusal:
                body, headers = _said(refusal)
                return _written(refusal.status, body, **headers)
            self._open.setdefault(edge, set()).add(connection)
            return _written(200, msgspec.json.encode(answered))

        return answer, answered_with

    def _reserve(self, share: Share, body: bytes, door: Door) -> None:
        """Raises BodyRefused without memory for the content of a body."""
        share.resize(min(len(body) * MOST_UNPACKED, len(body) + door.max_part_bytes))

    async def _tell_answers(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Told:
        poll = await self._message(request, share, Poll)
        self._belongs(request, edge)
        assert self._connections is not None
        with self._connections.waiting(request):
            return await self._aio.answer(self._answers.told, edge, poll)

    async def _keep(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> StateAnswered:
        body = await self._read(request, share, state.MEDIA_TYPE, door.max_part_bytes + MORE_THAN_A_PART)
        self._reserve(share, body, door)
        async with self._unpacking:
            head, versions = await _in_thread(state.decode, body, door.max_part_bytes)
            share.resize(len(body) + sum(len(one.document or b"") for one in versions))

        async def keep() -> StateAnswered:
            return await self._state.keep(edge, head, versions, door.limits_of(edge), awaits=door.awaits)

        answered = await self._aio.answer(keep)
        self._belongs(request, edge)
        return answered

    async def _compare(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Compared:
        asked = await self._message(request, share, Compare)

        async def compare() -> Compared:
            return await self._state.compare(edge, asked, door.limits_of(edge))

        return await self._aio.answer(compare)

    async def _name(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Named:
        asked = await self._message(request, share, Surplus, MOST_SURPLUS)

        async def name() -> Named:
            return await self._state.name(edge, asked, door.limits_of(edge))

        return await self._aio.answer(name)

    async def _give(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Given:
        asked = await self._message(request, share, Wanted, MOST_SURPLUS)
        share.resize(2 * max(state.MOST_GIVEN, door.limits_of(edge).max_document_bytes))

        async def give() -> Given:
            return await self._state.give(edge, asked)

        return await self._aio.answer(give)

    async def _put(self, request: web.BaseRequest, door: Door, edge: str, share: Share) -> Put:
        if request.method not in ("PUT", "DELETE"):
            raise Refused(405, "method_not_allowed", "allowed: PUT, DELETE")
        collection, key = _key_of(request)
        limits = door.limits_of(edge)
        document = None
        if request.method == "PUT":
            most = max(MORE_THAN_A_PART, limits.max_document_bytes)
            body = await self._read(request, share, _JSON, most + MORE_THAN_A_PART)
            share.resize(2 * len(body))
            try:
                document = compact(body)
            except ValueError as error:
                raise Refused(400, "bad_request", f"the body is no document: {error}") from None

        async def put() -> Kept:
            return await self._state.put(edge, collection, key, document, limits)

        kept = await self._aio.answer(put)
        return Put(kept.place, kept.is_new)

    def _belongs(self, request: web.BaseRequest, edge: str) -> None:
        """Marks its connection as one of the served instance."""
        living = self._open[edge] = _living(self._open.get(edge, set()))
        _add(living, request)

    # -- bodies --------------------------------------------------------------------------------------------------------

    async def _message(self, request: web.BaseRequest, share: Share, kind: type[M], most: int = _SMALL) -> M:
        return frames.read(await self._read(request, share, _JSON, most), kind)

    async def _read(self, request: web.BaseRequest, share: Share, type: str, most: int) -> bytes:
        """Returns the body. Raises Refused or BodyRefused."""
        if request.content_type != type:
            raise Refused(415, "media_type", f"the Content-Type is {type}")
        if "Content-Encoding" in request.headers:
            raise Refused(415, "media_type", "a body has no Content-Encoding")
        declared = request.content_length or 0
        arrival = Arrival(most, begun=asyncio.get_running_loop().time(), declared=declared)
        is_held = most > _SMALL
        if is_held:
            share.expect(declared)
        await tell_to_continue(request)
        body = bytearray()  # a list of blocks would take 30 times as much for tiny chunks
        while block := await next_block(request, arrival.deadline):
            arrival.add(block, asyncio.get_running_loop().time())
            body += block
            if is_held:
                share.resize(arrival.received)
        return bytes(body)


class _Shown(NamedTuple):
    """By what the connection of an edge was admitted."""

    key: bytes
    names: tuple[str, ...]
    edge: str


def _is_known(shown: _Shown, door: Door) -> bool:
    """Whether this still shows the same edge."""
    try:
        return door.edge(shown.key, shown.names) == shown.edge
    except Refused:
        return False


class Put(msgspec.Struct, frozen=True):
    """The answer to a program: the place of the present version of its key; 0 if there was nothing to delete."""

    place: int
    is_new: bool


def _key_of(request: web.BaseRequest) -> tuple[str, str]:
    """Returns the collection and the key of a path. Raises Refused."""
    collection, slash, key = request.rel_url.raw_path.removeprefix(_STATE).partition("/")
    if not (collection and slash and key):
        raise Refused(404, "not_found", "the path is /v1/state/{collection}/{key}")
    try:
        return unquote(collection, errors="strict"), unquote(key, errors="strict")
    except UnicodeDecodeError:
        raise Refused(400, "bad_request", "the path is no UTF-8") from None


def _living(connections: set[web.RequestHandler]) -> set[web.RequestHandler]:
    return set(filter(_lives, list(connections)))


def _lives(connection: web.RequestHandler) -> bool:
    """From any thread: the connection may be lost meanwhile."""
    transport = connection.transport
    return transport is not None and not transport.is_closing()


def _add(connections: set[web.RequestHandler], request: web.BaseRequest) -> None:
    if isinstance(request.protocol, web.RequestHandler):
        connections.add(request.protocol)


def _names(request: web.BaseRequest) -> list[str]:
    """Returns the names in the peer's certificate, which the handshake has checked."""
    certificate = None if request.transport is None else request.transport.get_extra_info("peercert")
    return [str(name) for _, name in (certificate or {}).get("subjectAltName", ())]


def _read(body: bytes, limit: int, edge: str, door: Door) -> Sent:
    said = frames.decode(body)
    relays = edge in door.relaying
    if not relays:
        said.check_origins(edge)
    return Sent(edge, said.head, list(zip(said.parts, said.batches(limit), strict=True)), door.awaits, relays)


def _size(sent: Sent) -> int:
    return sum(batch.size for _, batch in sent.parts)


def _is_small(body: bytes, size: int) -> bool:
    return len(body) < _BIG and size <= MOST_TOGETHER


async def _in_thread(read: Callable[[bytes, int], T], body: bytes, limit: int) -> T:
    """Returns the content of a body, of `limit` bytes at most. Raises FrameError. The work has ended when this returns,
    cancelled or not.

    In a thread for a large body.
    """
    if len(body) < _BIG:
        return read(body, limit)
    running = asyncio.get_running_loop().run_in_executor(None, read, body, limit)
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait({running})


def _response(status: int, body: bytes, **headers: str) -> web.Response:
    return web.Response(status=status, body=body, headers=_HEADERS | headers)


def _written(status: int, body: bytes, **headers: str) -> bytes:
    """Returns a response in the form in which it is sent."""
    return written(status, {**_HEADERS, **headers}, body)


def _said(refusal: Refused) -> tuple[bytes, dict[str, str]]:
    """Returns the body and the headers of a refusal."""
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after)))
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "ApiKey, Bearer"
    return orjson.dumps({"error": {"code": refusal.code, "reason": refusal.reason}}), headers


def _refused(request: web.BaseRequest, refusal: Refused) -> web.Response:
    body, headers = _said(refusal)
    if refusal.status == 405:
        headers["Allow"] = "PUT, DELETE" if request.path.startswith(_STATE) else "POST"
    response = _response(refusal.status, body, **headers)
    if refusal.status == 408 or "Expect" in request.headers:  # whether the body still comes, nobody knows
        response.force_close()
    return response
