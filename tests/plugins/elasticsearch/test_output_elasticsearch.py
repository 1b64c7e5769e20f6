"""The `elasticsearch` output against real HTTP servers on loopback, some of them ugly."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
import trustme

from shipper.plugin import (
    Asyncio,
    Batch,
    ClientTls,
    Code,
    Credential,
    CredentialId,
    Duration,
    Held,
    Later,
    NotBegun,
    Outcome,
    OutputContext,
    Sender,
    Size,
    StartFailed,
    TooLarge,
    client_context,
)
from shipper.sdk import http as http_client
from shipper.sdk.tallies import Requests
from shipper.testing import BulkDestination, Reply, open_destination
from shipper_demo.ports import free_port
from shipper_plugins.elasticsearch.client import bulk, host_rotation
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
from tests import certificates
from tests.raw_http import Talk, http, raw_server, read_request, saying, some

pytestmark = pytest.mark.usefixtures("no_proxy_of_the_machine")
_KEY = Credential.parse({"api_key": "id:canary-secret"})
_STREAM = {"type": "logs", "dataset": "nginx", "namespace": "prod"}
_CA = trustme.CA()
_TRUST = certificates.trust(_CA)
_server = partial(certificates.server, _CA)


@pytest.fixture(autouse=True)
def the_first_opening_begins_at_the_first_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have opened."""
    monkeypatch.setattr(host_rotation, "_beginnings", itertools.count())


@pytest.fixture
async def destination(aio: Asyncio) -> AsyncIterator[BulkDestination]:
    async with open_destination(aio, keys={_KEY}) as opened:
        yield opened


def lines(count: int = 3, seq: int = 1, size: int = 0) -> Batch:
    text = b"".join(b"canary line %d %b\n" % (i, b"x" * size) for i in range(count))
    shared = {"@timestamp": "2026-11-20T00:00:00Z", "data_stream": _STREAM}
    return replace(Batch.lines(text, offset=0, shared=shared), origin=b"0123456789abcdef", seq=seq)


ID = CredentialId("es-1")


@asynccontextmanager
async def sender(
    aio: Asyncio, *hosts: str, credential: Credential | None = _KEY, **settings: Any
) -> AsyncIterator[Sender]:
    output = ElasticsearchOutput(hosts=hosts, credential=None if credential is None else ID, **settings)
    async with output.open(OutputContext("main", aio, {} if credential is None else {ID: credential})) as opened:
        yield opened


# -- servers that are no Elasticsearch ---------------------------------------------------------------------------------


def created(request: bytes) -> bytes:
    """The answer to a request of `none` compression: all created, ids not told."""
    items = b",".join([b'{"create":{"status":201}}'] * (request.partition(b"\r\n\r\n")[2].count(b"\n") // 2))
    return http(b'{"errors":false,"items":[%b]}' % items)


# -- delivery ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_events_arrive_under_their_ids(aio: Asyncio, destination: BulkDestination, compression: str) -> None:
    batch = lines(3)
    async with sender(aio, destination.url, compression=compression) as main:
        answers = await main.send(batch)

    assert (answers.count, dict(answers.others)) == (3, {})
    documents = destination.documents["logs-nginx-prod"]
    assert list(documents) == [f"MDEyMzQ1Njc4OWFiY2RlZg-1-{i}" for i in range(3)]
    assert [json.loads(document) for document in documents.values()] == batch.whole()


async def test_a_request_says_what_it_is_and_nothing_else(aio: Asyncio) -> None:
    requests = []

    async def talk(stream: trio.SocketStream) -> None:
        requests.append(await read_request(stream))
        await stream.send_all(http(b"{}"))

    async with raw_server(talk) as url, sender(aio, f"{url}/es/", pipeline="a&c", index="x") as main:
        with pytest.raises(Later):
            await main.send(lines(1))

    head, _, body = requests[0].partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    named = {name.lower(): value for name, value in (header.split(": ", 1) for header in headers)}
    length = named.pop("content-length")
    assert first.startswith("POST /es/x/_bulk?filter_path=errors,items.*._id,")
    assert first.endswith("&pipeline=a%26c HTTP/1.1")
    assert int(length) == len(body)
    assert named == {
        "host": url.removeprefix("http://"),
        "accept": "application/json",
        "accept-encoding": "gzip",
        "content-type": "application/x-ndjson",
        "content-encoding": "gzip",
        "user-agent": named["user-agent"],
        "authorization": _KEY.authorization(),
    }
    assert named["user-agent"].startswith("shipper/")


@pytest.mark.parametrize(
    "credential",
    [
        Credential.parse({"username": "ship", "password": "pässword"}),
        Credential.parse({"bearer_token": "token"}),
    ],
)
async def test_it_authenticates_as_it_was_told(aio: Asyncio, credential: Credential) -> None:
    async with open_destination(aio, keys={credential}) as other, sender(aio, other.url, credential=credential) as main:
        await main.send(lines(2))

    assert other.total == 2


async def test_a_large_batch_goes_as_several_requests(aio: Asyncio, destination: BulkDestination) -> None:
    async with sender(aio, destination.url, bulk_max_bytes=Size(4096)) as main:
        answers = await main.send(lines(200))

    assert dict(answers.others) == {}
    assert destination.total == 200
    assert len(destination.log) > 5
    assert max(request.bytes for request in destination.log) <= 4096


async def test_a_body_of_megabytes_arrives(aio: Asyncio, destination: BulkDestination) -> None:
    async with sender(aio, destination.url, compression="none") as main:
        await main.send(lines(2000, size=3000))

    assert destination.total == 2000


# -- answers -----------------------------------------------------------------------------------------------------------


def test_the_places_of_events_are_their_indices_and_data_streams() -> None:
    own = Batch.documents([b'{"data_stream":{"dataset":"app"}}', b"{}"])
    lines = Batch.lines(b"a\nb\n", offset=0, shared={"data_stream": {"dataset": "nginx"}})
    output = ElasticsearchOutput(hosts=("http://es:9200",))

    assert list(output.targets(own)) == ["logs-app-default", "logs-generic-default"]
    assert list(output.targets(lines)) == ["logs-nginx-default"] * 2
    assert list(ElasticsearchOutput(hosts=("http://es:9200",), index="all").targets(own)) == ["all", "all"]


async def test_a_key_that_was_revoked_holds_the_batch(aio: Asyncio, destination: BulkDestination) -> None:
    async with sender(aio, destination.url) as main:
        await main.send(lines(1))
        assert destination.keys is not None
        destination.keys.discard(_KEY)

        with pytest.raises(Held, match=r"^401 Unauthorized from 127\.0\.0\.1:\d+$"):
            await main.send(lines(1, seq=2))


@pytest.mark.parametrize(("status", "kind"), [(429, Later), (413, TooLarge), (403, Held)])
async def test_a_refusal_of_the_whole_request_is_raised(
    aio: Asyncio, destination: BulkDestination, status: int, kind: type[Exception]
) -> None:
    destination.script = lambda request, documents: Reply(status=status, body=b"<html>canary line</html>")
    async with sender(aio, destination.url) as main:
        with pytest.raises(kind, match=f"^{status} ") as error:
            await main.send(lines(2))

    assert "canary" not in str(error.value)


async def test_the_wish_to_wait_is_passed_on(aio: Asyncio, destination: BulkDestination) -> None:
    destination.script = lambda request, documents: Reply(status=429, headers={"Retry-After": "17"})
    async with sender(aio, destination.url) as main:
        with pytest.raises(Later) as error:
            await main.send(lines(1))

    assert error.value.retry_after == 17


async def test_an_answer_with_items_missing_says_nothing_and_the_same_ids_go_again(
    aio: Asyncio, destination: BulkDestination
) -> None:
    destination.script = lambda request, documents: Reply(count=2) if request.number == 0 else None
    async with sender(aio, destination.url) as main:
        with pytest.raises(Later):
            await main.send(lines(3))
        answers = await main.send(lines(3))

    assert all(answer.outcome is Outcome.DUPLICATE for answer in answers.others.values())
    assert (len(answers.others), destination.total) == (3, 3)


@pytest.mark.parametrize(("status", "reader"), [("200 OK", "read"), ("400 Bad Request", "refusal")])
async def test_an_answer_on_which_its_reader_fails_is_a_bad_one(
    aio: Asyncio, monkeypatch: pytest.MonkeyPatch, status: str, reader: str
) -> None:
    """The core would take an unknown error for the fault of some event, and make dead letters of sound ones."""

    def fail(*_: object) -> None:
        raise KeyError("a text of the peer")

    async def talk(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}".encode())

    monkeypatch.setattr(bulk, reader, fail)
    async with raw_server(talk) as url, sender(aio, url) as main:
        with pytest.raises(Later, match="the answer cannot be read") as bad:
            await main.send(lines(1))

    assert bad.value.code == Code.BAD_ANSWER
    assert "peer" not in str(bad.value)


async def test_an_answer_that_does_not_end_is_given_up(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_LONGEST_ANSWER", 1 << 20)

    async def talk(stream: trio.SocketStream) -> None:
        await read_request(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send_all(b" " * 65536)

    async with raw_server(talk) as url, sender(aio, url) as main:
        with pytest.raises(Later, match="too large"):
            await main.send(lines(1))


# -- several requests for one batch ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "outcome"), [(503, Outcome.LATER), (413, Outcome.LATER), (401, Outcome.HELD)])
async def test_what_was_answered_counts_although_a_later_request_fails(
    aio: Asyncio, destination: BulkDestination, status: int, outcome: Outcome
) -> None:
    destination.script = lambda request, documents: Reply(status=status) if request.number == 2 else None
    async with sender(aio, destination.url, bulk_max_bytes=Size(4096)) as main:
        answers = await main.send(lines(200))

    assert len(destination.log) == 3
    assert sorted(answers.others) == list(range(destination.total, 200))
    assert {answer.outcome for answer in answers.others.values()} == {outcome}


async def test_if_the_first_request_fails_its_error_is_raised(aio: Asyncio, destination: BulkDestination) -> None:
    destination.script = lambda request, documents: Reply(status=413)
    async with sender(aio, destination.url, bulk_max_bytes=Size(4096)) as main:
        with pytest.raises(TooLarge):
            await main.send(lines(200))

    assert len(destination.log) == 1


async def test_an_id_that_is_too_long_is_rejected_here_and_its_neighbours_go(
    aio: Asyncio, destination: BulkDestination
) -> None:
    """Elasticsearch refuses the whole request for it."""
    batch = Batch.documents([b'{"n":%d}' % n for n in range(4)], ids=["a", "x" * 513, "b", "a"], route="i")
    async with sender(aio, destination.url) as main:
        answers = await main.send(batch)

    assert {i: answer.outcome for i, answer in answers.others.items()} == {1: Outcome.REJECTED, 3: Outcome.DUPLICATE}
    assert list(destination.documents["i"]) == ["a", "b"]
    assert answers.count == 4


# -- connections that fail ---------------------------------------------------------------------------------------------


async def test_a_name_that_does_not_exist_is_told(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with sender(aio, "http://es.invalid:9200") as main:
        with pytest.raises(Later, match=r"^es.invalid:9200: name not found \(Name or service not known\)$") as told:
            await main.send(lines(1))
        assert told.value.code == "name_not_found"


def test_a_name_that_is_not_answered_holds_up_no_end_of_the_process() -> None:
    script = """
import socket, time, trio
from shipper.plugin import Batch, OutputContext
from shipper.sdk.aio import open_asyncio
from shipper.sdk.connection import RESET
from shipper_plugins.elasticsearch.output import ElasticsearchOutput
ask = socket.getaddrinfo
socket.getaddrinfo = lambda *a, **k: ask(*a, **k) if k.get("flags", 0) & socket.AI_NUMERICHOST else time.sleep(300)
async def main():
    async with open_asyncio() as aio:
        with trio.move_on_after(0.5):
            output = ElasticsearchOutput(hosts=("http://es.invalid:9200",))
            async with output.open(OutputContext("main", aio)) as sender:
                await sender.send(Batch.lines(b"one\\n", offset=0, shared={}))
trio.run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, check=False, capture_output=True)

    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
async def test_a_host_that_takes_too_long_is_given_up_and_its_connection_is_aborted(aio: Asyncio, drip: bool) -> None:
    ends: list[str] = []
    all_ended = trio.Event()

    async def drip_on(stream: trio.SocketStream) -> None:
        if not drip:
            return
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                await stream.send_all(b" ")
                await trio.sleep(0.01)

    async def talk(stream: trio.SocketStream) -> None:
        await read_request(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip_on, stream)
            ends.append(await end_of(stream))
            if len(ends) == 2:
                all_ended.set()
            nursery.cancel_scope.cancel()

    async with raw_server(talk) as url, sender(aio, url, timeout=Duration(0.3)) as main:
        for _ in range(2):
            with pytest.raises(Later, match=r"timed out after 0\.3s$"):
                await main.send(lines(1))
        await all_ended.wait()

    assert len(ends) == 2
    assert drip or ends == ["reset", "reset"]  # where both read and write, either may be told of the reset


async def end_of(stream: trio.SocketStream) -> str:
    try:
        while await stream.receive_some(65536):
            pass
    except trio.BrokenResourceError as error:
        reset = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ECONNRESET
        return "reset" if reset else "broken"
    return "closed"


# -- what is counted ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def counted(aio: Asyncio, *hosts: str, **settings: Any) -> AsyncIterator[tuple[Sender, Requests]]:
    context = OutputContext("main", aio, {ID: _KEY})
    async with ElasticsearchOutput(credential=ID, hosts=hosts, **settings).open(context) as opened:
        yield opened, context.requests


async def test_a_dead_host_is_counted_though_the_next_one_takes_the_events(
    aio: Asyncio, destination: BulkDestination
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with counted(aio, destination.url, dead) as (main, requests):
        for seq in range(2):
            await main.send(lines(1, seq))

    assert (requests.responses, requests.failures) == ({"200": 2}, {"unreachable": 1})


def greeting(text: bytes) -> Talk:
    async def talk(stream: trio.SocketStream) -> None:
        await stream.send_all(text)
        await stream.receive_some(65536)

    return talk


async def silence(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize(
    ("talk", "scheme", "failure"),
    [
        (silence, "http", "timeout"),
        (greeting(b"no TLS here\n" * 9), "https", "tls"),
        (saying(b""), "http", "broken"),
    ],
)
async def test_a_request_without_an_answer_is_counted_by_what_it_met(
    aio: Asyncio, talk: Talk, scheme: str, failure: str
) -> None:
    async with (
        raw_server(talk) as url,
        counted(aio, url.replace("http", scheme), timeout=Duration(0.5)) as (main, requests),
    ):
        with pytest.raises(Later):
            await main.send(lines(1))

    assert (requests.responses, requests.failures, requests.count) == ({}, {failure: 1}, 1)


# -- nothing begins that may not ---------------------------------------------------------------------------------------


@asynccontextmanager
async def fenced(aio: Asyncio, url: str, may_begin: Callable[[], bool]) -> AsyncIterator[tuple[Sender, Requests]]:
    requests = Requests()
    context = OutputContext("main", aio, {ID: _KEY}, requests=requests, may_begin=may_begin)
    async with ElasticsearchOutput(credential=ID, hosts=(url,)).open(context) as opened:
        yield opened, requests


async def test_without_leave_no_connection_is_made(aio: Asyncio) -> None:
    connected = trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        connected.set()

    async with raw_server(talk) as url, fenced(aio, url, lambda: False) as (main, requests):
        with pytest.raises(NotBegun):
            await main.send(lines(1))

        assert (connected.is_set(), requests.count) == (False, 0)


async def test_when_the_leave_ends_while_a_connection_is_made_nothing_is_written(aio: Asyncio) -> None:
    received, closed = b"", trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        nonlocal received
        with suppress(trio.BrokenResourceError):
            received += await stream.receive_some()
        closed.set()

    leave = iter((True, False))
    async with raw_server(talk) as url, fenced(aio, url, lambda: next(leave)) as (main, _):
        with pytest.raises(NotBegun):
            await main.send(lines(1))
        await closed.wait()

    assert received == b""


async def test_without_leave_an_idle_connection_is_not_used(aio: Asyncio, destination: BulkDestination) -> None:
    may_begin = True
    async with fenced(aio, destination.url, lambda: may_begin) as (main, _):
        await main.send(lines(1))
        may_begin = False
        with pytest.raises(NotBegun):
            await main.send(lines(1, seq=2))
        may_begin = True
        await main.send(lines(1, seq=3))

    assert [request.number for request in destination.log] == [0, 1]


# -- nothing is sent after the end -------------------------------------------------------------------------------------


class Stalled:
    """A server that reads the beginning of a request and nothing more, until it is told to."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.go_on = trio.Event()
        self.ended = trio.Event()
        self.received = b""
        self.end = ""

    async def talk(self, stream: trio.SocketStream) -> None:
        self.received += await some(stream)
        self.begun.set()
        await self.go_on.wait()
        try:
            while chunk := await stream.receive_some(65536):
                self.received += chunk
            self.end = "closed"
        except trio.BrokenResourceError:
            self.end = "reset"
        self.ended.set()


async def test_a_cancelled_upload_stops_where_it_is(aio: Asyncio) -> None:
    """What a transport or the kernel holds back must not follow, however long the peer takes to read it."""
    server = Stalled()
    async with raw_server(server.talk) as url, sender(aio, url, compression="none") as main:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main.send, lines(4000, size=4000))
            await server.begun.wait()
            nursery.cancel_scope.cancel()
        server.go_on.set()
        await server.ended.wait()

    assert server.end == "reset"
    assert len(server.received) < 4000 * 4000


async def test_a_cancel_while_the_answer_is_awaited_aborts_the_connection(
    aio: Asyncio, destination: BulkDestination
) -> None:
    destination.script = lambda request, documents: Reply(hang=True) if request.number == 0 else None
    async with sender(aio, destination.url) as main:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main.send, lines(2))
            await destination.wait_for(2)
            nursery.cancel_scope.cancel()
        answers = await main.send(lines(2))

    assert all(answer.outcome is Outcome.DUPLICATE for answer in answers.others.values())


async def test_a_cancel_while_a_connection_is_made_leaves_no_socket(aio: Asyncio) -> None:
    """A listener whose backlog is full answers no SYN."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [_connecting(port) for _ in range(8)]
        await aio.call(_nothing)
        before = _sockets()
        async with sender(aio, f"http://127.0.0.1:{port}") as main:
            with trio.move_on_after(0.1) as scope:
                await main.send(lines(1))
        after = _sockets()
        for filler in fillers:
            filler.close()

    assert scope.cancelled_caught
    assert after <= before


async def _nothing() -> None:
    """A call that starts the loop, which has descriptors of its own."""


def _connecting(port: int) -> socket.socket:
    filler = socket.socket()
    filler.setblocking(False)
    filler.connect_ex(("127.0.0.1", port))
    return filler


def _sockets() -> set[str]:
    links = set()
    for name in os.listdir("/dev/fd"):
        try:
            links.add(os.readlink(f"/dev/fd/{name}"))
        except OSError:
            continue
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
async def test_when_the_block_is_left_no_socket_is_open(aio: Asyncio, tls: bool) -> None:
    server = _server("127.0.0.1") if tls else None
    async with open_destination(aio, keys={_KEY}, tls=server) as other:
        port = int(other.url.rsplit(":", 1)[1])
        before = _ends_at(port)
        async with (
            sender(aio, other.url, tls=_TRUST, workers=4) as main,
            trio.open_nursery() as nursery,
        ):
            for seq in range(4):
                nursery.start_soon(main.send, lines(3, seq))
            await other.wait_for(12)
        after = _ends_at(port)

    assert before == after == 0


def _ends_at(port: int) -> int:
    """How many sockets are connected to that port, by the kernel's own table."""
    with open("/proc/net/tcp") as table:
        rows = [row.split() for row in table.readlines()[1:]]
    return sum(int(row[2].split(":")[1], 16) == port and row[9] != "0" for row in rows)


async def test_after_the_block_the_peer_gets_only_what_had_left_and_a_reset(aio: Asyncio) -> None:
    server = Stalled()
    async with raw_server(server.talk) as url:
        async with trio.open_nursery() as nursery, sender(aio, url, compression="none") as main:
            nursery.start_soon(main.send, lines(4000, size=4000))
            await server.begun.wait()
            nursery.cancel_scope.cancel()
        server.go_on.set()
        await server.ended.wait()

    assert server.end == "reset"
    assert len(server.received) < 4000 * 4000


@pytest.mark.parametrize("moment", ["connecting", "shaking hands", "waiting", "waiting over TLS"])
async def test_close_returns_when_the_sockets_are_closed_even_of_what_was_just_cancelled(
    aio: Asyncio, moment: str
) -> None:
    arrived = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        arrived.set()
        await reader.read()
        writer.close()

    async def cancel_and_close() -> int:
        tls = _server("127.0.0.1") if moment == "waiting over TLS" else None
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        scheme = "http" if moment == "waiting" else "https"
        client = http_client.Pool({}, client_context(_TRUST), None, aio=aio, connections=2, seconds=60)
        await client.open()
        task = asyncio.create_task(client.request("POST", f"{scheme}://127.0.0.1:{port}", "/_bulk", [b"body"], {}, 1))
        if moment == "connecting":
            while not _ends_at(port):  # noqa: ASYNC110 - the kernel knows it alone
                await asyncio.sleep(0)
        else:
            await arrived.wait()
        task.cancel()
        await asyncio.wait([task])
        await client.close()
        left = _ends_at(port)
        server.close()
        return left

    assert await aio.call(cancel_and_close) == 0


# -- several hosts -----------------------------------------------------------------------------------------------------


async def test_an_answer_that_nobody_waited_for_is_no_answer_to_the_next_request(aio: Asyncio) -> None:
    """It says nothing of ids, and the connection has been idle since: the next request must not find it there."""
    answered, stray, strayed = [], trio.Event(), trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        request = await read_request(stream)
        answered.append(request)
        await stream.send_all(created(request))
        if len(answered) == 1:
            await stray.wait()
            await stream.send_all(created(request))
            strayed.set()
        await stream.receive_some()

    async def let_it_read() -> None:
        """What a loopback socket was given is there; so the loop has it after a turn."""
        for _ in range(3):
            await asyncio.sleep(0)

    async with raw_server(talk) as url, sender(aio, url, compression="none") as main:
        await main.send(lines(3))
        stray.set()
        await strayed.wait()
        await aio.call(let_it_read)
        outcomes = []
        for _ in range(2):
            try:
                outcomes.append(dict((await main.send(lines(3, seq=2))).others))
            except Later as error:
                outcomes.append(str(error))

    assert [request.count(b"-2-0") for request in answered] == [0, 1]
    assert outcomes == [f"{http_client.address(url)}: connection closed before the answer", {}]


async def test_a_host_that_answers_503_gets_no_request_until_a_probe_which_nobody_counts_succeeds(
    aio: Asyncio, destination: BulkDestination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_rotation, "PROBE_FIRST", 0.01)
    monkeypatch.setattr(host_rotation, "PROBE_LONGEST", 0.05)
    bulks, probes, is_down, back = [], [], True, trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        while True:
            request = await read_request(stream)
            (probes if request.startswith(b"GET / ") else bulks).append(request)
            await stream.send_all(http(b"", "503 Service Unavailable") if is_down else created(request))
            if not is_down:
                back.set()

    async with (
        raw_server(talk) as url,
        counted(aio, destination.url, url, compression="none") as (main, requests),
    ):
        for seq in range(2):
            with suppress(Later):
                await main.send(lines(1, seq))
        with trio.fail_after(60):
            while len(probes) < 3:
                await main.send(lines(1, 2))
        assert len(bulks) == requests.responses["503"] == 1
        assert _KEY.authorization().encode() in probes[0]

        is_down = False
        with trio.fail_after(60):
            await back.wait()
            while len(bulks) < 2:
                await main.send(lines(1, 3))


async def test_an_overloaded_host_keeps_its_turns(aio: Asyncio, destination: BulkDestination) -> None:
    destination.script = lambda request, documents: Reply(status=429)
    async with open_destination(aio, keys={_KEY}) as other, sender(aio, other.url, destination.url) as main:
        for seq in range(4):
            with suppress(Later):
                await main.send(lines(1, seq))

    assert (len(destination.log), other.total) == (2, 2)


async def test_while_all_hosts_are_down_an_attempt_asks_each_of_them_once(aio: Asyncio) -> None:
    dead = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    async with counted(aio, *dead) as (main, requests):
        for _ in range(4):
            with pytest.raises(Later, match="connection refused"):
                await main.send(lines(1))

    assert requests.failures == {"unreachable": 12}


# -- whether a request began -------------------------------------------------------------------------------------------


async def begun(aio: Asyncio, url: str, **settings: Any) -> int:
    """How often it says that a request begins, while it sends twice."""
    told: list[None] = []

    async def begins() -> None:
        told.append(None)

    output = ElasticsearchOutput(credential=ID, hosts=(url,), **settings)
    async with output.open(OutputContext("main", aio, {ID: _KEY}, begins=begins)) as opened:
        for _ in range(2):
            with suppress(Later, Held, TooLarge):
                await opened.send(lines(1))
    return len(told)


@pytest.mark.parametrize("reply", [None, Reply(status=401), Reply(cut="before")])
async def test_the_first_request_is_told_once_whatever_comes_of_it(
    aio: Asyncio, destination: BulkDestination, reply: Reply | None
) -> None:
    destination.script = lambda request, documents: reply

    assert await begun(aio, destination.url) == 1


async def test_nothing_is_written_before_it_is_stored_that_a_request_begins(
    aio: Asyncio, destination: BulkDestination
) -> None:
    stored = trio.Event()
    output = ElasticsearchOutput(credential=ID, hosts=(destination.url,))
    context = OutputContext("main", aio, {ID: _KEY}, begins=stored.wait)
    async with output.open(context) as opened, trio.open_nursery() as nursery:
        nursery.start_soon(opened.send, lines(1))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert destination.total == 0
        stored.set()


async def test_no_request_begins_to_a_host_that_is_not_there_or_not_trusted(
    aio: Asyncio, destination: BulkDestination
) -> None:
    async with open_destination(aio, tls=_server("127.0.0.1")) as other:
        urls = [
            f"http://127.0.0.1:{free_port()}",
            other.url,
            destination.url.replace("http:", "https:"),
        ]

        assert [await begun(aio, url) for url in urls] == [0, 0, 0]


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tls"),
    [("127.0.0.1", _TRUST), ("es.test", certificates.trust(_CA, server_name="es.test"))],
    ids=["the host's", "the one that was set"],
)
async def test_events_go_over_tls_to_a_server_with_the_right_name(aio: Asyncio, name: str, tls: ClientTls) -> None:
    async with (
        open_destination(aio, keys={_KEY}, tls=_server(name)) as other,
        sender(aio, other.url, tls=tls) as main,
    ):
        await main.send(lines(2))

    assert other.total == 2


@pytest.mark.parametrize(
    ("tls", "names", "cause"),
    [
        (ClientTls(), ["127.0.0.1"], "certificate verify failed: unable to get local issuer certificate"),
        (_TRUST, ["es.test"], "certificate verify failed: IP address mismatch"),
        (
            certificates.trust(_CA, server_name="other.test"),
            ["es.test"],
            "certificate verify failed: Hostname mismatch",
        ),
    ],
    ids=["unknown authority", "wrong address", "wrong name"],
)
async def test_a_server_that_is_not_trusted_gets_nothing(
    aio: Asyncio, tls: ClientTls, names: list[str], cause: str
) -> None:
    async with (
        open_destination(aio, tls=_server(*names)) as other,
        sender(aio, other.url, tls=tls) as main,
    ):
        with pytest.raises(Later, match=cause) as error:
            await main.send(lines(1))

    assert str(error.value).startswith(other.url.removeprefix("https://"))
    assert other.log == []


async def test_a_server_that_speaks_no_tls_is_told(aio: Asyncio, destination: BulkDestination) -> None:
    async with sender(aio, destination.url.replace("http:", "https:")) as main:
        with pytest.raises(Later, match=r"TLS: (wrong version number|record layer failure)") as told:
            await main.send(lines(1))
        assert told.value.code == "tls_failed"


async def test_a_certificate_is_a_credential(aio: Asyncio) -> None:
    credential = certificates.credential(_CA, "shipper-1")
    async with open_destination(aio, keys={"CN=shipper-1"}, tls=_server("127.0.0.1", ask=True)) as other:
        async with sender(aio, other.url, tls=_TRUST, credential=credential) as main:
            await main.send(lines(2))
        async with sender(aio, other.url, tls=_TRUST, credential=None) as main:
            with pytest.raises(Later):
                await main.send(lines(2, seq=2))

    assert other.total == 2


# -- opening -----------------------------------------------------------------------------------------------------------


async def test_opening_contacts_nobody(aio: Asyncio) -> None:
    async with sender(aio, f"http://127.0.0.1:{free_port()}"):
        pass


@pytest.mark.parametrize(
    ("credential", "message"),
    [
        ({"api_key": "no base64, canary-secret"}, "api_key"),
        ({"bearer_token": "canary-secret-é"}, "no HTTP header"),
        ({"bearer_token": "canary-secret\r\nHost: other"}, "no HTTP header"),
        ({"certificate": "canary-secret", "key": "canary-secret"}, "bad TLS material"),
    ],
)
async def test_a_credential_that_cannot_be_used_is_told_at_once_and_not_shown(
    aio: Asyncio, credential: dict[str, str], message: str
) -> None:
    with pytest.raises(StartFailed, match=f"output main: .*{message}") as error:
        async with sender(aio, "https://127.0.0.1:1", credential=Credential(credential)):
            pass

    assert "canary" not in str(error.value)


async def test_a_certificate_needs_tls(aio: Asyncio) -> None:
    with pytest.raises(StartFailed, match="https"):
        async with sender(aio, "http://h", credential=Credential.parse({"certificate": "c", "key": "k"})):
            pass


# -- settings ----------------------------------------------------------------------------------------------------------


def configured(**settings: Any) -> ElasticsearchOutput:
    quantities = {Size: Size.parse, Duration: Duration.parse, CredentialId: CredentialId.parse}
    return msgspec.convert(
        {"hosts": ["https://es-1:9200"]} | settings,
        ElasticsearchOutput,
        dec_hook=lambda kind, value: quantities[kind](value),
    )


def test_what_a_policy_writes_is_taken() -> None:
    output = configured(
        hosts=["https://es-1:9200", "http://[::1]:9200/prefix/"],
        index="logs-shop",
        pipeline="geo",
        compression="none",
        workers=4,
        bulk_max_bytes="1MiB",
        timeout="5s",
        backoff={"first": "250ms", "longest": "2m"},
        tls={"server_name": "es"},
        credential="es-2",
    )

    assert (output.bulk_max_bytes, output.timeout, output.backoff.longest) == (1 << 20, 5.0, 120.0)


WRONG: dict[str, list[Any]] = {
    "hosts": [
        *([], "https://es", ["es-1:9200"], ["ftp://es"], ["https://"], ["https://:9200"], ["https://es:port"]),
        *(["https://es:99999"], ["https://user:canary@es"], ["https://es/?q=1"], ["https://es/#a"], ["https://es\n"]),
        *(["https://es\r\nX: y"], ["https://es", "https://es"]),
    ],
    "index": [
        *("", "Logs", "_logs", "-logs", "..", "a/b", "a b", "a*", "a,b", "a#b", "a:b", "a\n", "a\0b", "é" * 128),
    ],
    "state_index": [
        *("", "State", "_state", "{collection}-state", "state-{owner}", "state-{", "state-{collection}/x", "é" * 128),
    ],
    "deletions": ["keep"],
    "pipeline": ["", "a b", "a\n"],
    "compression": ["zstd"],
    "workers": [0],
    "bulk_max_bytes": ["100B"],
    "timeout": ["0s", "2h"],
    "backoff": [{"first": "2m"}, {"first": "0s"}],
    "retries": [3],
}


def test_what_cannot_work_is_refused() -> None:
    alone = [{option: value} for option, values in WRONG.items() for value in values]
    for settings in [*alone, {"index": "all", "state_index": "all"}]:
        with pytest.raises(msgspec.ValidationError) as error:
            configured(**settings)

        assert "canary" not in str(error.value)


def test_only_what_does_not_matter_to_queued_events_is_live() -> None:
    fields = {field.name for field in msgspec.structs.fields(ElasticsearchOutput)}

    assert fields - ElasticsearchOutput.live == {
        *("hosts", "cloud_id", "credential", "headers", "secret_headers", "proxy", "proxy_credential"),
        *("ca_fingerprint", "tls", "index", "indices", "pipeline", "pipelines", "state_index", "deletions"),
    }
