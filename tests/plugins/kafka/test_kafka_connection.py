"""A connection to a broker that is scripted: answers that throttle, come late, or are none."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import trio
from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v5

from shipper.plugin import Asyncio, Code, Credential, Held, Later, NotBegun
from shipper_plugins.kafka import answers as codes
from shipper_plugins.kafka import client as kafka_client
from shipper_plugins.kafka.client import Client
from shipper_plugins.kafka.connection import Access, Lost, connect
from tests.plugins.kafka.broker import HANDSHAKE, VERSIONS, Answer, metadata, open_broker

PASSWORD = Credential.parse({"username": "ann", "password": "of-the-test"})
Brokers = list[tuple[int, str, int, None]]
Result = TypeVar("Result")


def access_to(aio: Asyncio, **settings: Any) -> Access:
    plain = Access(aio, None, None, None, None, 2.0, trio.lowlevel.checkpoint, lambda: True)
    return replace(plain, **settings)


class Broker:
    """A scripted broker, as those who ask it see it; made by `broker`."""

    def __init__(self, access: Access, port: int) -> None:
        self.access, self.address = access, ("127.0.0.1", port)

    async def asked(self) -> object:
        """The answer to a question for the metadata of no topic, over a connection of its own."""

        async def run() -> object:
            connection = await connect(self.address, self.access)
            try:
                return await connection.request(MetadataRequest_v5([], False))
            finally:
                connection.abort()

        return await self.access.aio.call(run)

    async def by_client(self, use: Callable[[Client], Awaitable[Result]]) -> Result:
        """What comes of the use of a client of it."""

        async def run() -> Result:
            client = Client([self.address], self.access)
            try:
                return await use(client)
            finally:
                await client.close()

        return await self.access.aio.call(run)


@asynccontextmanager
async def broker(aio: Asyncio, said: Answer | bytes | None, *versions: bytes, **settings: Any) -> AsyncIterator[Broker]:
    """A broker that always says this, or answers so; to the settings of who asks it."""

    async def answer(key: int, text: bytes) -> bytes | None:
        return await said(key, text) if callable(said) else said

    async with open_broker(aio, answer, *versions) as port:
        access = access_to(aio, **settings)
        try:
            yield Broker(access, port)
        finally:
            await aio.call(access.closed)


async def test_an_answer_is_read(aio: Asyncio) -> None:
    async with broker(aio, metadata()) as asking:
        assert isinstance(await asking.asked(), MetadataResponse_v5)


async def test_a_request_without_an_answer_is_lost(aio: Asyncio) -> None:
    async with broker(aio, None) as asking:
        with pytest.raises(Lost) as lost:
            await asking.asked()
    assert lost.value.code == Code.NO_ANSWER


async def test_an_answer_that_takes_too_long_is_lost(aio: Asyncio) -> None:
    async def answer(key: int, text: bytes) -> None:
        await asyncio.sleep(60)

    async with broker(aio, answer, seconds=0.5) as asking:
        with pytest.raises(Lost) as lost:
            await asking.asked()
    assert lost.value.code == Code.TIMED_OUT


@pytest.mark.parametrize("said", [b"", b"\x00", b"\x7f" * 40, metadata()[:-1]])
async def test_an_answer_that_is_not_kafkas_is_lost(aio: Asyncio, said: bytes) -> None:
    async with broker(aio, said) as asking:
        with pytest.raises(Lost) as lost:
            await asking.asked()
    assert lost.value.code == Code.BAD_ANSWER


async def test_an_old_broker_is_held(aio: Asyncio) -> None:
    old = struct.pack(">hi", 0, 1) + struct.pack(">hhh", 0, 0, 2)
    async with broker(aio, metadata(), old) as asking:
        with pytest.raises(Held, match="or newer"):
            await asking.asked()


@pytest.mark.parametrize("code", [-1, 4242])
@pytest.mark.parametrize("to", [VERSIONS, HANDSHAKE])
async def test_an_unknown_error_of_a_login_is_over_in_time(aio: Asyncio, to: int, code: int) -> None:
    """Also one that comes without what a broker offers, which is null then."""
    nulls = struct.pack(">hi", code, -1)
    versions = [nulls] if to == VERSIONS else []
    async with broker(aio, nulls, *versions, mechanism="PLAIN", credential=PASSWORD) as asking:
        with pytest.raises(Later) as later:
            await asking.asked()
    assert codes.name(code) in str(later.value)


async def test_a_leader_without_an_address_is_not_available(aio: Asyncio) -> None:
    async def ask(client: Client) -> int:
        await client.places(["t"])
        return await client.ask_to_write("t")

    topic = (0, "t", False, [(0, 0, 1, [1], [1], [])])
    async with broker(aio, bytes(MetadataResponse_v5(0, [], "c", 1, [topic]).encode())) as asking:
        assert await asking.by_client(ask) == codes.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("host", "mechanism", "is_admitted"),
    [("10.99.0.1", "PLAIN", False), ("kafka-2", "PLAIN", False), ("kafka-2", "SCRAM-SHA-512", True)],
)
async def test_a_password_goes_in_clear_text_to_no_broker_of_another_host(
    aio: Asyncio, host: str, mechanism: str, *, is_admitted: bool
) -> None:
    access = access_to(aio, mechanism=mechanism)

    assert access.admits((host, 9092)) is is_admitted
    assert access.admits(("127.0.0.1", 9092))
    assert replace(access, tls=ssl.create_default_context()).admits((host, 9092))


async def test_a_broker_that_the_cluster_names_gets_no_password_in_clear_text(aio: Asyncio) -> None:
    """Only `hosts` were checked, and these name the brokers that get the records."""
    asking = Broker(access_to(aio, mechanism="PLAIN", credential=PASSWORD), 9092)
    asking.address = ("192.0.2.1", 9092)

    with pytest.raises(Held, match="in clear text"):
        await asking.asked()


@pytest.mark.parametrize(
    ("host", "port"),
    [("a..b", 9092), ("a\0b", 9092), ("", 9092), ("a" * 64, 9092), ("kafka-2", 0), ("kafka-2", 99999), ("a/b", 1)],
)
async def test_a_broker_with_an_address_that_cannot_be_is_not_there(aio: Asyncio, host: str, port: int) -> None:
    assert await named(aio, [(1, host, port, None)]) == {}


async def test_a_broker_that_is_no_longer_named_is_forgotten(aio: Asyncio) -> None:
    brokers = iter([[(1, "10.0.0.1", 9092, None)], [(2, "fe80::1", 9092, None), (3, "kafka-3.example.", 9092, None)]])

    assert await named(aio, *brokers) == {2: ("fe80::1", 9092), 3: ("kafka-3.example.", 9092)}


async def test_metadata_that_name_too_many_brokers_are_a_bad_answer(aio: Asyncio) -> None:
    with pytest.raises(Later) as bad:
        await named(aio, [(n, f"kafka-{n}", 9092, None) for n in range(kafka_client.MOST_BROKERS + 1)])

    assert bad.value.code == Code.BAD_ANSWER


async def named(aio: Asyncio, *brokers: Brokers) -> dict[int, tuple[str, int]]:
    """The brokers that a client knows after it was told of these, one after the other."""
    said = iter(brokers)

    async def answer(key: int, text: bytes) -> bytes:
        return bytes(MetadataResponse_v5(0, next(said), "c", 1, []).encode())

    async def ask(client: Client) -> dict[int, tuple[str, int]]:
        for _ in brokers:
            await client.places(["t"])
        return client._brokers

    async with broker(aio, answer) as asking:
        return await asking.by_client(ask)


async def test_few_connections_are_made_at_once(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may wait for a name; a cluster that names hundreds of brokers would take the resolver from all outputs."""
    now = most = 0

    async def hang(*_: object) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(10):
            await asyncio.sleep(0)
        now -= 1
        raise Later("nobody is there")

    async def run() -> None:
        client = Client([], access_to(aio))
        await asyncio.gather(*(client._connection((f"k{n}", 1)) for n in range(50)), return_exceptions=True)

    monkeypatch.setattr(kafka_client, "connect", hang)
    await aio.call(run)

    assert most == kafka_client.MOST_CONNECTING


async def test_a_broker_that_throttles_is_left_alone_for_so_long(aio: Asyncio) -> None:
    times: list[float] = []
    throttles = iter([300, 5000, 0])

    async def answer(key: int, text: bytes) -> bytes:
        times.append(time.monotonic())
        return metadata(next(throttles))

    async def ask(client: Client) -> None:
        for _ in range(3):
            await client.places(["t"])

    async with broker(aio, answer) as asking:
        with pytest.raises(Later) as later:
            await asking.by_client(ask)
    assert len(times) == 2
    assert times[1] - times[0] >= 0.29
    assert later.value.code == Code.OVERLOADED
    assert 4 < (later.value.retry_after or 0) <= 5


async def test_an_answer_of_nulls_names_no_topic(aio: Asyncio) -> None:
    async with broker(aio, b"\xff" * 40) as asking:
        places, refused = await asking.by_client(lambda client: client.places(["t"]))
    assert (places, set(refused)) == ({}, {"t"})


async def test_a_flood_of_topics_is_not_remembered(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(client: Client) -> int:
        for n in range(50):
            await client.places([f"{n}-{m}" for m in range(10)])
        return len(client._topics)

    monkeypatch.setattr(kafka_client, "MOST_TOPICS", 100)
    async with broker(aio, metadata()) as asking:
        assert await asking.by_client(ask) <= 110


async def test_nothing_is_written_when_nothing_may_begin(aio: Asyncio) -> None:
    may = [True, True, False]
    async with broker(aio, metadata(), may_begin=lambda: may.pop(0)) as asking:
        with pytest.raises(NotBegun):
            await asking.asked()
        assert not may
