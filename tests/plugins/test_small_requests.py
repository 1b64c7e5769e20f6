"""What small requests cost: counted from the socket to the durable answer, not timed."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from shipper.plugin import Input
from shipper.spool.queue import Arrival
from shipper_plugins.http import intake as http_requests
from shipper_plugins.http.input import HttpInput
from shipper_plugins.otlp.input import OtlpInput
from shipper_plugins.otlp.server import intake as otlp_intake
from tests.fakes import DESTINATIONS, PATIENCE, SPRINGS, Theatre, policy, theatre
from tests.plugins.running import running

CLIENTS, REQUESTS = 8, 20
PASSES = 5
"""Of trio's loop for a request: it has come, it is durable, who waits for that goes on, and so does the lane. There are
four, and others may fall in between."""


def _post(path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_LOGS = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a"}}]}]}]}'
KINDS = {
    "http": (lambda port: HttpInput(address=f"127.0.0.1:{port}"), _post("/", "application/json", b'{"a":1}')),
    "otlp": (
        lambda port: OtlpInput(grpc=None, http=f"127.0.0.1:{port}"),
        _post("/v1/logs", "application/json", _LOGS),
    ),
}
every_kind = pytest.mark.parametrize(("of", "request_"), KINDS.values(), ids=KINDS)


class Passes(trio.abc.Instrument):
    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


class Served:
    """An input that runs, on a real spool; its transactions are noted."""

    def __init__(self, on: Theatre, port: int) -> None:
        self.on, self.port = on, port
        self.arrivals: list[Arrival] = []
        enter = on.spool.queue.enter_soon

        def counted(arrival: Arrival, *rest: object) -> None:
            self.arrivals.append(arrival)
            enter(arrival, *rest)  # type: ignore[arg-type]

        on.spool.queue.enter_soon = counted  # type: ignore[method-assign]

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@asynccontextmanager
async def serving(path: Path, of: Callable[[int], Input]) -> AsyncIterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with theatre(path) as on:
        await on.offer(1, policy())
        await on.ack(1, "active")
        DESTINATIONS["main"].send = DESTINATIONS["main"].hang
        await SPRINGS["in"].until(lambda: "run" in SPRINGS["in"].log)
        settings = of(port)
        settings.load()
        async with running(settings, SPRINGS["in"].context):
            yield Served(on, port)


def answered(connection: socket.socket) -> bytes:
    """The first line of an answer, which is read as a whole."""
    text = b""
    while b"\r\n\r\n" not in text or len(text.partition(b"\r\n\r\n")[2]) < _length(text):
        text += connection.recv(65536)
    return text.partition(b" \r\n")[0]


def _length(text: bytes) -> int:
    return next(int(line[15:]) for line in text.split(b"\r\n") if line.startswith(b"Content-Length:"))


@every_kind
async def test_eight_clients_at_once_need_two_transactions(
    tmp_path: Path, of: Callable[[int], Input], request_: bytes
) -> None:
    async with serving(tmp_path, of) as served:
        clients = [served.connected() for _ in range(CLIENTS)]
        await trio.testing.wait_all_tasks_blocked(0.05)
        for client in clients:  # all before the input runs again
            client.sendall(request_)
        answers = [await trio.to_thread.run_sync(answered, client) for client in clients]
        for client in clients:
            client.close()

        assert answers == [b"HTTP/1.1 200"] * CLIENTS
        assert [sum(packed.events for packed in arrival.batches) for arrival in served.arrivals] == [1, CLIENTS - 1]
        assert served.on.spool.figures.total().events == CLIENTS


@every_kind
async def test_a_small_request_needs_few_passes_and_no_worker_thread(
    tmp_path: Path, of: Callable[[int], Input], request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(client: socket.socket) -> list[bytes]:
        answers = []
        for _ in range(REQUESTS):
            client.sendall(request_)
            answers.append(answered(client))
        return answers

    async with serving(tmp_path, of) as served:
        for module in (http_requests, otlp_intake):
            monkeypatch.setattr(module, "in_thread", None)
        with served.connected() as client:
            await trio.testing.wait_all_tasks_blocked(0.05)
            passes = Passes()
            trio.lowlevel.add_instrument(passes)
            answers = await trio.to_thread.run_sync(ask, client)
            trio.lowlevel.remove_instrument(passes)

        assert answers == [b"HTTP/1.1 200"] * REQUESTS
        assert len(served.arrivals) == REQUESTS
        assert passes.count <= PASSES * REQUESTS
