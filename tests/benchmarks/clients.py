"""Clients of the `elasticsearch` input that are faster than it: keep-alive connections, each asking again at once.

A request is the same bytes each time, made before the clock runs: about 300 bytes an event, as Beats write them. So a
client does nothing but `send` and `recv`, outside of the interpreter's lock, and threads of the driver suffice. An
answer of 429 is what a receiver says whose queue is full: the same request comes again.
"""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from tests.benchmarks.job import access_lines

CONNECTIONS = 4
ITEMS = 2_000
_PAUSE = 0.01


def ship(port: int, events: int) -> None:
    """Send at least so many events, in whole requests (`rounded` says how many), and wait until each is accepted."""
    requests = _requests(events)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [len(range(first, requests, CONNECTIONS)) for first in range(CONNECTIONS)]
        list(pool.map(_ask, [port] * CONNECTIONS, shares))


def rounded(events: int) -> int:
    """How many events `ship` sends."""
    return _requests(events) * ITEMS


def _requests(events: int) -> int:
    return -(-events // ITEMS)


def _ask(port: int, requests: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = b"".join(_items())
    headers = {"Content-Type": "application/x-ndjson"}
    while requests:
        connection.request("POST", "/_bulk?filter_path=errors,items.*.status", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status == 429:
            time.sleep(_PAUSE)
            continue
        if answer.status != 200 or json.loads(text)["errors"]:
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
