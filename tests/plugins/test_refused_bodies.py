"""A body that an input refuses is freed with its answer: while a queue is full, clients send it again and again."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import orjson
import pytest
import trio

from shipper_plugins.otlp import protobuf
from tests.freed import failed
from tests.plugins.elasticsearch import test_input_elasticsearch
from tests.plugins.http import test_input_http
from tests.plugins.otlp import test_input_otlp
from tests.plugins.otlp.test_input_otlp import GROUPS, Group, Record

_DOCUMENTS = [{"message": os.urandom(1500).hex()} for _ in range(100)]
_ARRAY = orjson.dumps(_DOCUMENTS)
_BULK = b"".join(b'{"create":{}}\n%b\n' % orjson.dumps(document) for document in _DOCUMENTS)
_RECORDS = [Record(body=document["message"]) for document in _DOCUMENTS]
_EXPORT = protobuf.encoded([Group(resource=GROUPS[0].resource, scope=GROUPS[0].scope, records=_RECORDS)])


async def left_by(receiver: Any, body: bytes, ask: Any, *, full: bool) -> tuple[Any, set[str]]:
    """The answer to this body, and what it left."""
    receiver.context.full = full
    said: list[Any] = []

    async def asked() -> None:
        said.append(await ask(body))

    ended = await failed(asked)
    return said[0], ended.left


@pytest.mark.parametrize(("body", "full", "status"), [(_ARRAY, True, 429), (_ARRAY[:-1], False, 400)])
async def test_by_the_http_input(body: bytes, full: bool, status: int) -> None:
    async with test_input_http.receiving() as receiver:
        (found, _), left = await left_by(receiver, body, receiver.post, full=full)

    assert (found, left) == (status, set())


@pytest.mark.parametrize(("body", "full", "status"), [(_BULK, True, 429), (_BULK + b"{x\n", False, 400)])
async def test_by_the_elasticsearch_input(body: bytes, full: bool, status: int) -> None:
    async with test_input_elasticsearch.a_receiver() as receiver:
        ask = partial(receiver.request, "POST", "/logs-x-y/_bulk")
        answer, left = await left_by(receiver, body, ask, full=full)

    assert (answer.status, left) == (status, set())


@pytest.mark.parametrize(
    ("protocol", "body", "full", "code"),
    [("grpc", _EXPORT, True, 8), ("http", _EXPORT, True, 8), ("http", b"\xff" * 200_000, False, 3)],
)
async def test_by_the_otlp_input(protocol: str, body: bytes, full: bool, code: int) -> None:
    async with test_input_otlp.receiving(protocol) as receiver:
        send = receiver._over_http if protocol == "http" else receiver._over_grpc
        ask = partial(trio.to_thread.run_sync, send)
        answer, left = await left_by(receiver, body, lambda body: ask(body, None, False), full=full)

    assert (answer[0], left) == (code, set())
