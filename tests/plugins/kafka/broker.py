"""A broker that is scripted: it speaks Kafka's framing on loopback, and a test says what it answers."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from itertools import count
from typing import Any

from aiokafka.protocol.admin import SaslAuthenticateResponse_v1, SaslHandShakeResponse_v1
from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.produce import ProduceRequest_v8, ProduceResponse_v8
from aiokafka.protocol.transaction import InitProducerIdResponse_v0
from aiokafka.protocol.types import String
from aiokafka.record.memory_records import MemoryRecords

from shipper.plugin import Asyncio

PRODUCE, METADATA, HANDSHAKE, VERSIONS, PRODUCER_ID, AUTHENTICATE = 0, 3, 17, 18, 22, 36
_SPANS = {PRODUCE: (3, 13), METADATA: (0, 13), HANDSHAKE: (0, 1), VERSIONS: (0, 4), PRODUCER_ID: (0, 5)}
_SPANS[AUTHENTICATE] = (0, 2)
_OFFERED = struct.pack(">hi", 0, len(_SPANS)) + b"".join(
    struct.pack(">hhh", key, *span) for key, span in _SPANS.items()
)

Answer = Callable[[int, bytes], Awaitable[bytes | None]]
"""From the key of a request and its text; None closes the connection."""


@asynccontextmanager
async def open_broker(
    aio: Asyncio, answer: Answer, offered: bytes = _OFFERED, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Yields its port on loopback; `offered` is what it answers of the versions that it speaks."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                text = await reader.readexactly(size)
                key, _, number = struct.unpack_from(">hhi", text)
                said = offered if key == VERSIONS else await answer(key, text)
                if said is None:
                    break
                writer.write(struct.pack(">ii", len(said) + 4, number) + said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)

    async def stop() -> None:
        server.close()

    server = await aio.call(start)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await aio.call(stop)


def metadata(throttle_ms: int = 0) -> bytes:
    """Of a cluster without brokers and topics."""
    return bytes(MetadataResponse_v5(throttle_ms, [], "c", 1, []).encode())


class Cluster:
    """What one broker answers that has one topic of one partition, and takes every login and every record batch.

    But the first of these are answered with the codes of `refusals`, or, for None, by the end of the connection.
    """

    def __init__(self, topic: str, refusals: Sequence[int | None] = ()) -> None:
        self.port = 0
        self.appended: list[bytes] = []
        """The texts of the requests by which records were taken."""
        self._topic = topic
        self._producers, self._refused = count(7), iter(refusals)

    async def answer(self, key: int, text: bytes) -> bytes | None:
        """See `Answer`."""
        match key:
            case _ if key == PRODUCER_ID:
                return bytes(InitProducerIdResponse_v0(0, 0, next(self._producers), 0).encode())
            case _ if key == METADATA:
                return _one_topic(self.port, self._topic)
            case _ if key == HANDSHAKE:
                return bytes(SaslHandShakeResponse_v1(0, ["PLAIN"]).encode())
            case _ if key == AUTHENTICATE:
                return bytes(SaslAuthenticateResponse_v1(0, None, b"", 0).encode())
        code = next(self._refused, 0)
        if code is None:
            return None
        if code == 0:
            self.appended.append(text)
        return bytes(ProduceResponse_v8([(self._topic, [(0, code, len(self.appended), -1, 0, [], None)])], 0).encode())


@asynccontextmanager
async def open_cluster(
    aio: Asyncio, topic: str, tls: ssl.SSLContext | None = None, refusals: Sequence[int | None] = ()
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A `Cluster`. Yields its port, and the texts of the requests by which records were taken."""
    cluster = Cluster(topic, refusals)
    async with open_broker(aio, cluster.answer, tls=tls) as cluster.port:
        yield cluster.port, cluster.appended


def _one_topic(port: int, topic: str) -> bytes:
    partition = (0, 0, 1, [1], [1], [])
    brokers = [(1, "127.0.0.1", port, None)]
    return bytes(MetadataResponse_v5(0, brokers, "c", 1, [(0, topic, False, [partition])]).encode())


def values(text: bytes) -> list[bytes]:
    """The values of the records in the text of a request."""
    return [bytes(record.value) for batch in _batches(text) for record in batch]


def producers(text: bytes) -> set[int]:
    """The ids of the producers of the record batches in the text of a request."""
    return {batch.producer_id for batch in _batches(text)}


def _batches(text: bytes) -> Iterator[Any]:
    stream = BytesIO(text[8:])
    String("utf-8").decode(stream)
    *_, topics = ProduceRequest_v8.SCHEMA.decode(stream)
    for batches in [MemoryRecords(data) for _, partitions in topics for _, data in partitions]:
        while batches.has_next():
            yield batches.next_batch()
