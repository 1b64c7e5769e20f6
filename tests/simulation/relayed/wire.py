"""The wires between machines: what is cut, late, or comes twice; and the ends of them in both processes.

A request is cut off before it arrives, or after the other side has acted, which the sender cannot tell. A copy of it
may arrive again much later, on a connection of its own: whoever listens there by then answers, and nobody hears it.
Where two machines are parted, connections that are open fall silent.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio
from aiohttp import web

from shipper.plugin import Batch, Credential, NotBegun
from shipper.sdk.http import Client
from shipper.sdk.http_answer import NoAnswer, Response, Unreachable, address
from shipper_plugins.relay import frames, state
from shipper_plugins.relay.frames import Answered, Generation, Hello, Poll
from shipper_plugins.relay.principal.parts import Parts, Sent
from shipper_plugins.relay.principal.server import RelayServer
from tests.simulation.offers import secret
from tests.simulation.relayed.site import Site, site_of
from tests.simulation.stage import Crashed, Stage

if TYPE_CHECKING:
    from shipper.sdk.aio import Asyncio

CONNECTING_SECONDS = 10.0
LIAR = "liar"
"""The name of an edge that lies, and the id of its credential."""
LATE_SECONDS = (0.01, 1.0, 10.0, 70.0)
_LARGEST_PART = 1 << 24


@dataclass(eq=False)
class Connection:
    """Between a client and a process that listens; `transport` and `is_closing` are as aiohttp has them."""

    client: Site
    server: WireServer
    is_closed: bool = False
    is_busy: bool = False
    transport: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.transport = self

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> None:
        """It has no TLS."""


@dataclass(eq=False)
class Request:
    """One that is under way; `scope` is that of the handler."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: Connection
    answer: Response | None = None
    is_broken: bool = False
    ended: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def end(self, answer: Response | None) -> None:
        if not self.ended.is_set():
            self.answer, self.is_broken = answer, answer is None
            self.ended.set()

    @property
    def what(self) -> str:
        return self.path.rpartition("/")[2]


class Wire:
    """All wires of a world."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.doors: dict[str, WireServer] = {}
        """By `host:port`, who listens there."""
        self.parted: set[tuple[str, str]] = set()
        """Sites of clients, and the `host:port` that they cannot reach."""
        self._requests = 0

    def is_parted(self, client: Site, at: str) -> bool:
        return (client.name, at) in self.parted and not self.stage.healed

    def request(self, path: str, headers: Mapping[str, str], body: bytes, connection: Connection) -> Request:
        self._requests += 1
        return Request(self._requests, path, headers, body, connection)

    async def carry(self, request: Request, at: str) -> None:
        """To the other side and back."""
        client = request.connection.client
        await _transit(client)
        if self.is_parted(client, at):
            return  # nobody hears of it
        if client.strikes("lost_before"):
            request.connection.is_closed = True
            request.end(None)
            return
        if client.strikes("again"):
            self.stage.nursery.start_soon(self._again, request, at, client.random("again").choice(LATE_SECONDS))
        request.connection.server.take(request)
        await request.ended.wait()

    async def _again(self, request: Request, at: str, seconds: float) -> None:
        """The same bytes once more."""
        await trio.sleep(request.connection.client.random("again").uniform(0.0, seconds))
        if (door := self.doors.get(at)) is not None:
            connection = Connection(request.connection.client, door)
            copy = self.request(request.path, request.headers, request.body, connection)
            self.stage.note("again", request=request.number, copy=copy.number)
            door.take(copy)
            await copy.ended.wait()
            connection.is_closed = True


async def _transit(site: Site) -> None:
    if site.strikes("slow_wire"):
        await trio.sleep(site.random("wire").uniform(0.0, 8.0))
    await site.pause("wire", 0.02)


# -- the sender's side -------------------------------------------------------------------------------------------------


class WireClient:
    """A `Client` of `shipper.sdk.http`; see there."""

    def __init__(
        self,
        site: Site,
        wire: Wire,
        headers: Mapping[str, str],
        seconds: float,
        begins: Callable[[], Awaitable[None]],
        may_begin: Callable[[], bool],
    ) -> None:
        self.site, self._wire, self._headers, self._seconds = site, wire, headers, seconds
        self._begins, self._may_begin = begins, may_begin
        self._open: dict[str, list[Connection]] = {}

    async def post(
        self, host: str, path: str, body: Sequence[bytes], *, headers: Mapping[str, str] | None = None, most: int = 0
    ) -> Response:
        """See `Client.post`."""
        site, at = self.site, address(host)
        connection = await self._connect(at)
        await self._begins()
        if not self._may_begin():
            raise NotBegun("nothing may be sent now")
        site.effect()
        whole = _named(b"".join(body), path, site)
        request = self._wire.request(path, {**self._headers, **(headers or {})}, whole, connection)
        said = {"credential": _credential(request.headers), **_said(request)}
        site.note("asked", of=site.of, at=at, request=request.number, what=request.what, **said)
        connection.is_busy = True
        self._wire.stage.nursery.start_soon(self._wire.carry, request, at)
        try:
            with trio.move_on_after(self._seconds):
                await request.ended.wait()
                if request.answer is not None:
                    await _transit(site)
        except trio.Cancelled:
            self._break(request)
            raise
        finally:
            connection.is_busy = False
            site.note("asked_no_more", request=request.number)
        if request.answer is None or site.strikes("lost_after") or self._wire.is_parted(site, at):
            self._break(request)
            raise NoAnswer(f"{at}: no answer", "broken", "no_answer")
        site.note("heard", request=request.number)
        return request.answer

    async def _connect(self, at: str) -> Connection:
        """An idle connection, or a new one."""
        those = self._open[at] = [one for one in self._open.get(at, []) if not one.is_closed]
        for one in those:
            if not one.is_busy:
                return one
        await _transit(self.site)
        if self._wire.is_parted(self.site, at):
            await trio.sleep(CONNECTING_SECONDS)
            raise Unreachable(f"{at}: no connection", "timeout", "timed_out")
        door = self._wire.doors.get(at)
        if door is None or self.site.strikes("unreachable"):
            raise Unreachable(f"{at}: connection refused", "unreachable", "unreachable")
        connection = Connection(self.site, door)
        those.append(connection)
        door.connections_made.append(connection)
        return connection

    def _break(self, request: Request) -> None:
        """The connection is aborted; the other side may notice, in the middle of its work."""
        request.connection.is_closed = True
        if self.site.random("wire").random() < 0.5:
            request.scope.cancel("the connection is gone")

    def close(self) -> None:
        for those in self._open.values():
            for one in those:
                one.is_closed = True


@asynccontextmanager
async def open_client(
    aio: Asyncio,
    headers: Mapping[str, str],
    tls: object,
    *,
    seconds: float,
    begins: Callable[[], Awaitable[None]],
    may_begin: Callable[[], bool],
    **unused: object,
) -> AsyncIterator[Client]:
    """See `shipper.sdk.http.open_client`."""
    from tests.simulation.relayed.world import current

    client = WireClient(site_of(aio), current().wire, headers, seconds, begins, may_begin)
    try:
        yield cast(Client, client)
    finally:
        if client.site.alive or client.site.random("wire").random() < 0.6:  # else its machine lost power
            client.close()


def _named(body: bytes, path: str, site: Site) -> bytes:
    """A handshake names the process: all processes of a world are in one, which the product would name."""
    if not path.endswith("/session"):
        return body
    hello = msgspec.json.decode(body, type=dict[str, Any])
    return msgspec.json.encode({**hello, "instance": site.instance})


def _said(request: Request) -> dict[str, Any]:
    """What an outsider reads on the wire."""
    match request.what:
        case "session":
            hello = frames.read(request.body, Hello)
            return {"instance": hello.instance, "link": hello.link}
        case "parts":
            said = frames.decode(request.body)
            batches = said.batches(_LARGEST_PART)
            events = {
                part.place: tuple((event["edge"], event["number"]) for event in batch.whole())
                for part, batch in zip(said.parts, batches, strict=True)
            }
            return {"generation": _text(said.head.generation), "link": said.head.link, "events": events}
        case "versions":
            head, arrived = state.decode(request.body, _LARGEST_PART)
            those = tuple((one.version.owner, one.version.key, one.version.place) for one in arrived)
            return {"generation": _text(head.generation), "link": head.link, "versions": those}
        case "answers":
            poll = frames.read(request.body, Poll)
            return {"generation": _text(poll.head.generation), "link": poll.head.link}
        case _:
            said = msgspec.json.decode(request.body)
            return {"generation": "/".join(map(str, said["generation"])), "link": said["link"]}


def _credential(headers: Mapping[str, str]) -> str:
    """Its id, which the secrets of these worlds begin with."""
    return base64.b64decode(headers["Authorization"].partition(" ")[2]).decode().partition(":")[0]


def _text(generation: Generation) -> str:
    return f"{generation.instance}/{generation.counter}"


# -- the receiver's side -----------------------------------------------------------------------------------------------


class WireServer(RelayServer):
    """The product's server, whose requests come over the wires of this world instead of sockets."""

    def __init__(self, door: Any, edges: Any, aio: Any, tell: Any) -> None:
        super().__init__(door, edges, aio, tell)
        self.site = site_of(aio)
        self.life = self.site.life
        self.connections_made: list[Connection] = []
        self._unpacking = cast(Any, trio.Semaphore(2))
        self._gathering = cast(Any, _Gathering(self._parts, lambda: self._nursery))
        self._connections = cast(Any, _NoConnections())
        self._nursery: trio.Nursery | None = None
        self._under_way: set[Request] = set()
        self._has_lied = False

    async def serve(self, listener: Any) -> None:
        """Answer requests until cancelled."""
        from tests.simulation.relayed.world import current

        doors, at = current().wire.doors, f"{listener.host}:{listener.port}"
        try:
            async with trio.open_nursery() as self._nursery:
                doors[at] = self
                await trio.sleep_forever()
        finally:
            self._nursery = None
            if doors.get(at) is self:
                del doors[at]
            for connection in self.connections_made:
                connection.is_closed = True
            for request in self._under_way:
                request.end(None)

    async def renew(self) -> None:
        """No connection has TLS, nor ends with its credential."""

    def take(self, request: Request) -> None:
        """A request arrives."""
        if self._nursery is None or request.connection.is_closed:
            request.end(None)
            return
        self.site.note(
            "arrived",
            edge=request.connection.client.of,
            by=request.connection.client.name,
            request=request.number,
            what=request.what,
            **_said(request),
        )
        self._under_way.add(request)
        self._nursery.start_soon(self._respond_to, request)
        if request.what == "parts" and not self._has_lied and self.site.world.scenario.lies:
            self._has_lied = True
            self._nursery.start_soon(self._lie, request)

    async def _lie(self, request: Request) -> None:
        """Another edge has read a request, and posts an event of its own under the next sequence of its origin."""
        with suppress(Crashed):
            hello = msgspec.json.encode(Hello(frames.PROTOCOL, "f" * 32, 1))
            begun = await self._answer_liar(request, "session", hello)
            if begun.status != 200:
                return
            welcome = frames.read(cast(bytes, begun.body), frames.Welcome)
            of = frames.decode(request.body).parts[-1]
            lie = Batch.documents([b'{"edge":"liar","number":1}']).identified(of.origin, of.seq + 1)
            part = frames.part_of(replace(lie, place=1), of.proof)
            body = b"".join(frames.encode(frames.Head(welcome.generation, 1, 0, parts=1), [part]))
            answer = await self._answer_liar(request, "parts", body)
            self.site.note("lied", status=answer.status)

    async def _answer_liar(self, request: Request, what: str, body: bytes) -> web.Response:
        headers = {"Authorization": Credential.parse(secret(LIAR)).authorization()}
        made = Request(0, f"/v1/relay/{what}", headers, body, Connection(request.connection.client, self))
        return await self._answer(cast(Any, _as_aiohttp(made)), cast(Any, self._connections))

    async def _respond_to(self, request: Request) -> None:
        answer = None
        try:
            with request.scope:
                answer = await self._answered(request)
        finally:
            self._under_way.discard(request)
            request.end(answer)

    async def _answered(self, request: Request) -> Response | None:
        try:
            response = await self._answer(cast(Any, _as_aiohttp(request)), cast(Any, self._connections))
            self.site.effect()
        except Crashed:
            return None
        except Exception as error:
            if not self.site.alive:
                return None
            self.site.note("failed", error=f"{request.path}: {type(error).__name__}: {error}")
            self.site.nursery.cancel_scope.cancel("a request failed by itself")
            return None
        body = bytes(cast(bytes, response.body))
        self.site.note("replied", request=request.number, status=response.status, **_answer_said(request, response))
        return Response(response.status, dict(response.headers), body)

    async def _read(self, request: Any, share: Any, type: str, most: int) -> bytes:
        share.resize(len(request.body))
        return cast(bytes, request.body)

    def _belongs(self, request: Any, edge: str) -> None:
        living = {one for one in self._open.get(edge, set()) if not cast(Any, one).is_closed}
        self._open[edge] = {*living, request.protocol}


class _Gathering:
    """As the product's, in trio."""

    def __init__(self, parts: Parts, nursery: Callable[[], trio.Nursery | None]) -> None:
        self._parts, self._nursery = parts, nursery
        self._waiting: list[tuple[Sent, trio.Event, list[Any]]] = []
        self._is_storing = False

    async def answer(self, sent: Sent) -> Answered:
        ended, found = trio.Event(), list[Any]()
        self._waiting.append((sent, ended, found))
        nursery = self._nursery()
        if not self._is_storing and nursery is not None:
            self._is_storing = True
            nursery.start_soon(self._store)
        await ended.wait()
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0] or await self._parts.take(sent)

    async def _store(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            answers: Sequence[Any]
            try:
                answers = await self._parts.take_together([sent for sent, _, _ in group])
            except Exception as error:
                answers = [error] * len(group)
            for (_, ended, found), answer in zip(group, answers, strict=True):
                found.append(answer)
                ended.set()
        self._is_storing = False


class _NoConnections:
    def let_in(self, request: object) -> None:
        """All are."""

    def note(self, request: object, shown: object) -> None:
        """No connection is ended for what it has shown."""

    def waiting(self, request: object) -> AbstractContextManager[None]:
        """Nor because it only waits."""
        return nullcontext()

    def repeat(self, *heartbeat: object) -> None:
        """Each heartbeat is read as if it were the first."""

    def know(self, *request: object) -> None:
        """And each request with parts."""


def _as_aiohttp(request: Request) -> SimpleNamespace:
    return SimpleNamespace(
        path=request.path, method="POST", headers=request.headers, body=request.body, secure=False,
        protocol=request.connection, transport=request.connection,
    )  # fmt: skip


def _answer_said(request: Request, response: web.Response) -> dict[str, Any]:
    body = cast(bytes, response.body)
    if response.status != 200:
        return {"code": msgspec.json.decode(body)["error"]["code"]}
    if request.what == "session":
        welcome = frames.read(body, frames.Welcome)
        begun = {"begun": _text(welcome.generation), "acknowledge": welcome.acknowledge}
        return {**begun, "lineage": welcome.lineage, "highest": welcome.highest}
    if request.what == "parts":
        answered = frames.read(body, Answered)
        return {"confirmed": tuple(answered.confirmed), "awaited": tuple(answered.awaited)}
    return {}
