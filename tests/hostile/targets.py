"""Functions that read foreign bytes, each with what must hold for any bytes: one named error, or a value.

What is read is read twice where there is a reference: by the `json` module, by another cut of the same bytes, or line
by line. Whatever else is raised is a find, and so is more than linear time (`within_time`); `guided` draws the bytes.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
from isal import isal_zlib

from shipper.plugin import Answer, Batch, DataStream, Later, Outcome
from shipper.policy.document import plain, read, write
from shipper.policy.policy import build, destination, meaning, output_settings, restore_output
from shipper.policy.registry import BASES, Registry
from shipper.protocol.messages import Observe, Policy, parse
from shipper.sdk.bodies import BodyRefused, Inflation
from shipper.sdk.credentials import Credential
from shipper.sdk.errors import PolicyError, Problem
from shipper_plugins.elasticsearch.client import bulk, encoding
from shipper_plugins.elasticsearch.server.answer import RequestRefused, introduction
from shipper_plugins.elasticsearch.server.door import fingerprint
from shipper_plugins.elasticsearch.server.request import BulkRequest
from shipper_plugins.processors.parse import Parse
from shipper_plugins.tail.stream import Stream
from tests.hostile.frames import is_json
from tests.hostile.wires import WIRES

Target = Callable[[bytes], object]

SECONDS = 1.0
SECONDS_OF_A_BYTE = 20e-6
"""What a call may take."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REGISTRY = Registry.installed()
for _kind in BASES:
    for _type in REGISTRY.types(_kind):
        REGISTRY.find(_kind, _type)  # imports it now, so that it is instrumented too


def within_time(target: Target) -> Target:
    """The target, which may not take more than linear time; a second try excuses a machine that was busy."""

    def bounded(content: bytes) -> None:
        allowed = SECONDS + len(content) * SECONDS_OF_A_BYTE
        spent = _seconds(target, content)
        assert spent < allowed or _seconds(target, content) < allowed, f"{spent:.2f} s for {len(content)} bytes"

    return bounded


def _seconds(target: Target, content: bytes) -> float:
    began = time.thread_time()
    target(content)
    return time.thread_time() - began


# -- what a supervisor says --------------------------------------------------------------------------------------------


def control_line(line: bytes) -> None:
    """A message is JSON, what `json` writes of an `observe` is a message, and secrets have a shape or a ValueError."""
    try:
        message = parse(line)
    except ValueError:
        assert not _is_observe(line)
        return
    assert is_json(line)
    if isinstance(message, Policy) and isinstance(message.credentials, Mapping):
        for value in message.credentials.values():
            with suppress(ValueError):
                Credential.parse(value).canonical()


def _is_observe(line: bytes) -> bool:
    """As `json` would write it."""
    try:
        value = json.loads(line)
        return json.dumps(value, allow_nan=False).encode() == line and value.get("type") == Observe.__name__.lower()
    except (ValueError, RecursionError, AttributeError):
        return False


def document(text: bytes) -> None:
    """What is read can be written, and reads back equal; each problem has a place in the text."""
    problems: Sequence[Problem] = ()
    try:
        node = read(text)
    except PolicyError as error:
        problems = error.problems
    else:
        assert plain(read(write(node))) == plain(node)
    lines = len(text.decode(errors="replace").splitlines()) + 1
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in problems)


def policy(text: bytes) -> None:
    """A policy has its digests, and its outputs can be made again of what the spool keeps of them."""
    try:
        wanted = build(read(text), REGISTRY)
    except PolicyError:
        return
    assert len(meaning(wanted)) == 64
    for spec in wanted.outputs.values():
        kept = msgspec.json.decode(msgspec.json.encode(output_settings(spec)))
        again = msgspec.structs.replace(spec, config=restore_output(spec.type, kept, REGISTRY))
        assert destination(again) == destination(spec)


# -- what clients ship -------------------------------------------------------------------------------------------------


def bulk_request(content: bytes) -> None:
    """The cuts between blocks do not matter, all that is stored is JSON, and as much is answered 201."""
    filter_path, index, body = [*content.split(b"\0", 2), b"", b""][:3]
    names = filter_path.decode(errors="replace"), index.decode(errors="replace") or None
    once = _received(body, len(body) or 1, *names)

    assert once == _received(body, len(filter_path) % 7 * 5 + 1, *names)
    if not isinstance(once, bytes):
        batches, answers = once
        lines = [line for batch in batches for line in batch.body.split(b"\n")[:-1]]
        assert all(isinstance(json.loads(line), dict) for line in lines)
        assert filter_path or [s for item in answers["items"] for s in _statuses(item)].count(201) == len(lines)


def _received(body: bytes, step: int, filter_path: str, index: str | None) -> bytes | tuple[list[Batch], Any]:
    try:
        request = BulkRequest(stream=DataStream(), index=index, filter_path=filter_path)
        for at in range(0, len(body), step):
            request.feed(body[at : at + step])
        return request.finish(), orjson.loads(request.answers.body(1))
    except RequestRefused as refusal:
        return refusal.body()


def _statuses(item: Mapping[str, Mapping[str, int]]) -> Iterator[int]:
    return (entry["status"] for entry in item.values())


def bulk_headers(content: bytes) -> None:
    """A secret has one digest, however it is spelled; an answer to a GET is JSON."""
    text = content.decode("utf-8", "surrogateescape")
    assert len(fingerprint(text)) in (0, 32)
    assert fingerprint(text) == fingerprint(f" {text} ")
    path, _, host = content.decode(errors="replace").partition("\n")
    orjson.dumps(introduction(path, host))


def compressed_body(content: bytes) -> None:
    """The cuts between blocks do not matter; zlib sees the same in the first member."""
    whole = _inflated(content, len(content) or 1)
    assert whole == _inflated(content, 3)
    with suppress(zlib.error):  # which knows header flags that isal overlooks
        assert whole is None or whole.startswith(zlib.decompressobj(31).decompress(content))


def _inflated(content: bytes, step: int) -> bytes | None:
    inflation = Inflation("gzip", 1 << 40)
    try:
        blocks = (content[at : at + step] for at in range(0, len(content), step))
        found = b"".join(piece for block in blocks for piece in inflation.pieces(block))
        inflation.finish()
    except BodyRefused:
        return None
    return found


# -- what a backend answers --------------------------------------------------------------------------------------------


def _request(count: int) -> encoding.Request:
    batch = replace(Batch.lines(b"x\n" * count, offset=0, shared={}), origin=bytes(16), seq=1)
    return encoding.encode(batch, index=None, limit=1 << 20, compression="none")[0]


REQUESTS = [_request(count) for count in (1, 2, 5)]


def backend_answer(content: bytes) -> None:
    """What is called delivered was created, by another reader's word, under an id that is not another's."""
    bulk.refusal(len(content) % 600, {"Retry-After": content[:40].decode("latin-1")}, content, "host")
    for request in REQUESTS:
        try:
            others = bulk.read(content, request)
        except Later:
            continue
        if not bulk._all_created(content, request.count):
            _assert_created(json.loads(content.decode(errors="replace"))["items"], request, others)


def _assert_created(items: list[Any], request: encoding.Request, others: Mapping[int, Answer]) -> None:
    assert len(items) == request.count
    for position, (item, id) in enumerate(zip(items, request.ids(), strict=True)):
        said = item["create"]
        assert said.get("_id") in (None, id)
        assert (200 <= said["status"] < 300) == (position not in others)
        if position in others:
            assert others[position].outcome is not Outcome.DUPLICATE or said["status"] == 409


def backend_headers(content: bytes) -> None:
    """Some seconds to wait, or None; gzip as zlib reads it."""
    text, _, date = content.decode("latin-1").partition("\n")
    asked = bulk.retry_after({"Retry-After": text, "Date": date}, NOW)
    assert asked is None or 0 <= asked <= 3600
    with suppress(Later, zlib.error):  # zlib knows header flags that isal overlooks
        assert bulk.inflated(content, "gzip") == zlib.decompressobj(31).decompress(content)


# -- what lies on disk, and in logs ------------------------------------------------------------------------------------


def stored(content: bytes) -> None:
    """What is no batch, or no position, is a ValueError."""
    with suppress(ValueError):
        Batch.unpack(isal_zlib.compress(content, 0, -15), origin=bytes(16), seq=1)
    with suppress(ValueError):
        Batch.unpack(content, origin=bytes(16), seq=1)
    with suppress(ValueError):
        Stream.restored("key", content)


PARSERS = [
    *(Parse(format="nginx"), Parse(format="apache"), Parse(format="syslog")),
    *(Parse(format="json"), Parse(format="json", target="a.b"), Parse(format="kv")),
    *(Parse(format="csv", columns=("host", "b.c")), Parse(format="regex", pattern=r"^(?P<log>\S+) (?P<b>\d+)")),
]


def log_lines(content: bytes) -> None:
    """Lines are parsed all at once as each is parsed alone."""
    text = content.decode(errors="replace").replace("\r", "").encode()
    shared = {"@timestamp": "2026-05-17T12:34:56.000Z", "host": {"name": "h"}}
    batch = Batch.lines(text + b"\n", offset=0, shared=shared)
    for parser in PARSERS:
        at_once = parser.process(batch)
        alone = [parser.process(Batch.events([own], shared=batch.shared)).whole()[0] for own in batch.own()]
        assert list(map(_sorted, at_once.whole())) == list(map(_sorted, alone))
        assert all(isinstance(json.loads(line), dict) for line in at_once.json_lines().split(b"\n")[:-1])


def _sorted(event: Mapping[str, Any]) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_SORT_KEYS)


TARGETS: Mapping[str, Target] = {
    "control-line": control_line,
    "document": document,
    "policy": policy,
    "bulk-request": bulk_request,
    "bulk-headers": bulk_headers,
    "compressed-body": compressed_body,
    "backend-answer": backend_answer,
    "backend-headers": backend_headers,
    "stored": stored,
    "log-lines": log_lines,
    **WIRES,
}
