"""Clients of the inputs `elasticsearch` and `otlp` that are faster than they: keep-alive connections, each asking again
at once.

A request is the same bytes each time, made before the clock runs: about 300 bytes an event, as Beats write them. So a
client does nothing but `send` and `recv`, outside of the interpreter's lock, and threads of the driver suffice. An
answer of 429 is what a receiver says whose queue is full: the same request comes again.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.benchmarks.job import access_lines

CONNECTIONS = 4
ITEMS = 2_000
_PAUSE = 0.01


@dataclass(frozen=True)
class Request:
    """What each client asks, again and again; `accepted` says of an answer's body whether all events were taken."""

    path: str
    kind: str
    body: bytes
    accepted: Callable[[bytes], bool]


def ship(port: int, events: int) -> None:
    """Send at least so many events by bulk requests, in whole ones (`rounded` says how many), and wait until each is
    accepted."""
    path = "/_bulk?filter_path=errors,items.*.status"
    body = b"".join(_items())
    _all(port, events, Request(path, "application/x-ndjson", body, lambda text: not json.loads(text)["errors"]))


def export(port: int, events: int) -> None:
    """As `ship`, by OTLP over HTTP."""
    _all(port, events, Request("/v1/logs", "application/x-protobuf", _records(), lambda text: not text))


def _all(port: int, events: int, request: Request) -> None:
    requests = _requests(events)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [len(range(first, requests, CONNECTIONS)) for first in range(CONNECTIONS)]
        list(pool.map(_ask, [port] * CONNECTIONS, shares, [request] * CONNECTIONS))


def rounded(events: int) -> int:
    """How many events `ship` sends."""
    return _requests(events) * ITEMS


def _requests(events: int) -> int:
    return -(-events // ITEMS)


def _ask(port: int, requests: int, request: Request) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": request.kind}
    while requests:
        connection.request("POST", request.path, request.body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status == 429:
            time.sleep(_PAUSE)
            continue
        if answer.status != 200 or not request.accepted(text):
            raise SystemExit(f"a client was refused: {answer.status} {text[:200]!r}")
        requests -= 1
    connection.close()


def _items() -> list[bytes]:
    beat = {"agent": {"type": "filebeat", "version": "9.0.0"}, "host": {"name": "node-1"}, "ecs": {"version": "8.17.0"}}
    lines = islice(access_lines(ITEMS), ITEMS)
    action = b'{"create":{"_index":"logs-bench-default"}}\n'
    moment = "2026-01-01T00:00:00.000Z"
    documents = ({"@timestamp": moment, "message": line.rstrip("\n"), **beat} for line in lines)
    return [action + json.dumps(document, separators=(",", ":")).encode() + b"\n" for document in documents]


def _records() -> bytes:
    """Records as a library of OpenTelemetry writes them, with three attributes each."""
    message = ExportLogsServiceRequest()
    of_resource = message.resource_logs.add()
    _put(of_resource.resource, {"service.name": "shop", "service.version": "1.4.2", "host.name": "node-1"})
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name = "shop.access"
    for number, line in enumerate(access_lines(ITEMS)):
        moment = 1_767_225_600_000_000_000 + number * 1_234_567
        record = of_scope.log_records.add(time_unix_nano=moment, observed_time_unix_nano=moment + 2_345)
        record.severity_number, record.severity_text = 9, "INFO"  # type: ignore[assignment]
        record.body.string_value = line.rstrip("\n")
        _put(record, {"http.request.method": "GET", "thread.name": f"worker-{number % 8}", "code.function": "serve"})
    return message.SerializeToString()


def _put(message: Any, attributes: Mapping[str, str]) -> None:
    for key, value in attributes.items():
        message.attributes.add(key=key).value.string_value = value
