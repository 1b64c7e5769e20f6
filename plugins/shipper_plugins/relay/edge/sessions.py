"""Sessions of a `relay` output with its principal: which host is used, the handshake, and the heartbeat.

One host is used at a time. A host that cannot be reached gives its place to the next one. Where a request got no
answer, the same host gets a handshake first, as it may have the events. The first session is tried where a lane of the
destination has one, or had its last: so while a credential is changed, both lanes send to one principal.

A session begins with a handshake. In each request the sender says up to which place it has the answers durably, so that
the other side forgets what cannot come again. A principal that was restarted wants another handshake.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from shipper.plugin import Code, Held, Later, NotBegun, OutputContext
from shipper.plugin.relay import Confirms, Principal
from shipper.sdk.http_answer import NoAnswer, Response, Unreachable, address
from shipper_plugins.relay import frames
from shipper_plugins.relay.edge.lineage import Lineage
from shipper_plugins.relay.edge.refusals import Over, read, refusal
from shipper_plugins.relay.frames import Head, Hello, Welcome

if TYPE_CHECKING:
    from shipper.sdk.http import Client
    from shipper_plugins.relay.output import RelayOutput

JSON = "application/json"
MOST_ANSWERED = 2 << 20
"""Bytes of an answer, unless more was asked for."""
IDLE_SECONDS = 100.0
"""A connection stays open from heartbeat to heartbeat: it shows the other side that this process lives."""
_MOST = 3
"""Handshakes for one request, beside one for each host."""
T = TypeVar("T")
_instance = os.urandom(16).hex()
"""The id of this process: its queues are one sender to the other side."""


@dataclass(frozen=True, slots=True)
class Talk:
    """What is asked of one host, in one session; `low` is its low-water mark."""

    session: Welcome
    low: int
    _host: str
    _post: Callable[[str, str, Sequence[bytes], str, int], Awaitable[Response]]
    _head: Callable[[Welcome, int, int], Head]

    def head(self, *, parts: int = 0) -> Head:
        """Returns the head of a request with so many parts."""
        return self._head(self.session, self.low, parts)

    async def ask(
        self, what: str, kind: str, body: Sequence[bytes], answer: type[frames.M], most: int = MOST_ANSWERED
    ) -> frames.M:
        """Returns the answer, of at most `most` bytes. Raises what `Sender.send` may raise, Refused, and Over for a
        session that ended."""
        response = await self._post(self._host, what, body, kind, most)
        if response.status != 200:
            raise refusal(response, self._host)
        return read(response, answer, self._host)


class Sessions:
    """The sessions of an open output, one at a time; each begins when something must be asked."""

    def __init__(self, output: RelayOutput, client: Client, context: OutputContext) -> None:
        self._output, self._client, self._context = output, client, context
        self._confirms = context.meters.gauge("confirms_delivered", "1: the principal answers when it has delivered.")
        self.lineage = Lineage(context)
        self._lock = trio.Lock()
        self._at = 0
        """The host that is used."""
        self.current: Welcome | None = None
        self._low = 0
        """The low-water mark of the last request in this session."""
        self._said = self._since = trio.current_time()
        """When something was asked last, and when the session began."""
        self.why = ""
        """Why there is no session."""
        self._worth: Confirms | None = None
        """What a confirmation was worth in the last session; None before the first one."""
        self._ended = trio.Event()
        """Set, and replaced, when a session has ended."""

    @property
    def principal(self) -> Principal:
        """See `Sender.principal`."""
        seconds = None if self.current is None else trio.current_time() - self._since
        return Principal(address(self._output.hosts[self._at]), seconds, self.why, self._worth)

    async def within(self, act: Callable[[Talk], Awaitable[T]]) -> T:
        """Acts in the present session; again in a new one, if that has ended.

        Raises what `act` does, Later, Held or NotBegun.
        """
        for _ in range(_MOST + len(self._output.hosts)):
            session, low, host = await self._begun()
            try:
                return await act(Talk(session, low, host, self._post, self._head))
            except (Unreachable, Over):
                self._forget(session)
            except NoAnswer:  # the handshake comes first now, and its host need not be this one
                self._forget(session)
                raise
        raise Later("the principal ends each session at once", code=Code.UNAVAILABLE)

    def _head(self, session: Welcome, low: int, parts: int = 0) -> Head:
        waits = self._context.waits()
        return Head(session.generation, self._context.lane, low, parts, waits.events, waits.versions)

    async def _post(
        self, host: str, what: str, body: Sequence[bytes], kind: str = JSON, most: int = MOST_ANSWERED
    ) -> Response:
        """Posts a request. Raises Unreachable, NoAnswer or NotBegun."""
        self._said = trio.current_time()
        return await self._client.post(host, f"/v1/relay/{what}", body, headers={"Content-Type": kind}, most=most)

    async def _begun(self) -> tuple[Welcome, int, str]:
        """Returns the session, its present low-water mark, and its host."""
        async with self._lock:
            low = self._context.lowest()
            if self.current is not None and low < self._low:  # entries come below the mark again, as by an order
                self._forget(self.current)
            if self.current is None:
                self.current = await self._begin()
            self._low = low
            return self.current, low, self._output.hosts[self._at]

    async def _begin(self) -> Welcome:
        """Shakes hands with the host that is used, or with the next one that can be reached."""
        hello = msgspec.json.encode(Hello(frames.PROTOCOL, _instance, self._context.lane))
        hosts = self._output.hosts
        if self._worth is None:
            self._at = self._used_beside()
        for after in range(len(hosts)):
            at = (self._at + after) % len(hosts)
            try:
                response = await self._post(hosts[at], "session", [hello])
            except NoAnswer:
                if after == len(hosts) - 1:
                    raise
                continue
            welcome = self._welcome(response, hosts[at])
            await self.lineage.begin(welcome, hosts[at])
            self._at, self._since, self.why = at, trio.current_time(), ""
            return welcome
        raise AssertionError

    def _used_beside(self) -> int:
        """Returns the host to which a lane of the destination is connected, or was; the first one if there is none."""
        reached = [one for one in self._context.beside() if one.confirms is not None]
        reached.sort(key=lambda one: one.connected_seconds is None)
        used = [one.host for one in reached]
        return next((at for at, host in enumerate(self._output.hosts) if address(host) in used[:1]), 0)

    def _welcome(self, response: Response, host: str) -> Welcome:
        """Returns the session that a host has begun. Raises an error with the reason if it has not."""
        if response.status != 200:
            raise refusal(response, host)
        welcome = read(response, Welcome, host)
        if welcome.edge != self._output.name:
            text = f"{address(host)}: this credential is not that of the edge {self._output.name}"
            raise Held(text, code="edge_name")
        delivers = welcome.acknowledge == "delivered"
        self._worth = "delivered" if delivers else "stored"
        self._confirms.set(delivers)
        self._context.delivers(delivers)
        return welcome

    def _forget(self, session: Welcome) -> None:
        if self.current is session:
            self.current = None
            self._ended.set()
            self._ended = trio.Event()

    async def beat(self, session: Welcome | None) -> None:
        """Sends heartbeats while there is nothing else to send, until this session has ended.

        A heartbeat is answered at once by any principal that lives, so it has not as long as other requests: a host
        that has fallen silent is given up after another `heartbeat` seconds.
        """
        while session is not None and session is self.current:
            left = self._said + max(1.0, session.heartbeat) - trio.current_time()
            if left > 0:
                with trio.move_on_after(left):
                    await self._ended.wait()
                continue
            try:
                with trio.move_on_after(max(1.0, session.heartbeat)):
                    await self._beat_once(session)
                    continue
                raise Later("no answer to a heartbeat", code=Code.NO_ANSWER)
            except Later as error:
                self._forget(session)
                self.why = str(error)
            except NotBegun:
                await trio.sleep(1.0)

    async def _beat_once(self, session: Welcome) -> None:
        """Sends a heartbeat. Raises Later or NotBegun."""
        head = msgspec.json.encode(self._head(session, self._low))
        response = await self._post(self._output.hosts[self._at], "heartbeat", [head])
        if response.status != 200:
            self._forget(session)
