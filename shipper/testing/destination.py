"""A bulk destination on loopback: a real HTTP server that keeps what it gets and misbehaves as its script says.

    async with open_asyncio() as aio, open_destination(aio, keys={credential}) as destination:
        destination.script = lambda request, documents: Reply(status=503) if request.number == 0 else None
        ...                                      # ship to destination.url
        await destination.wait_until(lambda: destination.total == 1000)
        destination.keys.discard(credential)     # revoked in this instant

It is stricter than a real one where the promise is at stake: a request counts from its first header on, and its key is
asked for twice, at the headers and when the body is complete; a key that is revoked in between refuses the request, and
`refused` shows it. Documents are created as Elasticsearch does: an id that exists is answered 409 and kept as it was.
So are versions (`version_type: external`) that are not newer than the document's, or than that of one that was deleted,
until `forget_deleted`; `/_mget` answers with documents and their versions.

The server runs in the asyncio thread, the test in trio's. What the test reads are plain counters and dicts that only
the server changes; what the server reads (`keys`, `script`) it copies in one step.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
import trio
from aiohttp import web

from shipper.plugin import Asyncio, Credential


@dataclass(slots=True)
class Request:
    """One request, noted when its headers arrived."""

    number: int
    """From 0, in the order of arrival."""
    method: str
    path: str
    key: str
    """`digest` of its Authorization header, or of `CN=…` of its client certificate; empty without both."""
    arrived: float
    """time.monotonic()."""
    bytes: int = 0
    """Size of the body, decompressed."""
    items: int = 0
    status: int | None = None
    """The status of the answer; None while there is none."""
    finished: float | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One item of a bulk request, or of one for documents (`get`)."""

    op: str
    index: str
    id: str
    source: bytes = b""
    """Empty for `delete` and `get`."""
    version: int | None = None
    """The external one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How to answer a request otherwise than well."""

    status: int | None = None
    """Answer this instead of the items."""
    body: bytes = b""
    """With `status`: the body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    items: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """Refuse these items, by position: a status and an error type."""
    commit: bool | None = None
    """Whether the documents are kept (default: if `status` does not say otherwise)."""
    delay: float = 0.0
    """Seconds between the commit and the answer."""
    hang: bool = False
    """Do not answer before `BulkDestination.release`."""
    cut: Literal["before", "middle"] | None = None
    """Close the connection before the answer, or when half of it was sent."""
    count: int | None = None
    """Answer for this many items, instead of all."""


Script = Callable[[Request, list[Document]], Reply | None]


class BulkDestination:
    """A running destination; made by `open_destination`."""

    def __init__(
        self,
        aio: Asyncio,
        keys: Iterable[Credential | str] | None,
        keep: Literal["documents", "ids"],
        port: int = 0,
    ) -> None:
        self.keys: set[Credential | str] | None = None if keys is None else set(keys)
        """Who may write: credentials, values of Authorization headers, or `CN=…`; None: everybody."""
        self.script: Script | None = None
        """Asked for each request for documents or with such, in the server's thread; None as its reply: behave well."""
        self.documents: dict[str, dict[str, bytes]] = {}
        """By index and id, what was created; empty bytes if only ids are kept."""
        self.versions: dict[tuple[str, str], int] = {}
        """By index and id; of deleted documents too."""
        self.copies: Counter[str] = Counter()
        """How often each id was sent and committed or found."""
        self.log: list[Request] = []
        self.total = 0
        """How many documents there are."""
        self.refused = 0
        """Requests that were answered 401."""
        self.under_way = 0
        """Requests whose headers have arrived; the script may not have decided about one yet."""
        self.hanging = 0
        """Requests whose answer waits for `release`: for these the script has decided."""
        self.busiest = 0
        """The most requests that were under way at once."""
        self._keep = keep
        self._aio = aio
        self._token = trio.lowlevel.current_trio_token()
        self._changed = trio.Event()
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._ssl: ssl.SSLContext | None = None
        self._port = port

    @property
    def url(self) -> str:
        """`http(s)://127.0.0.1:port`; the port stays over `stop` and `start`."""
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self._port}"

    @property
    def events(self) -> list[Any]:
        """The documents of all indices, decoded."""
        return [orjson.loads(source) for index in list(self.documents.values()) for source in list(index.values())]

    def requests_with(self, key: Credential | str) -> list[Request]:
        """The requests that carried this credential (or header value), the oldest first."""
        wanted = digest(key)
        return [request for request in list(self.log) if request.key == wanted]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is asked after each arrival, commit and answer."""
        while not condition():
            await self._changed.wait()

    async def wait_for(self, total: int) -> None:
        """Wait until there are at least `total` documents."""
        await self.wait_until(lambda: self.total >= total)

    async def forget_deleted(self) -> None:
        """Forget the versions of documents that were deleted, as Elasticsearch does after a while."""

        async def forget() -> None:
            for index, id in [place for place in self.versions if place[1] not in self.documents.get(place[0], {})]:
                del self.versions[index, id]

        await self._aio.call(forget)

    async def release(self) -> None:
        """Let all go on that hang now."""

        async def set_and_renew() -> None:
            self._released.set()
            self._released = asyncio.Event()

        await self._aio.call(set_and_renew)

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen (again), on the same port as before."""
        self._ssl = tls or self._ssl
        await self._aio.call(self._start)

    async def stop(self) -> None:
        """Close the port and every connection; what was kept stays."""
        await self.release()
        await self._aio.call(self._stop)

    # -- in the asyncio thread ------------------------------------------------------------------------------------

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._ssl)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        if self._runner is not None:
            server = self._runner.server
            transports = [connection.transport for connection in server.connections] if server is not None else []
            await self._runner.cleanup()
            for transport in transports:
                if isinstance(transport, asyncio.Transport):
                    transport.abort()  # aiohttp lets those go on closing whose peer does not read
            self._runner = None

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        name = _name(http)
        request = Request(len(self.log), http.method, http.path, digest(name) if name else "", time.monotonic())
        self.log.append(request)
        self.under_way += 1
        self.busiest = max(self.busiest, self.under_way)
        self._notify()
        try:
            response = await self._respond(http, name, request)
            request.status = response.status
            return response
        finally:
            request.finished = time.monotonic()
            self.under_way -= 1
            self._notify()

    async def _respond(self, http: web.Request, name: str, request: Request) -> web.StreamResponse:
        if not self._allowed(name):
            return self._refuse()
        body = await http.read()
        request.bytes = len(body)
        if not self._allowed(name):
            return self._refuse()
        index, _, api = http.path.rpartition("/")
        if api not in ("_bulk", "_mget"):
            return _json(_ABOUT if http.path == "/" else {"error": "no such thing", "status": 404})
        documents = (_documents if api == "_bulk" else _wanted)(body, index.strip("/"))
        if documents is None:
            return _json({"error": {"type": "illegal_argument_exception", "reason": "malformed"}, "status": 400})
        request.items = len(documents)
        script = self.script
        reply = (script(request, documents) if script else None) or Reply()
        return await self._reply(http, request, reply, documents)

    async def _reply(
        self, http: web.Request, request: Request, reply: Reply, documents: list[Document]
    ) -> web.StreamResponse:
        commit = reply.commit if reply.commit is not None else reply.status is None or reply.status < 300
        results = self._commit(documents, reply.items) if commit else []
        self._notify()
        await asyncio.sleep(reply.delay)
        if reply.hang:
            await self._hang()
        if reply.status is not None:
            response = web.Response(status=reply.status, body=reply.body, headers=dict(reply.headers))
        else:
            results = results[: reply.count]
            errors = any("error" in result for item in results for result in item.values())
            docs = [item["get"] for item in results if "get" in item]
            for found in docs:
                if "_source" in found:
                    found["_source"] = _filtered(found["_source"], http.query.get("_source_includes", ""))
            answer = {"docs": docs} if docs else {"took": 1, "errors": errors, "items": results}
            response = _json(_filtered(answer, http.query.get("filter_path", "")), reply.headers)
        return await _cut(http, response, reply.cut) if reply.cut else response

    async def _hang(self) -> None:
        self.hanging += 1
        self._notify()
        try:
            await self._released.wait()
        finally:
            self.hanging -= 1

    def _commit(self, documents: list[Document], refused: Mapping[int, tuple[int, str]]) -> list[dict[str, Any]]:
        return [self._result(document, refused.get(i)) for i, document in enumerate(documents)]

    def _result(self, document: Document, refusal: tuple[int, str] | None) -> dict[str, Any]:
        where = {"_index": document.index, "_id": document.id}
        if refusal is not None:
            said: dict[str, Any] = {"status": refusal[0], "error": {"type": refusal[1], "reason": refusal[1]}}
        elif document.op == "get":
            said = self._found(document)
        else:
            said = self._store(document)
        return {document.op: where | said}

    def _found(self, document: Document) -> dict[str, Any]:
        index = self.documents.get(document.index)
        if index is None:
            return {"error": {"type": "index_not_found_exception", "reason": f"no such index [{document.index}]"}}
        if document.id not in index:
            return {"found": False}
        source = orjson.loads(index[document.id] or b"{}")
        return {"found": True, "_version": self.versions[document.index, document.id], "_source": source}

    def _store(self, document: Document) -> dict[str, Any]:
        place = document.index, document.id
        index = self.documents.setdefault(document.index, {})
        exists, current = document.id in index, self.versions.get(place)
        self.copies[document.id] += 1
        if exists and document.op == "create":
            return _conflict(document, f"document already exists (current version [{current}])")
        if current is not None and document.version is not None and current >= document.version:
            given = document.version
            return _conflict(document, f"current version [{current}] is higher or equal to the one provided [{given}]")
        self.versions[place] = (current or 0) + 1 if document.version is None else document.version
        if document.op == "delete":
            self.total -= exists
            index.pop(document.id, None)
            return {"status": 200 if exists else 404, "result": "deleted" if exists else "not_found"}
        self.total += not exists
        index[document.id] = document.source if self._keep == "documents" else b""
        return {"status": 200 if exists else 201}

    def _allowed(self, name: str) -> bool:
        return self.keys is None or name in {_header(key) for key in tuple(self.keys)}

    def _refuse(self) -> web.Response:
        self.refused += 1
        return web.Response(status=401, text="Unauthorized", headers={"WWW-Authenticate": "ApiKey"})

    def _notify(self) -> None:
        try:
            self._token.run_sync_soon(self._wake, idempotent=True)
        except trio.RunFinishedError:
            return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def open_destination(
    aio: Asyncio,
    *,
    keys: Iterable[Credential | str] | None = None,
    tls: ssl.SSLContext | None = None,
    keep: Literal["documents", "ids"] = "documents",
    script: Script | None = None,
    port: int = 0,
) -> AsyncIterator[BulkDestination]:
    """A destination on a port of loopback (0: any free one), for as long as the block runs.

    `keys` says who may write (None: everybody), `tls` makes it https, `keep="ids"` is for runs of millions of events.
    """
    destination = BulkDestination(aio, keys, keep, port)
    destination.script = script
    await destination.start(tls)
    try:
        yield destination
    finally:
        with trio.CancelScope(shield=True):
            await destination.stop()


def digest(key: Credential | str) -> str:
    """What the log shows of a credential or header value."""
    return hashlib.sha256(_header(key).encode()).hexdigest()[:12]


def _header(key: Credential | str) -> str:
    return key.authorization() if isinstance(key, Credential) else key


def _name(http: web.Request) -> str:
    if header := http.headers.get("Authorization"):
        return header
    certificate = http.transport.get_extra_info("peercert") if http.transport else None
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return f"CN={names[0]}" if names else ""


def _documents(body: bytes, index: str) -> list[Document] | None:
    """The items of a bulk body of `create`, `index` and `delete` operations; None if it is not one."""
    lines = body.split(b"\n")
    if lines.pop() or not lines:
        return None
    rest = iter(lines)
    try:
        return [_document(orjson.loads(action), rest, index) for action in rest]
    except (ValueError, TypeError, AttributeError):
        return None


def _document(action: dict[str, dict[str, Any]], rest: Iterator[bytes], index: str) -> Document:
    ((op, where),) = action.items()
    if op not in ("create", "index", "delete"):
        raise ValueError(op)
    version = where.get("version")
    if version is not None and (op == "create" or where.get("version_type") != "external" or version < 0):
        raise ValueError("no external version")
    source = b"" if op == "delete" else next(rest, None)
    if source is None:
        raise ValueError("an operation without a document")
    return Document(op, where.get("_index", index), where.get("_id", ""), source, version)


def _wanted(body: bytes, index: str) -> list[Document] | None:
    """The documents that a body asks for; None if it asks for none."""
    try:
        wanted = [Document("get", one.get("_index", index), one["_id"]) for one in orjson.loads(body)["docs"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return wanted or None


def _conflict(document: Document, why: str) -> dict[str, Any]:
    reason = f"[{document.id}]: version conflict, {why}"
    return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": reason}}


_ABOUT = {"name": "test", "cluster_name": "test", "version": {"number": "8.19.4"}, "tagline": "You Know, for Search"}


def _json(value: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    status = value.get("status", 200)
    named = {"X-Elastic-Product": "Elasticsearch", **(headers or {})}
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json", headers=named)


async def _cut(http: web.Request, response: web.Response, where: Literal["before", "middle"]) -> web.StreamResponse:
    body = response.body if isinstance(response.body, bytes) else b""
    started = web.StreamResponse(status=response.status, headers={"Content-Length": str(len(body) + 1)})
    if where == "middle":
        await started.prepare(http)
        await started.write(body[: len(body) // 2])
    if http.transport is not None:
        http.transport.close()
    return started


# -- filter_path -------------------------------------------------------------------------------------------------------


def _filtered(answer: dict[str, Any], filter_path: str) -> dict[str, Any]:
    """The answer without what the comma-separated dotted paths do not name; arrays are no step of a path."""
    if not filter_path:
        return answer
    paths = [path.split(".") for path in filter_path.split(",")]
    kept = _select(answer, paths)
    return kept if isinstance(kept, dict) else {}


def _select(value: Any, paths: list[list[str]]) -> Any:
    """The selected part; None where nothing of it is."""
    if isinstance(value, list):
        return [part for part in (_select(item, paths) for item in value) if part is not None] or None
    if not isinstance(value, dict):
        return None
    result = {}
    for key, below in value.items():
        rest = [path[1:] for path in paths if path[0] in (key, "*")]
        part = below if [] in rest else _select(below, rest) if rest else None
        if part is not None:
            result[key] = part
    return result or None
