"""A door of a relay and senders to it, in one process, over real sockets."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import msgspec
import trio
import trio.testing

from shipper.plugin import (
    Answers,
    Asyncio,
    Batch,
    Code,
    Credential,
    CredentialId,
    Endpoint,
    Fields,
    Later,
    OutputContext,
    Sender,
)
from shipper.plugin.relay import Confirmed
from shipper.plugin.relay import Principal as Said
from shipper.plugin.state import RoutedState
from shipper.sdk.origins import Origin
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.input import Edge, RelayInput
from shipper_plugins.relay.output import RelayOutput
from tests.plugins.running import running

KEYS = {
    CredentialId(id): Credential.parse({"api_key": f"{id}:a-secret-of-the-test"}) for id in ("k1", "k2", "other", "no")
}
EDGES = {
    "berlin": Edge(credentials=("k1", "k2"), relays=True),
    "paris": Edge(credentials=("other",), relays=True),
}
"""They may send events of any origin, such as those of `entry`."""
ORIGIN = b"0123456789abcdef"


def without(id: str) -> dict[CredentialId, Credential]:
    """All keys but one, which is withdrawn."""
    return {known: secret for known, secret in KEYS.items() if known != id}


def entry(place: int, *numbers: int, origin: bytes = ORIGIN) -> Batch:
    """A batch as an output gets it from its queue."""
    batch = Batch.documents([b'{"n":%d}' % number for number in numbers or (place,)])
    return replace(batch, origin=origin, seq=place, place=place)


class Principal:
    """A running door; made by `principal`."""

    def __init__(self, context: RecordingInputContext, settings: RelayInput, source: Any, port: int) -> None:
        self.context, self.settings, self.source, self.port = context, settings, source, port
        self.url = f"http://127.0.0.1:{port}"

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    def change(self, credentials: Mapping[CredentialId, Credential] | None = None, **settings: Any) -> None:
        """From now on it has these settings, and else those with which it began."""
        known = self.context.credentials if credentials is None else credentials
        self.source.change(msgspec.structs.replace(self.settings, **settings), known)

    def copied(self) -> RecordingInputContext:
        """A copy of its state directory, as it is now."""
        copy = RecordingInputContext(positions=self.context.stored, aio=self.context.aio)
        copy.state, copy.awaited = dict(self.context.state), dict(self.context.awaited)
        return copy

    @property
    def numbers(self) -> list[int]:
        """The `n` of every event that entered."""
        return [event["n"] for event in self.context.events]

    @property
    def events(self) -> list[Fields]:
        return self.context.events

    def ids(self) -> list[str]:
        return [id for batch in self.context.batches for id in batch.id_texts()]

    def counted(self, name: str) -> int:
        return self.context.meters.numbers()[name]


@asynccontextmanager
async def principal(
    aio: Asyncio,
    *,
    context: RecordingInputContext | None = None,
    port: int = 0,
    credentials: Mapping[CredentialId, Credential] | None = None,
    **settings: Any,
) -> AsyncIterator[Principal]:
    """A door for `EDGES`, unless other settings are given; ends with the block."""
    given = RelayInput(**{"address": f"127.0.0.1:{port}", "edges": EDGES, **settings})
    context = context or RecordingInputContext(aio=aio)
    context.credentials = KEYS if credentials is None else credentials
    async with running(given, context, seconds=3600) as source:
        bound = (await context.listen(Endpoint("tcp", "127.0.0.1", port))).getsockname()[1]
        yield Principal(context, given, source, bound)


class Queue:
    """The lane of a sender: what it says of its lowest entry, and what it was told of its principal."""

    def __init__(self) -> None:
        self.lowest = 0
        self.delivers: list[bool] = []
        self.origins: dict[bytes, Origin] = {}
        """Those that were drawn in its state directory."""
        self.confirmed: dict[str, Confirmed] = {}
        """By lineage, what was noted."""
        self.notice: tuple[str | None, str] = (None, Code.OK)
        self.beside: Callable[[], Sequence[Said]] = list
        """What senders of other lanes say of their principals."""

    async def known(self) -> Mapping[str, Confirmed]:
        """See `Lineages.known`."""
        await trio.lowlevel.checkpoint()
        return dict(self.confirmed)

    def note(self, lineage: str, confirmed: Confirmed) -> None:
        """See `Lineages.note`."""
        self.confirmed[lineage] = confirmed

    def prove(self, origin: bytes, name: str) -> bytes | None:
        """See `OutputContext.prove`."""
        return self.origins[origin].proof(name) if origin in self.origins else None

    def take_notice(self, text: str | None, code: str) -> None:
        """See `OutputContext.notice`."""
        self.notice = text, code

    def context(self, aio: Asyncio, lane: int = 1, state: RoutedState | None = None) -> OutputContext:
        """What its output sees."""
        return OutputContext(
            "principal",
            aio,
            KEYS,
            lane=lane,
            lowest=lambda: self.lowest,
            delivers=self.delivers.append,
            lineages=self,
            prove=self.prove,
            notice=self.take_notice,
            beside=self.beside,
            state=state,
        )


@asynccontextmanager
async def edge(
    aio: Asyncio,
    *urls: str,
    lane: int = 1,
    queue: Queue | None = None,
    credential: str = "k1",
    here: RoutedState | None = None,
    **settings: Any,
) -> AsyncIterator[Any]:
    """A sender to these hosts, as the edge berlin, without keyed state unless it is given."""
    queue = queue or Queue()
    output = RelayOutput(**{"name": "berlin", "hosts": urls, "credential": CredentialId(credential), **settings})
    async with output.open(queue.context(aio, lane, here)) as sender:
        yield sender


class Sending:
    """Sends batches until they are answered; the answers are those of each, by its place unless it has a number."""

    def __init__(self, sender: Sender, nursery: trio.Nursery) -> None:
        self.answers: dict[int, Answers] = {}
        self.sender = sender
        self._news = trio.Event()
        self._nursery = nursery

    def send(self, batch: Batch, number: int | None = None) -> None:
        self._nursery.start_soon(self._send, batch, batch.place if number is None else number)

    async def _send(self, batch: Batch, number: int) -> None:
        while number not in self.answers:
            try:
                self.answers[number] = await self.sender.send(batch)
                self._news.set()
                self._news = trio.Event()
            except Later:
                await trio.testing.wait_all_tasks_blocked(0.01)

    async def answered(self, *numbers: int) -> None:
        with trio.fail_after(30):
            while not set(numbers) <= self.answers.keys():
                await self._news.wait()


@asynccontextmanager
async def sending_to(aio: Asyncio, *urls: str, kind: type[Any] = Sending, **how: Any) -> AsyncIterator[Any]:
    """A sender as of `edge` that is at work; what is not answered at the end of the block is given up."""
    async with edge(aio, *urls, **how) as sender, trio.open_nursery() as nursery:
        yield kind(sender, nursery)
        nursery.cancel_scope.cancel()


class Requests:
    """The requests of a sender of one kind: how many there were, and how many at once at most."""

    def __init__(self, sender: Any, what: str) -> None:
        self.count = self.most = self._under_way = 0
        self._what, self._post = what, sender._sessions._post
        sender._sessions._post = self._noted

    async def _noted(self, host: str, what: str, *given: Any) -> Any:
        is_counted = what == self._what
        self.count += is_counted
        self._under_way += is_counted
        self.most = max(self.most, self._under_way)
        try:
            return await self._post(host, what, *given)
        finally:
            self._under_way -= is_counted


class Chaos:
    """A proxy that cuts connections anywhere, holds bytes back, and later says again what was said."""

    def __init__(self, seed: int, to: int) -> None:
        self._random = random.Random(seed)
        self._to = to
        self._recorded: list[bytes] = []
        self.port = 0

    async def serve(self, near: trio.SocketStream) -> None:
        """One connection."""
        said = bytearray()
        try:
            async with near, await trio.open_tcp_stream("127.0.0.1", self._to) as far, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass, near, far, nursery.cancel_scope, said)
                nursery.start_soon(self._pass, far, near, nursery.cancel_scope, None)
        except (OSError, trio.BrokenResourceError):
            pass
        self._recorded.append(bytes(said))
        for _ in range(3):
            _, *requests = re.split(rb"(?=POST /v1/relay/parts)", self._random.choice(self._recorded))
            if requests:
                await self._say_again(self._random.choice(requests))

    async def _pass(
        self, source: trio.SocketStream, to: trio.SocketStream, scope: trio.CancelScope, said: bytearray | None
    ) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            async for data in source:
                if said is not None:
                    said += data
                fate = self._random.random()
                if fate < 0.1:
                    await to.send_all(data[: self._random.randrange(len(data))])
                    break
                if fate < 0.3:
                    await trio.sleep(self._random.random() / 50)
                await to.send_all(data)
        scope.cancel()

    async def _say_again(self, said: bytes) -> None:
        with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(0.2):
            async with await trio.open_tcp_stream("127.0.0.1", self._to) as far:
                await far.send_all(said)
                await far.receive_some()


@asynccontextmanager
async def chaos(seed: int, to: int) -> AsyncIterator[Chaos]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = Chaos(seed, to)
    proxy.port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, proxy.serve, [listener])
        yield proxy
        nursery.cancel_scope.cancel()
