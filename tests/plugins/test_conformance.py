"""Every plugin that comes along holds the contract, as `shipper.testing` judges it. A new one needs a case here."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded

from shipper.plugin import (
    Asyncio,
    Batch,
    Credential,
    CredentialId,
    Endpoint,
    Held,
    Input,
    Later,
    Output,
    OutputContext,
    Size,
)
from shipper.plugin.state import Version, digest_of
from shipper.sdk.endpoints import Scheme
from shipper.testing import (
    RecordingInputContext,
    check_close,
    check_input,
    check_output,
    check_processor,
    check_stage,
    check_state_input,
    open_destination,
)
from shipper_plugins.console import ConsoleOutput
from shipper_plugins.elasticsearch.input import ElasticsearchInput
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
from shipper_plugins.file.input import FileInput
from shipper_plugins.file.output import FileOutput
from shipper_plugins.generate import GenerateInput
from shipper_plugins.http.input import HttpInput
from shipper_plugins.journald.input import JournaldInput
from shipper_plugins.kafka.output import KafkaOutput, Sasl
from shipper_plugins.otlp import grpc, protobuf
from shipper_plugins.otlp.input import OtlpInput
from shipper_plugins.otlp.model import Group, Record
from shipper_plugins.otlp.output import OtlpOutput
from shipper_plugins.relay.input import Edge, RelayInput
from shipper_plugins.relay.output import RelayOutput
from shipper_plugins.state.input import StateInput
from shipper_plugins.syslog.input import SyslogInput
from tests.plugins.journald.journal import journal
from tests.plugins.kafka.broker import open_cluster
from tests.plugins.processors.test_processor_batches import CASES
from tests.plugins.relay.pair import KEYS, principal

KEY = Credential.parse({"api_key": "conformance:a-secret-of-the-test"})
BEARER = Credential.parse({"bearer_token": "a-secret-of-the-test"})
LINES = Batch.lines(b'first line\n{"n": 1}\nlast line of all\n', offset=0, shared={"host": {"name": "web-1"}})
BATCH = replace(LINES, origin=b"0123456789abcdef", seq=7)
LARGE = replace(
    Batch.documents([b'{"n":"%s"}' % os.urandom(1 << 20).hex().encode() for _ in range(4)]), origin=BATCH.origin, seq=8
)
STATE = Batch.documents([b'{"message":"text of a document"}', b"{}"]).with_columns(
    versions=[
        Version("", "inventory", "web-1", 7, digest_of(b'{"message":"text of a document"}'), False),
        Version("", "inventory", "web-2", 8, digest_of(None), True),
    ]
)

Case = Callable[[Asyncio, Path], Any]


def of(kind: str) -> list[str]:
    """The types that come along."""
    return sorted(
        entry.name for entry in entry_points(group=f"shipper.{kind}") if entry.dist and entry.dist.name == "shipper"
    )


# -- inputs ------------------------------------------------------------------------------------------------------------


async def check_file(aio: Asyncio, path: Path) -> type[Input]:
    (path / "a.log").write_bytes(b"".join(b"line %d\n" % number for number in range(20)))
    await check_input(FileInput(paths=(str(path / "*.log"),)), 20)
    return FileInput


async def check_journald(aio: Asyncio, path: Path) -> type[Input]:
    with journal() as running:
        running.log(0, 20)
        await check_input(JournaldInput(namespace=running.namespace, identifiers=("test",)), 20)
    return JournaldInput


async def check_state(aio: Asyncio, path: Path) -> type[Input]:
    documents = {f"web-{number}": b'{"n":%d}' % number for number in range(20)}
    for key, document in documents.items():
        (path / f"{key}.json").write_bytes(document)
    await check_state_input(StateInput(paths=(str(path / "*.json"),), collection="inventory"), documents)
    return StateInput


async def check_generate(aio: Asyncio, path: Path) -> type[Input]:
    await check_input(GenerateInput(count=20, bytes=10), 20)
    return GenerateInput


async def check_receiver(aio: Asyncio, path: Path) -> type[Input]:
    body = b"".join(b'{"create":{}}\n{"message":"line %d"}\n' % number for number in range(5))
    head = f"POST /_bulk HTTP/1.1\r\nHost: localhost\r\nAuthorization: {KEY.authorization()}\r\n"
    head += f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    await check_input(
        ElasticsearchInput(address="127.0.0.1:0", credentials=("key",)),
        5,
        context=lambda stored: RecordingInputContext(positions=stored, credentials={"key": KEY}, aio=aio),
        feed=asking(head.encode() + body),
        resumes=False,
    )
    return ElasticsearchInput


def asking(request: bytes) -> Callable[[RecordingInputContext], Awaitable[None]]:
    """A client that sends a request, and sends it again if it was cut off, until something is stored."""

    async def feed(context: RecordingInputContext) -> None:
        while not context.count:
            with suppress(OSError, trio.BrokenResourceError):
                async with await trio.open_tcp_stream(*await address(context, "tcp")) as stream:
                    await stream.send_all(request)
                    with trio.move_on_after(0.1):
                        while not context.count and await stream.receive_some():
                            pass
            await trio.sleep(0.01)

    return feed


def over_http(body: bytes) -> bytes:
    head = f"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nAuthorization: {BEARER.authorization()}\r\n"
    head += f"Content-Type: application/x-protobuf\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def over_grpc(body: bytes) -> bytes:
    client = H2Connection()
    client.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", grpc.PATH)]
    headers += [("content-type", grpc.CONTENT_TYPE), ("authorization", BEARER.authorization())]
    client.send_headers(1, headers)
    client.send_data(1, grpc.framed(body), end_stream=True)
    return client.data_to_send()


async def check_otlp_receiver(aio: Asyncio, path: Path) -> type[Input]:
    body = protobuf.encoded([Group(records=[Record(body=f"line {number}") for number in range(5)])])

    for protocol, send in (("http", over_http), ("grpc", over_grpc)):
        await check_input(
            OtlpInput(**{"grpc": None, "http": None, protocol: "127.0.0.1:0", "credentials": ("key",)}),  # type: ignore[arg-type]
            5,
            context=lambda stored: RecordingInputContext(positions=stored, credentials={"key": BEARER}),
            feed=asking(send(body)),
            key=lambda event: str(event["body"]),
            resumes=False,
        )
    return OtlpInput


async def check_http_receiver(aio: Asyncio, path: Path) -> type[Input]:
    body = b"".join(b'{"message":"line %d"}\n' % number for number in range(5))
    request = (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
        b"Authorization: %b\r\nContent-Length: %d\r\n\r\n%b" % (BEARER.authorization().encode(), len(body), body)
    )

    await check_input(
        HttpInput(address="127.0.0.1:0", credentials=(CredentialId("key"),)),
        5,
        context=lambda stored: RecordingInputContext(positions=stored, credentials={"key": BEARER}),
        feed=asking(request),
        resumes=False,
    )
    return HttpInput


async def check_relay_door(aio: Asyncio, path: Path) -> type[Input]:
    batch = replace(Batch.documents([b'{"message":"line %d"}' % n for n in range(5)]), origin=b"o" * 16, seq=1)

    async def feed(context: RecordingInputContext) -> None:
        host, port = await address(context, "tcp")
        output = RelayOutput(name="berlin", hosts=(f"http://{host}:{port}",), credential=CredentialId("key"))
        async with output.open(OutputContext("principal", aio, {CredentialId("key"): KEY})) as sender:
            while not context.count:
                with suppress(Later, Held):
                    await sender.send(batch)
                await trio.sleep(0.01)

    await check_input(
        RelayInput(address="127.0.0.1:0", edges={"berlin": Edge(credentials=(CredentialId("key"),), relays=True)}),
        5,
        context=lambda stored: RecordingInputContext(positions=stored, credentials={"key": KEY}, aio=aio),
        feed=feed,
    )
    return RelayInput


async def check_syslog(aio: Asyncio, path: Path) -> type[Input]:
    messages = [b"<13>su: message %d" % number for number in range(5)]

    async def over_tcp(context: RecordingInputContext) -> None:
        async with await trio.open_tcp_stream(*await address(context, "tcp")) as stream:
            await stream.send_all(b"\n".join(messages) + b"\n")
            await context.wait_for(len(messages))

    async def over_udp(context: RecordingInputContext) -> None:
        with trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for message in messages:  # once: the socket is bound, and has room for them
                await sender.sendto(message, await address(context, "udp"))

    for scheme, feed in (("tcp", over_tcp), ("udp", over_udp)):
        await check_input(SyslogInput(addresses=(f"{scheme}://127.0.0.1:0",)), 5, feed=feed, resumes=False)
    return SyslogInput


async def address(context: RecordingInputContext, scheme: Scheme) -> tuple[str, int]:
    """Where an input listens."""
    host, port = (await context.listen(Endpoint(scheme, "127.0.0.1"))).getsockname()
    return host, port


INPUTS: dict[str, Case] = {
    "elasticsearch": check_receiver,
    "file": check_file,
    "generate": check_generate,
    "http": check_http_receiver,
    "journald": check_journald,
    "otlp": check_otlp_receiver,
    "relay": check_relay_door,
    "state": check_state,
    "syslog": check_syslog,
}


@pytest.mark.parametrize("type", of("inputs"))
async def test_an_input_holds_the_contract(type: str, aio: Asyncio, tmp_path: Path) -> None:
    assert type in INPUTS, "give this input a case in INPUTS"
    assert await INPUTS[type](aio, tmp_path) is found("inputs", type)


# -- processors --------------------------------------------------------------------------------------------------------


MAKE_PARTS = {"route"}
"""Of those that are not opened."""


async def test_a_processor_holds_the_contract() -> None:
    for type in of("processors"):
        own = [case.processor for case in CASES.values() if isinstance(case.processor, found("processors", type))]
        assert own, "give this processor a case in test_processor_batches.py"
        for processor in own:
            if processor.is_stage or type in MAKE_PARTS:
                await check_stage(processor, [BATCH, replace(BATCH, seq=8)])
            else:
                check_processor(processor, BATCH)


# -- outputs -----------------------------------------------------------------------------------------------------------


async def check_bulk(aio: Asyncio, path: Path) -> type[Output]:
    context = OutputContext("main", aio, {"key": KEY})
    async with open_destination(aio, keys={KEY}) as destination:
        output = ElasticsearchOutput(hosts=(destination.url,), credential=CredentialId("key"))
        await check_output(output, context, [BATCH, Batch.documents([])])
        await check_output(output, context, [STATE, STATE])
    await check_close(
        lambda host, port: ElasticsearchOutput(hosts=(f"http://{host}:{port}",), credential=CredentialId("key")),
        context,
        LARGE,
    )
    return ElasticsearchOutput


async def check_file_output(aio: Asyncio, path: Path) -> type[Output]:
    context = OutputContext("main", aio)
    await check_output(FileOutput(path=str(path / "out.ndjson")), context, [BATCH])
    await check_output(FileOutput(directory=str(path / "state")), context, [STATE])
    return FileOutput


CONSOLE = """
import trio
from shipper.plugin import OutputContext
from shipper.sdk.aio import open_asyncio
from shipper.testing import check_output
from tests.plugins.test_conformance import BATCH, ConsoleOutput

async def main():
    async with open_asyncio() as aio:
        await check_output(ConsoleOutput(), OutputContext("main", aio), [BATCH])

trio.run(main)
"""


async def check_console(aio: Asyncio, path: Path) -> type[Output]:
    """In a process of its own: a thread that a cancel has left behind may write to the standard error at any time."""
    done = await trio.run_process([sys.executable, "-c", CONSOLE], capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return ConsoleOutput


async def answer_grpc(stream: trio.SocketStream) -> None:
    """A receiver that takes all."""
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    while block := await stream.receive_some():
        for event in server.receive_data(bytes(block)):
            if isinstance(event, DataReceived) and event.stream_id and event.flow_controlled_length:
                server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if isinstance(event, StreamEnded) and event.stream_id:
                server.send_headers(event.stream_id, [(":status", "200"), ("content-type", grpc.CONTENT_TYPE)])
                server.send_data(event.stream_id, grpc.framed(b""))
                server.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
        await stream.send_all(server.data_to_send())


async def answer_http(stream: trio.SocketStream) -> None:
    server = h11.Connection(h11.SERVER)
    while block := await stream.receive_some():
        server.receive_data(bytes(block))
        while (event := server.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.EndOfMessage):
                await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                server = h11.Connection(h11.SERVER)


async def check_otlp(aio: Asyncio, path: Path) -> type[Output]:
    """Its end is in test_output_otlp.py."""
    context = OutputContext("main", aio, {"key": BEARER})

    async def quietly(answer: Callable[[trio.SocketStream], Awaitable[None]], stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                await answer(stream)

    for protocol, answer in (("grpc", answer_grpc), ("http", answer_http)):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, partial(quietly, answer), listeners)
            port = listeners[0].socket.getsockname()[1]
            output = OtlpOutput(endpoint=f"http://127.0.0.1:{port}", protocol=protocol, credential="key")  # type: ignore[arg-type]
            await check_output(output, context, [BATCH])
            nursery.cancel_scope.cancel()
    return OtlpOutput


async def check_kafka(aio: Asyncio, path: Path) -> type[Output]:
    secret = CredentialId("login")
    login = Credential.parse({"username": "shipper", "password": "a-secret-of-the-test"})
    context = OutputContext("main", aio, {secret: login})
    sasl = Sasl(mechanism="PLAIN", credential=secret)
    async with open_cluster(aio, "events") as (port, appended):
        output = KafkaOutput(hosts=(f"127.0.0.1:{port}",), topic="events", compression="none", sasl=sasl)
        await check_output(output, context, [BATCH])
        assert b"last line of all" in appended[0]
    await check_close(
        lambda host, port: KafkaOutput(hosts=(f"{host}:{port}",), topic="events", request_max_bytes=Size(16 << 20)),
        context,
        LARGE,
    )
    return KafkaOutput


async def check_relay(aio: Asyncio, path: Path) -> type[Output]:
    context = OutputContext("principal", aio, {CredentialId("k1"): KEYS[CredentialId("k1")]})

    def output_to(host: str, port: int) -> RelayOutput:
        return RelayOutput(name="berlin", hosts=(f"http://{host}:{port}",), credential=CredentialId("k1"))

    async with principal(aio) as door:
        await check_output(output_to("127.0.0.1", int(door.url.rpartition(":")[2])), context, [BATCH])
        assert door.events[-1]["message"] == "last line of all"
    await check_close(output_to, context, LARGE)
    return RelayOutput


OUTPUTS: dict[str, Case] = {
    "console": check_console,
    "elasticsearch": check_bulk,
    "file": check_file_output,
    "otlp": check_otlp,
    "kafka": check_kafka,
    "relay": check_relay,
}


@pytest.mark.parametrize("type", of("outputs"))
async def test_an_output_holds_the_contract(type: str, aio: Asyncio, tmp_path: Path) -> None:
    assert type in OUTPUTS, "give this output a case in OUTPUTS"
    assert await OUTPUTS[type](aio, tmp_path) is found("outputs", type)


def found(kind: str, type: str) -> Any:
    (entry,) = entry_points(group=f"shipper.{kind}", name=type)
    return entry.load()
