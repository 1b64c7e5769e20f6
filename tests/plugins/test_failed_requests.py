"""A request that fails is freed at once, with its error: until the collector of cycles came, each kept a body."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from shipper.plugin import Asyncio, Batch, CredentialId, Duration, OutputContext, Sender, Size
from shipper.sdk.connection import RESET
from shipper_demo.ports import free_port
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
from shipper_plugins.file.output import FileOutput
from shipper_plugins.kafka.output import KafkaOutput
from shipper_plugins.otlp.output import OtlpOutput
from shipper_plugins.otlp.status import Grpc
from shipper_plugins.relay import frames
from shipper_plugins.relay.output import RelayOutput
from tests.freed import Failed, cancelled, failed
from tests.plugins.kafka.broker import METADATA, PRODUCE, PRODUCER_ID, Cluster, open_broker, open_cluster
from tests.plugins.otlp.test_output_otlp import Receiver, Refuse, over_grpc
from tests.plugins.relay.pair import KEYS, Queue
from tests.raw_http import Talk, http, raw_server, read_request, some

_STATUSES = ["401", "413", "429", "503", "200"]
_CUTS = ["reset in the request", "reset after it", "closed after it", "silent", "unread", "not HTTP", "broken off"]
_SILENT = ("silent", "unread")


def within(what: str = "") -> Duration:
    """The time for a request; a short one only where no answer comes."""
    return Duration(0.1 if what in _SILENT else 60)


def batch(seq: int = 1) -> Batch:
    """Of 300 kB, which no compression makes small."""
    events = Batch.documents([b'{"message":"%b"}' % os.urandom(1500).hex().encode() for _ in range(100)])
    return replace(events, origin=b"0123456789abcdef", seq=seq, place=seq)


def _reset(stream: trio.SocketStream) -> None:
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    stream.socket.close()


def doing(what: str, only: bytes = b"", there: trio.Event | None = None) -> Talk:
    """A server that does this with requests whose head has `only`, and answers others by `_WELCOME`.

    `there` is set when such a request has come.
    """

    async def talk(stream: trio.SocketStream) -> None:
        while True:
            if only:
                request = await read_request(stream)
                if only not in request.partition(b"\r\n")[0]:
                    await stream.send_all(http(_WELCOME))
                    continue
            elif what in ("unread", "reset in the request", "not TLS"):
                await some(stream)
            else:
                await read_request(stream)
            if there is not None:
                there.set()
            if not await _done(what, stream):
                return

    return talk


async def _done(what: str, stream: trio.SocketStream) -> bool:
    """Whether the connection goes on."""
    match what:
        case "reset in the request" | "reset after it":
            _reset(stream)
        case "closed after it":
            pass
        case "silent" | "unread":
            await trio.sleep_forever()
        case "not HTTP" | "not TLS":
            await stream.send_all(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        case "broken off":
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nxx")
        case status:
            await stream.send_all(http(b"{}", f"{status} Status"))
            return True
    return False


_WELCOME = msgspec.json.encode(
    frames.Welcome(
        protocol=frames.PROTOCOL,
        generation=frames.Generation("0" * 32, 0),
        edge="berlin",
        acknowledge="stored",
        heartbeat=60,
        max_part_bytes=4 << 20,
        lineage="0" * 32,
    )
)

Make = Callable[[str, Duration], Any]
OUTPUTS: dict[str, Make] = {
    "elasticsearch": lambda host, within: ElasticsearchOutput(hosts=(host,), compression="none", timeout=within),
    "elasticsearch of two hosts": lambda host, within: ElasticsearchOutput(hosts=(host, f"{host}/b"), timeout=within),
    "otlp over grpc": lambda host, within: OtlpOutput(endpoint=host, compression="none", timeout=within),
    "otlp over http": lambda host, within: OtlpOutput(
        endpoint=host, protocol="http", compression="none", timeout=within
    ),
    "relay": lambda host, within: RelayOutput(
        name="berlin", hosts=(host,), credential=CredentialId("k1"), timeout=within
    ),
}
all_outputs = pytest.mark.parametrize("kind", OUTPUTS)


@asynccontextmanager
async def opened(aio: Asyncio, kind: str, host: str, what: str = "", **of_context: Any) -> AsyncIterator[Sender]:
    context = Queue().context(aio) if kind == "relay" else OutputContext("main", aio, KEYS)
    async with OUTPUTS[kind](host, within(what)).open(replace(context, **of_context)) as sender:
        yield sender


async def sent(aio: Asyncio, sender: Sender) -> Failed:
    return await failed(lambda: sender.send(batch()), aio)


def is_freed(ended: Failed, error: str = "") -> None:
    assert error in ended.error
    assert ended.error
    assert not ended.left


@all_outputs
async def test_where_nobody_listens(aio: Asyncio, kind: str) -> None:
    async with opened(aio, kind, f"http://127.0.0.1:{free_port()}") as sender:
        is_freed(await sent(aio, sender), "Unreachable")


@all_outputs
async def test_where_a_name_is_not_found(aio: Asyncio, kind: str) -> None:
    async with opened(aio, kind, "http://nobody.invalid:9200") as sender:
        is_freed(await sent(aio, sender), "Unreachable")


@all_outputs
async def test_where_a_server_speaks_no_tls(aio: Asyncio, kind: str) -> None:
    async with raw_server(doing("not TLS")) as url, opened(aio, kind, url.replace("http:", "https:")) as sender:
        is_freed(await sent(aio, sender), "Unreachable")


@all_outputs
async def test_where_nothing_may_begin(aio: Asyncio, kind: str) -> None:
    async with (
        raw_server(doing("503")) as url,
        opened(aio, kind, url, may_begin=lambda: False) as sender,
    ):
        is_freed(await sent(aio, sender), "NotBegun")


@all_outputs
async def test_where_a_server_gives_no_answer(aio: Asyncio, kind: str) -> None:
    for what in _CUTS:
        async with raw_server(doing(what)) as url, opened(aio, kind, url, what) as sender:
            is_freed(await sent(aio, sender))


@pytest.mark.parametrize("kind", [kind for kind in OUTPUTS if kind != "otlp over grpc"])
async def test_where_a_server_refuses(aio: Asyncio, kind: str) -> None:
    for status in _STATUSES:
        async with raw_server(doing(status)) as url, opened(aio, kind, url) as sender:
            ended = await sent(aio, sender)

        is_success = (kind, status) == ("otlp over http", "200")
        assert ended.error or is_success or status == "413"  # a single event that is too large is an answer
        assert not ended.left


@pytest.mark.parametrize("code", [Grpc.UNAUTHENTICATED, Grpc.UNAVAILABLE, Grpc.RESOURCE_EXHAUSTED])
async def test_where_a_receiver_of_grpc_refuses(aio: Asyncio, code: Grpc) -> None:
    def refuse(bodies: list[Any]) -> int:
        raise Refuse(code)

    with over_grpc(Receiver(refuse)) as port:
        async with opened(aio, "otlp over grpc", f"http://127.0.0.1:{port}") as sender:
            is_freed(await sent(aio, sender))


@all_outputs
@pytest.mark.parametrize("what", ["silent", "unread"])
async def test_where_the_request_is_cancelled(aio: Asyncio, kind: str, what: str) -> None:
    there = trio.Event()
    async with raw_server(doing(what, there=there)) as url, opened(aio, kind, url) as sender:
        ended = await failed(lambda: cancelled(partial(sender.send, batch()), there), aio)

    assert not ended.left


async def test_where_a_principal_fails_within_a_session(aio: Asyncio) -> None:
    for what in [*_CUTS, *_STATUSES]:
        there = trio.Event()
        async with raw_server(doing(what, b"/parts", there)) as url, opened(aio, "relay", url, what) as sender:
            ended = await sent(aio, sender)

        assert there.is_set() or what in _SILENT  # the time may be over before it
        is_freed(ended)


async def test_where_a_batch_is_larger_than_a_request(aio: Asyncio) -> None:
    with over_grpc(Receiver()) as port:
        output = OtlpOutput(endpoint=f"http://127.0.0.1:{port}", request_max_bytes=Size(100_000))
        async with output.open(OutputContext("main", aio, {})) as sender:
            ended = await sent(aio, sender)

    assert not ended.left


async def test_where_a_file_cannot_be_written(aio: Asyncio, tmp_path: Path) -> None:
    output = FileOutput(path=str(tmp_path / "no" / "events.log"))
    async with output.open(OutputContext("main", aio, {})) as sender:
        is_freed(await sent(aio, sender), "Later")


# -- Kafka -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def kafka(aio: Asyncio, port: int, what: str = "", **of_context: Any) -> AsyncIterator[Sender]:
    output = KafkaOutput(hosts=(f"127.0.0.1:{port}",), topic="shop", compression="none", timeout=within(what))
    async with output.open(OutputContext("main", aio, {}, **of_context)) as sender:
        yield sender


async def test_where_no_broker_listens(aio: Asyncio) -> None:
    async with kafka(aio, free_port()) as sender:
        is_freed(await sent(aio, sender), "refused")


async def test_where_no_request_to_a_broker_may_begin(aio: Asyncio) -> None:
    async with open_cluster(aio, "shop") as (port, _), kafka(aio, port, may_begin=lambda: False) as sender:
        is_freed(await sent(aio, sender), "NotBegun")


@pytest.mark.parametrize("key", [METADATA, PRODUCER_ID, PRODUCE])
@pytest.mark.parametrize("what", ["closed", "silent"])
async def test_where_a_broker_gives_no_answer(aio: Asyncio, key: int, what: str) -> None:
    async with broker_failing(aio, key, what) as (port, _), kafka(aio, port, what) as sender:
        is_freed(await sent(aio, sender))


async def test_where_records_to_a_broker_are_cancelled(aio: Asyncio) -> None:
    async with broker_failing(aio, PRODUCE, "silent") as (port, there), kafka(aio, port) as sender:
        ended = await failed(lambda: cancelled(partial(sender.send, batch()), there), aio)

    assert not ended.left


async def test_where_a_broker_refuses_records(aio: Asyncio) -> None:
    not_enough_replicas = 19
    async with open_cluster(aio, "shop", refusals=[not_enough_replicas]) as (port, _), kafka(aio, port) as sender:
        ended = await sent(aio, sender)

    assert not ended.left


@asynccontextmanager
async def broker_failing(aio: Asyncio, key: int, what: str) -> AsyncIterator[tuple[int, trio.Event]]:
    """Yields the port of a broker that gives no answer to requests of this key, and what is set when one has come."""
    there, loop = trio.Event(), trio.lowlevel.current_trio_token()

    async def answer(asked: int, text: bytes) -> bytes | None:
        if asked != key:
            return await cluster.answer(asked, text)
        loop.run_sync_soon(there.set)
        if what == "silent":
            await over.wait()
        return None

    async def end() -> None:
        over.set()

    over = asyncio.Event()
    cluster = Cluster("shop")
    async with open_broker(aio, answer) as cluster.port:
        yield cluster.port, there
        await aio.call(end)
