"""A proxy of HTTP/1.1 before the API server under test, with faults on demand and a record of all requests.

    async with open_proxy(kubernetes) as proxy:
        client of proxy.url, which shows a certificate of kubernetes.ca
        with proxy.silence(watch=True):
            …

It ends TLS, so that it can tell a watch from a write: a client says who it is by a token, not by a certificate. Each
connection has one of its own to the server, and ends when that one ends: an answer that breaks off there does so here.
What the server says is read at once and kept until it may be passed on, however much it is: a slow client slows nobody.
"""

from __future__ import annotations

import json
import math
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio

from tests.backends.kubernetes import Kubernetes
from tests.backends.kubernetes_connection import Connection
from tests.backends.kubernetes_faults import (
    Delay,
    Fault,
    Loss,
    Match,
    Refusal,
    Reply,
    Request,
    Silence,
    expired_event,
    failure,
)

KEPT = 100_000
_F = TypeVar("_F", bound=Fault)


class Proxy:
    """Where it listens, what it has seen, and the faults that a test begins.

    Which requests a fault or a count means is said by the fields of `Match`: `path` (a regular expression), `method`,
    `agent`, `watch`, `status`. A fault begins at once. It ends by `end`, with its `with`, or after `times` requests.
    """

    def __init__(self, kubernetes: Kubernetes, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.requests: deque[Request] = deque(maxlen=KEPT)
        """The latest, oldest first."""
        self.counts: Counter[tuple[str, str, int]] = Counter()
        """How many answers there were, by user agent, method and status."""
        self._server = kubernetes
        self._faults: list[Fault] = []
        self._connections: set[Connection] = set()
        self._changed = trio.Event()
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(kubernetes.directory / "server.pem", kubernetes.directory / "server.key")
        self._trust = ssl.create_default_context(cafile=str(kubernetes.ca))

    # -- what it has seen ----------------------------------------------------------------------------------------------

    def count(self, **match: Any) -> int:
        """How many requests there were of this kind; with `status`: how many that were answered so."""
        return sum(map(Match(**match).holds, self.requests))

    def watches(self, **match: Any) -> int:
        """How many watches of this kind are open."""
        wanted = Match(**{"watch": True, **match})
        return sum(one.request is not None and wanted.holds(one.request) for one in self._connections)

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits until something holds of what the proxy has seen; set a time limit around it."""
        while not holds():
            await self._changed.wait()

    # -- faults --------------------------------------------------------------------------------------------------------

    def delay(self, seconds: float, *, watch: bool | None = True, **match: Any) -> Delay:
        """Passes answers on later, each piece by so much; those of watches only, if not told otherwise."""
        return self._begin(Delay(Match(watch=watch, **match), self._end, seconds=seconds))

    def silence(self, **match: Any) -> Silence:
        """Accepts all, passes nothing on and cuts nothing. After its end all goes on where it stopped."""
        return self._begin(Silence(Match(**match), self._end))

    def refuse(self) -> Refusal:
        """Cuts all connections, and each new one."""
        fault = self._begin(Refusal(Match(), self._end))
        self.cut()
        return fault

    def lose_answers(self, *, times: int | None = None, **match: Any) -> Loss:
        """Lets the server do what it is asked for, and cuts the connection instead of an answer."""
        return self._begin(Loss(Match(**match), self._end, times))

    def throttle(self, seconds: int = 1, *, times: int | None = None, **match: Any) -> Reply:
        """Answers 429 with `Retry-After: SECONDS`."""
        said = "The server has received too many requests and has asked us to try again later"
        return self.answer(429, "TooManyRequests", said, headers=(("Retry-After", str(seconds)),), times=times, **match)

    def gone_in_stream(self, *, times: int | None = None, **match: Any) -> Reply:
        """Answers each new watch with 200 and one event, ERROR 410: as the server does if its version is too old."""
        match = {"watch": True, **match}
        return self._begin(Reply(Match(**match), self._end, times, status=200, body=expired_event()))

    def answer(
        self,
        status: int,
        reason: str,
        message: str = "by the proxy",
        *,
        headers: tuple[tuple[str, str], ...] = (),
        times: int | None = None,
        **match: Any,
    ) -> Reply:
        """Answers with a failure; the server gets no request."""
        body = json.dumps(failure(status, reason, message)).encode()
        return self._begin(Reply(Match(**match), self._end, times, status=status, body=body, headers=headers))

    def expire_watches(self, **match: Any) -> int:
        """Says ERROR 410 in the watches that are open, and ends them; returns how many there are."""
        return self._each({"watch": True, **match}, Connection.expire)

    def cut(self, **match: Any) -> int:
        """Cuts the connections whose requests are meant, and if none is described all; returns how many."""
        return self._each(match, Connection.cut)

    def _each(self, match: dict[str, Any], act: Callable[[Connection], None]) -> int:
        wanted = Match(**match)
        meant = [one for one in self._connections if wanted.holds(one.request) or wanted == Match()]
        for one in meant:
            act(one)
        return len(meant)

    def _begin(self, fault: _F) -> _F:
        self._faults.append(fault)
        self.tell()
        return fault

    def _end(self, fault: Fault) -> None:
        self._faults.remove(fault)
        self.tell()

    # -- for its connections -------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Wakes all who wait for a change."""
        self._changed.set()
        self._changed = trio.Event()

    def fault(self, kind: type[_F], request: Request | None) -> _F | None:
        """The oldest fault of this kind that meets a request."""
        return next((one for one in self._faults if isinstance(one, kind) and one.meets(request)), None)

    async def may_pass(self, request: Request | None, came: float = -math.inf) -> None:
        """Returns when a delay since `came` is over and nothing is silent."""
        while True:
            delay, silence = self.fault(Delay, request), self.fault(Silence, request)
            due = came + delay.seconds if delay else -math.inf
            if silence is None and due <= trio.current_time():
                return
            with trio.move_on_at(due if silence is None else math.inf):
                await self._changed.wait()

    def answered(self, request: Request, status: int) -> None:
        request.status = status
        self.counts[request.agent, request.method, status] += 1
        self.tell()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection of a client, to its end."""
        try:
            if self.fault(Refusal, None) is not None:
                return
            connection = Connection(self)
            self._connections.add(connection)
            try:
                await connection.run(stream, self._tls, self._trust, self._server.port)
            finally:
                self._connections.discard(connection)
                self.tell()
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def open_proxy(kubernetes: Kubernetes) -> AsyncIterator[Proxy]:
    """A proxy that listens on loopback, until the end of `with`."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = Proxy(kubernetes, listener.socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, proxy.serve, [listener]))
        yield proxy
        nursery.cancel_scope.cancel()
