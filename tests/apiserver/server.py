"""A server of HTTP/1.1 whose answers a test gives: what a real API server does seldom, or never when one wants it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import h11
import trio

from shipper.apiserver.client import Client, connected
from shipper.apiserver.config import Configuration
from shipper.apiserver.credentials import Credential
from shipper.apiserver.objects import Kind
from shipper.apiserver.server import Server
from shipper.apiserver.trust import Trust
from shipper.process.environment import REAL, Environment

THINGS = Kind("example.dev", "v1", "things", "Thing")


@dataclass
class Asked:
    """A request as it came; `connection` counts from 1."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Exchange:
    """One request, and its answer in parts."""

    def __init__(self, asked: Asked, http: h11.Connection, stream: trio.abc.Stream) -> None:
        self.asked = asked
        self._http, self._stream = http, stream

    async def begin(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        all = {"Content-Type": "application/json", "Transfer-Encoding": "chunked", **(headers or {})}
        await self._put(h11.Response(status_code=status, headers=list(all.items())))

    async def send(self, block: bytes) -> None:
        await self._put(h11.Data(data=block))

    async def event(self, type: str, object: Any) -> None:
        await self.send(json.dumps({"type": type, "object": object}).encode() + b"\n")

    async def bookmark(self, version: str, *, ends_initial: bool = False) -> None:
        notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends_initial else {}
        await self.event("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": version, **notes}})

    async def end(self) -> None:
        await self._put(h11.EndOfMessage())

    async def answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        await self.begin(status, headers)
        await self.send(value if isinstance(value, bytes) else json.dumps(value).encode())
        await self.end()

    async def refuse(self, status: int, reason: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        said = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}
        await self.answer(said, status, headers)

    async def break_off(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def _put(self, event: h11.Event) -> None:
        await self._stream.send_all(self._http.send(event) or b"")


Talk = Callable[[Exchange], Awaitable[None]]


@dataclass
class Scripted:
    """A running server; `talk` may be set to another one."""

    url: str
    talk: Talk
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    more: trio.Event = field(default_factory=trio.Event)

    async def wait_for(self, count: int) -> None:
        """Returns when so many requests have come."""
        while len(self.asked) < count:
            await self.more.wait()

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        number = self.connections
        http = h11.Connection(h11.SERVER)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            while (asked := await _request(http, stream, number)) is not None:
                self.asked.append(asked)
                self.more.set()
                self.more = trio.Event()
                await self.talk(Exchange(asked, http, stream))
                if http.our_state is not h11.DONE:
                    break
                http.start_next_cycle()
        await trio.aclose_forcefully(stream)


async def _request(http: h11.Connection, stream: trio.abc.Stream, number: int) -> Asked | None:
    body, head = b"", None
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            url = urlsplit(head.target.decode())
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Asked(head.method.decode(), url.path, query, headers, body, number)
        else:
            return None


async def nothing(exchange: Exchange) -> None:
    """Answers nothing, for ever."""
    await trio.sleep_forever()


@asynccontextmanager
async def scripted(talk: Talk = nothing, tls: Any = None) -> AsyncIterator[Scripted]:
    server = Scripted("", talk)

    async def serve(stream: trio.abc.Stream) -> None:
        if tls is not None:
            stream = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
        await server.serve(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        yield server
        nursery.cancel_scope.cancel()


def configuration(url: str, credential: Credential = None, trust: Trust | None = None) -> Configuration:
    return Configuration(Server.parse(url), "logging", trust or Trust(), credential, "a test")


@asynccontextmanager
async def client_of(
    server: Scripted, credential: Credential = None, trust: Trust | None = None, environment: Environment = REAL
) -> AsyncIterator[Client]:
    async with connected(configuration(server.url, credential, trust), environment) as client:
        yield client


def thing(name: str, version: int | str, uid: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-of-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": metadata, **fields}


def listing(*items: Any, version: int | str, goes_on: str = "") -> dict[str, Any]:
    return {"kind": "ThingList", "metadata": {"resourceVersion": str(version), "continue": goes_on}, "items": [*items]}
