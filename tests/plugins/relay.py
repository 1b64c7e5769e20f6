"""A door of a relay and senders to it, in one process, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio

from shipper.plugin import Asyncio, Batch, Credential, CredentialId, Endpoint, Fields, OutputContext, Sender
from shipper.testing import RecordingInputContext
from shipper_plugins.inputs.relay import Edge, RelayInput
from shipper_plugins.outputs.relay import RelayOutput

KEYS = {
    CredentialId(id): Credential.parse({"api_key": f"{id}:a-secret-of-the-test"}) for id in ("k1", "k2", "other", "no")
}
EDGES = {"berlin": Edge(credentials=("k1", "k2")), "paris": Edge(credentials=("other",))}
ORIGIN = b"0123456789abcdef"


def entry(place: int, *numbers: int, origin: bytes = ORIGIN) -> Batch:
    """A batch as an output gets it from its queue."""
    batch = Batch.documents([b'{"n":%d}' % number for number in numbers or (place,)])
    return replace(batch, origin=origin, seq=place, place=place)


class Principal:
    """A running door; made by `principal`."""

    def __init__(self, context: RecordingInputContext, settings: RelayInput, source: Any, port: int) -> None:
        self.context, self.settings, self.source = context, settings, source
        self.url = f"http://127.0.0.1:{port}"

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
    async with trio.open_nursery() as nursery, given.open(context) as source:
        bound = (await context.listen(Endpoint("tcp", "127.0.0.1", port))).getsockname()[1]
        nursery.start_soon(source.run)
        yield Principal(context, given, source, bound)
        nursery.cancel_scope.cancel()


class Queue:
    """The lane of a sender: what it says of its lowest entry."""

    def __init__(self) -> None:
        self.lowest = 0


@asynccontextmanager
async def edge(
    aio: Asyncio, *urls: str, lane: int = 1, queue: Queue | None = None, credential: str = "k1", **settings: Any
) -> AsyncIterator[Sender]:
    """A sender to these hosts, as the edge berlin."""
    queue = queue or Queue()
    output = RelayOutput(**{"name": "berlin", "hosts": urls, "credential": CredentialId(credential), **settings})
    context = OutputContext("principal", aio, KEYS, lane=lane, lowest=lambda: queue.lowest)
    async with output.open(context) as sender:
        yield sender
