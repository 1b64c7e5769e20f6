"""Serves `/livez`, `/readyz`, `/metrics`, `/status` and a page at `/` to probes, Prometheus and people.

The server runs in the asyncio thread and asks trio for the status, one question at a time for all waiting requests; if
trio does not answer within two seconds, `/livez` is 503. A view is read-only and shows no secret, so there is no
log-in; the server listens on loopback by default, and answers only requests with a `Host` of this host (`hosts`), so
that a web page whose name resolves to 127.0.0.1 reads nothing. At most 64 connections are kept, or fewer where
descriptors are scarce: the oldest is closed for a new one.

asyncio, aiohttp.web, prometheus_client and the page are imported when a server starts: together they take 0.1 s, and
few ask for one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import trio

from shipper.process import log
from shipper.sdk import descriptors
from shipper.sdk.aio import Asyncio
from shipper.sdk.errors import OptionError
from shipper.sdk.hosts import is_own_host
from shipper.sdk.resolve import resolve
from shipper.status.metrics import exposition

if TYPE_CHECKING:
    import asyncio

    from aiohttp import web

    from shipper.status.page.document import Content

StatusView = Mapping[str, Any]
"""The fields of an `observed`, `dead_letters` with `limit_bytes`; `counters`: {output: {delivered, duplicate,
dead_letter, dropped, retries, letters_dropped}};
`turned_away`: {input: connections}; `outputs` and `inputs`: the tallies of each (`tallies`), and the holds and retries
of outputs; all `edges` and `principals`; `plugins`: {unit: {name: figure}}, the meters of plugins (`meters`);
`running`: whether a policy runs; `past_deadline`: whether a drain waits past its deadline; `supervisor`: a
`Supervision`, or None. State and message are those of the whole, the supervisor included."""

_CONNECTIONS = 64
_ANSWER_SECONDS = 2.0
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = log.get(__name__)


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of `127.0.0.1:6780`, `[::1]:0`, `:6780` or `6780` (loopback); raises OptionError."""
    host, _, port = text.rpartition(":")
    if port.isascii() and port.isdigit() and int(port) > 65535:
        raise OptionError(f"the address {text!r}: a port is at most 65535")
    if not (port.isascii() and port.isdigit()):
        raise OptionError(f"the address {text!r} has no port: HOST:PORT is expected, such as 127.0.0.1:6780")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise OptionError(f"the address {text!r}: an IPv6 address is written in brackets, such as [::1]:6780")
    return host or "127.0.0.1", int(port)


@asynccontextmanager
async def serve_status(aio: Asyncio, address: str, status: Callable[[], StatusView]) -> AsyncIterator[str | None]:
    """Serves while the block runs; yields the bound `host:port`.

    Yields None where the address cannot be bound: the log has the reason, and shipping continues. `status` is called in
    trio and must not block. Raises OptionError for an invalid address.
    """
    host, port = parse_address(address)

    async def observe() -> bytes:
        return orjson.dumps(status(), default=str, option=orjson.OPT_NON_STR_KEYS)

    server = _Server(lambda: aio.answer(observe), host)
    try:
        try:
            addresses = [found[4][0] for found in await resolve(host, port)]
            bound: str | None = await aio.call(server.start, addresses, port)
        except OSError as error:
            _log.warning("the status server could not start", address=address, reason=error.strerror or str(error))
            bound = None
        yield bound
    finally:
        with trio.CancelScope(shield=True):
            await aio.call(server.close)


class _Server:
    """Runs in the asyncio thread; `look` returns the status as JSON."""

    def __init__(self, look: Callable[[], Any], host: str) -> None:
        self._look = look
        self._host = host
        self._looking: asyncio.Task[bytes] | None = None
        self._drawing: asyncio.Task[Content | None] | None = None
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, addresses: list[str], port: int) -> str:
        import asyncio

        from aiohttp import web

        from shipper.status.page import document
        from shipper.status.rates import Samples

        self._samples = Samples()

        @web.middleware
        async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
            if not is_own_host(request.headers.get("Host", self._host), self._host):
                return web.json_response({"reason": "unknown Host"}, status=421, headers=_HEADERS)
            response: web.StreamResponse = await handler(request)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        app = web.Application(middlewares=[guard], client_max_size=1024)
        for path in ("/livez", "/readyz", "/metrics", "/status"):
            app.router.add_get(path, getattr(self, path[1:]))
        app.router.add_get(document.PAGE, self.page)
        for path in document.FILES:
            app.router.add_get(path, self.file)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(self._protocol, addresses, port, backlog=16)
        name = self._server.sockets[0].getsockname()
        return f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    async def close(self) -> None:
        import asyncio

        if self._server is not None:
            self._server.close()
        for task in (self._looking, self._drawing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    def _protocol(self) -> asyncio.Protocol:
        """Returns the protocol of a new connection."""
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        if len(server.connections) >= min(_CONNECTIONS, descriptors.limit() // 16):
            server.connections[0].force_close()
        return server()

    async def _status(self) -> bytes | None:
        """The status as JSON, or None if trio does not answer in time; the question is asked once for all."""
        import asyncio

        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        looking = self._looking
        done, _ = await asyncio.wait({looking}, timeout=_ANSWER_SECONDS)
        return looking.result() if done else None

    async def page(self, request: web.Request) -> web.Response:
        """Drawn once for all who wait for it, in a thread: there may be thousands of edges."""
        import asyncio

        from shipper.status.page import document

        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.ensure_future(self._draw())
        found = await asyncio.shield(self._drawing)
        return _content(503, document.unanswered(_SILENT)) if found is None else _content(200, found)

    async def _draw(self) -> Content | None:
        import asyncio

        from shipper.status import view
        from shipper.status.page import document

        text = await self._status()
        if text is None:
            return None
        now = asyncio.get_running_loop().time()

        def drawn() -> Content:
            status = orjson.loads(text)
            return document.page(view.of(status, self._samples.rates(status, now)))

        return await asyncio.to_thread(drawn)

    async def file(self, request: web.Request) -> web.Response:
        """One of the page's files, which are read at their first use."""
        import asyncio

        from shipper.status.page import document

        return _content(200, await asyncio.to_thread(document.file, request.path))

    async def livez(self, request: web.Request) -> web.Response:
        alive = await self._status() is not None
        return _json(200 if alive else 503, {"alive": alive, "reason": "" if alive else _SILENT})

    async def readyz(self, request: web.Request) -> web.Response:
        text = await self._status()
        if text is None:
            return _json(503, {"ready": False, "reason": _SILENT})
        ready, reason = readiness(orjson.loads(text))
        return _json(200 if ready else 503, {"ready": ready, "reason": reason})

    async def metrics(self, request: web.Request) -> web.Response:
        """In a thread: a principal may have thousands of edges."""
        import asyncio

        from aiohttp import web

        text = await self._status()
        if text is None:
            return _json(503, {"reason": _SILENT})
        body, content_type = await asyncio.to_thread(lambda: exposition(orjson.loads(text)))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def status(self, request: web.Request) -> web.Response:
        from aiohttp import web

        text = await self._status()
        if text is None:
            return _json(503, {"reason": _SILENT})
        return web.Response(body=text, content_type="application/json")


_SILENT = f"the shipper has not answered for {_ANSWER_SECONDS:.0f} s"


def readiness(status: StatusView) -> tuple[bool, str]:
    """Returns whether events are taken in, and the state in words.

    A problem of one output or of the supervisor is only shown: it is no reason for a restart, or to route traffic
    elsewhere. While a new revision is prepared, the previous one takes events. A revision that was active in an earlier
    process does not count.
    """
    state = status.get("state", "STARTING")
    ready = state == "HEALTHY" or (state in ("DEGRADED", "CONFIGURING") and status.get("running", False))
    message = status.get("message") or ""
    return ready, f"{state}: {message}" if message else state


def _content(status: int, content: Content) -> web.Response:
    from aiohttp import web

    from shipper.status.page import document

    return web.Response(status=status, body=content.body, headers={**document.HEADERS, "Content-Type": content.type})


def _json(status: int, value: object) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
