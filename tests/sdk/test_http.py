"""The client of HTTP against real servers on loopback, some of them ugly. What outputs do with it, their tests say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
import trio
import trustme

from shipper.plugin import Asyncio, Code, NotBegun, client_context
from shipper.sdk.aio import open_asyncio
from shipper.sdk.http import _SMALL, Client, Method, _Body, open_client
from shipper.sdk.http_answer import USER_AGENT, NoAnswer, Unreachable
from shipper.sdk.tallies import Requests
from tests import certificates
from tests.raw_http import http, raw_server, read_request, some

BIG = 16 << 20


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(60):
        async with open_asyncio() as opened:
            yield opened


@asynccontextmanager
async def client(aio: Asyncio, headers: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Client]:
    options = {"connections": 1, "seconds": 20, **options}
    async with open_client(aio, headers or {}, False, **options) as opened:
        yield opened


class Noting:
    """A server that keeps the heads of all requests, and answers each with `answer`."""

    def __init__(self, answer: bytes = http(b"ok")) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.connections = 0
        self.closed = trio.Event()

    async def talk(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append((await read_request(stream)).decode())
                await stream.send_all(self.answer)
        finally:
            self.closed.set()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Those of the last request, the names in small letters."""
        lines = self.requests[-1].partition("\r\n\r\n")[0].split("\r\n")[1:]
        return [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", get_args(Method))
async def test_a_request_has_its_method_path_and_query(aio: Asyncio, method: Method) -> None:
    server = Noting(http(b"" if method == "HEAD" else b"ok"))
    async with raw_server(server.talk) as url, client(aio) as asking:
        response = await asking.request(method, f"{url}/base/", "/there?a=1%262&b=,*")

    assert server.requests[-1].startswith(f"{method} /base/there?a=1%262&b=,* HTTP/1.1\r\n")
    assert response.status == 200


async def test_the_body_of_a_request_is_its_pieces(aio: Asyncio) -> None:
    server = Noting()
    async with raw_server(server.talk) as url, client(aio) as asking:
        await asking.request("PUT", url, "/", [b"one ", b"", b"two"])

    assert server.requests[-1].endswith("\r\n\r\none two")
    assert ("content-length", "7") in server.headers


async def test_a_request_has_headers_of_its_own_in_place_of_those_of_the_client(aio: Asyncio) -> None:
    server = Noting()
    async with raw_server(server.talk) as url, client(aio, {"X-Kind": "all", "X-Other": "kept"}) as asking:
        await asking.post(url, "/", [b"x"], headers={"x-kind": "this", "X-Number": "7"})
        own = [value for name, value in server.headers if name == "x-kind"]
        others = {("x-other", "kept"), ("x-number", "7")}.intersection(server.headers)
        await asking.post(url, "/", [b"x"])

    assert (own, len(others)) == (["this"], 2)
    assert ("x-kind", "all") in server.headers
    assert "x-number" not in dict(server.headers)


async def test_a_header_cannot_begin_another_one(aio: Asyncio) -> None:
    server = Noting()
    async with raw_server(server.talk) as url, client(aio) as asking:
        with pytest.raises(ValueError):
            await asking.post(url, "/", [b"x"], headers={"X-Kind": "a\r\nX-Other: b"})

    assert server.requests == []


@pytest.mark.parametrize("headers", [{}, {"user-agent": "mine/1"}])
async def test_a_client_names_this_program_unless_it_names_another(aio: Asyncio, headers: dict[str, str]) -> None:
    server = Noting()
    async with raw_server(server.talk) as url, client(aio, headers) as asking:
        await asking.request("GET", url, "/")

    agents = [value for name, value in server.headers if name == "user-agent"]
    assert agents == [headers.get("user-agent", USER_AGENT)]


async def test_no_method_follows_a_redirection(aio: Asyncio) -> None:
    cases: list[tuple[Method, str]] = [(method, "307 Temporary") for method in get_args(Method)]
    cases += [("POST", status) for status in ("301 Moved", "302 Found", "303 See Other", "308 Permanent")]
    for method, status in cases:
        other = Noting()
        async with raw_server(other.talk) as elsewhere:
            server = Noting(http(b"", status, f"Location: {elsewhere}/\r\n"))
            async with raw_server(server.talk) as url, client(aio, {"Authorization": "canary"}) as asking:
                response = await asking.request(method, url, "/")

        assert response.status == int(status[:3])
        assert (len(server.requests), other.connections) == (1, 0)


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["200 OK", "201 Created"])
async def test_an_answer_is_read_up_to_the_size_that_is_asked_for(aio: Asyncio, status: str) -> None:
    body = bytes(range(256)) * 12_000
    server = Noting(http(body, status))
    async with raw_server(server.talk) as url, client(aio) as asking:
        response = await asking.request("GET", url, "/", most=len(body))
        with pytest.raises(NoAnswer, match="too large") as refused:
            await asking.request("GET", url, "/", most=len(body) - 1)
        with pytest.raises(NoAnswer, match="too large"):
            await asking.request("GET", url, "/")

    assert response.body == body
    assert refused.value.code == Code.BAD_ANSWER


async def test_a_request_ends_with_its_answer_though_the_peer_reads_no_more_of_it(aio: Asyncio) -> None:
    ended = trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        await some(stream)
        await stream.send_all(http(b"", "413 Payload Too Large"))
        await ended.wait()

    async with raw_server(talk) as url, client(aio) as asking:
        response = await asking.post(url, "/", [bytes(BIG)])
        ended.set()

    assert response.status == 413


async def test_a_request_is_counted_by_its_answer_or_its_failure_unless_it_is_cancelled_or_not_begun(
    aio: Asyncio,
) -> None:
    requests, may = Requests(), [True]
    begun = trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        head = await read_request(stream)
        if b"/hang" in head:
            begun.set()
            await trio.sleep_forever()
        if b"/none" not in head:
            await stream.send_all(http(b"", "503 Busy", "Connection: close\r\n"))

    async with raw_server(talk) as url, client(aio, requests=requests, may_begin=lambda: may[0]) as asking:
        await asking.request("GET", url, "/")
        with pytest.raises(NoAnswer):
            await asking.request("GET", url, "/none")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asking.request, "GET", url, "/hang")
            await begun.wait()
            nursery.cancel_scope.cancel()
        may[0] = False
        with pytest.raises(NotBegun):
            await asking.request("GET", url, "/")

    assert (requests.responses, requests.failures, requests.count) == ({"503": 1}, {"broken": 1}, 2)


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
async def test_a_request_that_a_kept_connection_did_not_answer_is_not_sent_again(aio: Asyncio, method: Method) -> None:
    connections = 0

    async def talk(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await read_request(stream)
        await stream.send_all(http(b"first"))
        await read_request(stream)

    async with raw_server(talk) as url, client(aio) as asking:
        await asking.request(method, url, "/", [b"x"])
        with pytest.raises(NoAnswer, match="connection closed before the answer") as error:
            await asking.request(method, url, "/", [b"x"])

    assert connections == 1
    assert not isinstance(error.value, Unreachable)


async def test_a_connection_without_requests_is_closed_after_its_time(aio: Asyncio) -> None:
    server = Noting()
    async with raw_server(server.talk) as url, client(aio, idle=0.05) as asking:
        await asking.request("GET", url, "/")
        await server.closed.wait()

    assert server.connections == 1


async def test_many_requests_go_over_one_connection_that_shows_a_certificate(aio: Asyncio) -> None:
    authority = trustme.CA()
    connections, asked, answer = 0, 0, http(bytes(3 << 20))

    async def talk(plain: trio.SocketStream) -> None:
        nonlocal connections, asked
        connections += 1
        stream = trio.SSLStream(plain, certificates.server(authority, "127.0.0.1", ask=True), server_side=True)
        await stream.do_handshake()
        assert stream.getpeercert()
        for _ in range(20):
            await read_request(stream)
            asked += 1
            await stream.send_all(answer if asked % 5 == 0 else http(b"ok"))

    context = client_context(certificates.trust(authority), certificates.credential(authority, "client"))
    async with (
        raw_server(talk) as url,
        open_client(aio, {}, context, connections=1, seconds=20) as asking,
    ):
        secure = url.replace("http:", "https:")
        sizes = [len((await asking.post(secure, f"/{n}", [b"x"], most=4 << 20)).body) for n in range(20)]

    assert sizes.count(3 << 20) == 4
    assert (connections, asked) == (1, 20)


@pytest.mark.parametrize(("size", "writes"), [(_SMALL // 4, 1), (_SMALL // 4 + 1, 4)])
async def test_a_small_body_of_many_pieces_is_one_write(size: int, writes: int) -> None:
    written: list[bytes] = []

    class Writer:
        async def write(self, piece: memoryview) -> None:
            written.append(bytes(piece))

    await _Body([bytes([number]) * size for number in range(4)]).write(Writer())

    assert len(written) == writes
    assert b"".join(written) == b"".join([bytes([number]) * size for number in range(4)])
