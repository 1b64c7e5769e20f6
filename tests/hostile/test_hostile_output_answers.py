"""Answers of destinations, damaged anywhere: none makes a dead letter of an event unless it soundly says so.

The core takes an unknown error of an output for the fault of some event. So each answer is read, or is one of the
errors of the contract, or leaves the events for later.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
import trio
from aiokafka.protocol.produce import ProduceResponse_v8
from aiokafka.protocol.transaction import InitProducerIdResponse_v0
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import Answers, Asyncio, Batch, Held, Later, Outcome, OutputContext, Sender, TooLarge
from shipper.plugin.state import Version, digest_of
from shipper.sdk.aio import open_asyncio
from shipper.sdk.http_answer import Response
from shipper_plugins.elasticsearch.client import bulk, encoding, keyed
from shipper_plugins.kafka.output import KafkaOutput
from shipper_plugins.otlp import jsons, protobuf, status
from shipper_plugins.otlp import output as otlp
from shipper_plugins.otlp.client import answers as otlp_answers
from shipper_plugins.otlp.grpc import framed
from shipper_plugins.otlp.model import Unfit
from shipper_plugins.otlp.output import OtlpOutput
from tests.examples import examples
from tests.hostile.frames import mutated
from tests.plugins.kafka.broker import PRODUCE, PRODUCER_ID, Cluster, open_broker

VERSIONS = [Version("", "inventory", f"k{n}", n + 1, digest_of(b"{}"), deleted=False) for n in range(3)]
(STATE,) = keyed.encode(
    Batch.documents([b"{}"] * 3).with_columns(versions=VERSIONS),
    template="state-{collection}",
    deletions="mark",
    limit=1 << 20,
    compression="none",
)
SEEDS = st.integers(0, 2**64)
BATCH = replace(Batch.lines(b"sound\n" * 3, offset=0, shared={}), origin=b"0123456789abcdef", seq=1)
ROUNDS = 150


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(120):
        async with open_asyncio() as opened:
            yield opened


# -- the bulk API ------------------------------------------------------------------------------------------------------


def says_4xx(body: bytes) -> set[int]:
    """The positions of items that a body, as any reader of JSON understands it, refuses by a status of 4xx."""
    said = json.loads(body.decode(errors="replace"), strict=False)["items"]
    statuses = [(item.get("create") or item.get("index") or item["delete"])["status"] for item in said]
    return {at for at, code in enumerate(statuses) if 400 <= code < 500}


def items(ids: Iterable[str], op: str, draw: random.Random) -> bytes:
    said = [{op: {"_id": id, "status": draw.choice((201, 200, 429, 503, 403, 404))}} for id in ids]
    return json.dumps({"errors": False, "items": said}, separators=(",", ":")).encode()


@settings(max_examples=examples(5), deadline=None)
@given(SEEDS)
def test_an_item_is_rejected_only_by_a_status_that_says_so(seed: int) -> None:
    draw = random.Random(seed)
    (request,) = encoding.encode(BATCH, index=None, limit=1 << 20, compression="none")
    body = mutated(draw, items(request.ids(), "create", draw))
    try:
        others = bulk.read(body, request)
    except Later:
        return

    assert not (refused := rejected(Answers(3, others))) or refused <= says_4xx(body)


@settings(max_examples=examples(3), deadline=None)
@given(SEEDS)
def test_a_version_is_rejected_only_by_a_status_that_says_so(seed: int) -> None:
    draw = random.Random(seed)
    body = mutated(draw, items(STATE.ids(), "index", draw))
    try:
        reading = keyed.read(body, STATE, ["x"] * 3)
    except Later:
        return

    assert not (refused := rejected(Answers(3, reading.others))) or refused <= says_4xx(body)


def rejected(answers: Answers) -> set[int]:
    return {at for at, answer in answers.others.items() if answer.outcome is Outcome.REJECTED}


# -- OTLP over HTTP ----------------------------------------------------------------------------------------------------

KINDS = ["", "application/x-protobuf", "application/json", "text/plain", "text/html"]
BODIES = [
    b"",
    b"ok",
    jsons.answer(0, ""),
    jsons.answer(2, "some"),
    protobuf.answer(2, "some"),
    status.written(3, "no", 1.5),
    status.written_as_json(3, "no"),
]


class Says:
    """Stands for a client of HTTP whose every request gets this answer."""

    def __init__(self, response: Response) -> None:
        self._response = response

    async def post(self, *_: object) -> Response:
        return self._response


@settings(max_examples=examples(5), deadline=None)
@given(SEEDS, st.sampled_from([200, 204, 202, 400, 413, 429, 500, 503, 999]), st.sampled_from(KINDS))
def test_over_http_records_are_rejected_only_by_a_receiver_of_otlp(seed: int, code: int, kind: str) -> None:
    draw = random.Random(seed)
    said = Response(code, {"Content-Type": kind, "Retry-After": "1"}, mutated(draw, draw.choice(BODIES)))
    output = OtlpOutput(protocol="http", endpoint="http://127.0.0.1:4318")

    try:
        count = trio.run(otlp._post, cast("Any", Says(said)), output, b"")
    except otlp_answers.BadData:
        assert code in (400, 500)
        assert status.is_status(said.body, kind)
    except (Later, Held, TooLarge):
        pass
    else:
        assert count == 0 or count in set(counts(said.body))


def counts(body: bytes) -> Iterable[int]:
    """What either form of an answer says of rejected records."""
    for read in (jsons.rejected, protobuf.rejected):
        try:
            yield read(body.lstrip() if read is jsons.rejected else body)
        except Unfit:
            continue


# -- OTLP over gRPC ----------------------------------------------------------------------------------------------------

STATUSES = [b"0", b"14", b"8", b"\xb2", b"", b"-1", b"99999999999", b"\xd9\xa1"]


def answer_of_h2(draw: random.Random) -> bytes:
    """The bytes of a server that answers the first request: its settings, headers, a message, trailers."""
    server = H2Connection(H2Configuration(client_side=False, header_encoding=None, validate_outbound_headers=False))
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    request = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/")]
    client.send_headers(1, request, end_stream=True)
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(b":status", b"200"), (b"content-type", b"application/grpc")])
    server.send_data(1, framed(draw.choice(BODIES)))
    details = draw.choice((b"", b"AAAA", b"!", b"\xff"))
    trailers = [(b"grpc-status", draw.choice(STATUSES)), (b"grpc-status-details-bin", details)]
    server.send_headers(1, trailers, end_stream=True)
    return bytes(server.data_to_send())


async def test_over_grpc_records_are_rejected_only_by_a_status_that_says_so(aio: Asyncio) -> None:
    draw = random.Random(7)

    async def talk(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # whom an answer ends
            await stream.receive_some()
            await stream.send_all(mutated(draw, said) if draw.random() < 0.7 else said)
            await stream.send_eof()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, talk, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        output = OtlpOutput(endpoint=f"http://127.0.0.1:{port}", compression="none")
        async with output.open(OutputContext("main", aio, {})) as sender:
            for _ in range(ROUNDS):
                said = answer_of_h2(draw)
                await is_sound(sender, lambda reason: reason.startswith(("3 ", "13 ", "rejected", "1 ", "2 ")))
        nursery.cancel_scope.cancel()


async def is_sound(sender: Sender, says_so: Callable[[str], bool]) -> None:
    """Sends sound events: they may be put off or held, and are refused only for a reason that says so."""
    try:
        answers = await sender.send(BATCH)
    except (Later, Held, TooLarge):
        return
    assert all(says_so(answers.others[at].reason) for at in rejected(answers))


# -- Kafka -------------------------------------------------------------------------------------------------------------

REFUSALS = ("INVALID_RECORD", "MESSAGE_TOO_LARGE", "INVALID_TOPIC_EXCEPTION")


@asynccontextmanager
async def damaged_broker(aio: Asyncio, draw: random.Random) -> AsyncIterator[int]:
    """A broker whose answers to records, and to the wish for a producer's id, are damaged."""
    cluster = Cluster("shop")

    async def answer(key: int, text: bytes) -> bytes | None:
        if key == PRODUCER_ID:
            sound = bytes(InitProducerIdResponse_v0(0, 0, 7, 0).encode())
            return sound if draw.random() < 0.7 else mutated(draw, sound)
        if key != PRODUCE:
            return await cluster.answer(key, text)
        records = draw.choice(([], [(0, None)], [(99, "x"), (-1, None)]))
        partition = (0, draw.choice((0, 0, 2, 6, 45, 87, -1, 32767)), 1, -1, 0, records, None)
        return mutated(draw, bytes(ProduceResponse_v8([("shop", [partition])], 0).encode()))

    async with open_broker(aio, answer) as cluster.port:
        yield cluster.port


async def test_records_are_rejected_only_by_a_code_that_says_so(aio: Asyncio) -> None:
    draw = random.Random(7)
    async with damaged_broker(aio, draw) as port:
        output = KafkaOutput(hosts=(f"127.0.0.1:{port}",), topic="shop", compression="none")
        for _ in range(ROUNDS // 5):
            async with output.open(OutputContext("main", aio, {})) as sender:
                for _ in range(5):
                    await is_sound(sender, lambda reason: reason.endswith(REFUSALS))
