"""The address of a member, asked over real sockets."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from shipper.membership import http as module
from shipper.membership.door import Answer, Door
from shipper.membership.http import serve
from shipper.sdk.server import Limits
from shipper.sdk.tls import server_context
from tests.raw_http import http, raw_server, saying

PATIENCE = 60
LOOPBACK = Door("127.0.0.1")
AUTHORITY = trustme.CA()


class Asked:
    """Answers with what it was asked; a path that ends in `wait` is answered when the test says so."""

    def __init__(self):
        self.begun, self.free, self.cancelled = trio.Event(), trio.Event(), trio.Event()

    async def __call__(self, request):
        if request.path.endswith("wait"):
            self.begun.set()
            try:
                await self.free.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise
        if request.path.endswith("bug"):
            raise KeyError("secret")
        return Answer(200, json.dumps({"path": request.path, "query": request.query}).encode())


class Client:
    """One connection; reads answers by their Content-Length."""

    def __init__(self, stream):
        self.stream, self.text = stream, b""

    async def get(self, path, *headers, method="GET"):
        await self.send(path, *headers, method=method)
        return await self.answer(is_head=method == "HEAD")

    async def send(self, path, *headers, method="GET"):
        lines = [f"{method} {path} HTTP/1.1", *(headers if has_host(headers) else ("Host: 127.0.0.1", *headers))]
        await self.stream.send_all("\r\n".join([*lines, "", ""]).encode())

    async def answer(self, *, is_head=False):
        while b"\r\n\r\n" not in self.text:
            self.text += await self.some()
        head, _, self.text = self.text.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = 0 if is_head else int(headers["content-length"])
        while len(self.text) < length:
            self.text += await self.some()
        body, self.text = self.text[:length], self.text[length:]
        return int(first.split()[1]), headers, body

    async def some(self):
        if not (block := await self.stream.receive_some()):
            raise EOFError
        return bytes(block)


def has_host(headers):
    return any(header.lower().startswith("host:") for header in headers)


@asynccontextmanager
async def serving(
    asked=None, door=LOOPBACK, sidecar=lambda: None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Client]:
    with trio.fail_after(PATIENCE):
        async with serve("127.0.0.1:0", door, asked or Asked(), sidecar) as address, connected(address, tls) as client:
            yield client


@asynccontextmanager
async def connected(address, tls=None):
    host, port = address.split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    if tls is not None:
        stream = trio.SSLStream(stream, tls, server_hostname="127.0.0.1", https_compatible=True)
    try:
        yield Client(stream)
    finally:
        await trio.aclose_forcefully(stream)


async def test_a_question_has_its_path_and_its_query():
    async with serving() as client:
        status, headers, body = await client.get("/fleet/versions/7?stage=drained&wait=30s")

    assert status == 200
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"
    assert json.loads(body) == {"path": "/fleet/versions/7", "query": {"stage": "drained", "wait": "30s"}}


async def test_head_has_the_headers_of_get_and_no_body():
    async with serving() as client:
        _, expected, _ = await client.get("/fleet/members")
        status, headers, _ = await client.get("/fleet/members", method="HEAD")
        again, _, _ = await client.get("/fleet/members")

    assert status == again == 200
    assert headers["content-length"] == expected["content-length"]


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        (("POST", "/fleet/members"), 405),
        (("GET", "/fleets"), 404),
        (("GET", "/"), 404),
        (("GET", "/fleet/members?a=b&c"), 400),
        (("GET", "/fleet/members?" + "&".join(f"a{n}=b" for n in range(17))), 400),
    ],
)
async def test_a_wrong_request_is_refused_with_a_code(request_line, expected):
    method, path = request_line
    async with serving() as client:
        status, _, body = await client.get(path, method=method)

    assert status == expected
    assert json.loads(body).keys() == {"code", "message"}


async def test_a_question_with_a_body_is_refused_and_the_connection_closed():
    async with serving() as client:
        status, headers, _ = await client.get("/fleet/members", "Content-Length: 10")
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await client.some()

    assert status == 413
    assert headers["connection"] == "close"


async def test_what_is_not_http_is_refused():
    async with serving() as client:
        await client.stream.send_all(b"\x16\x03\x01 hello\r\n\r\n")
        status, _, _ = await client.answer()

    assert status == 400


async def test_a_large_head_is_refused():
    async with serving() as client:
        await client.stream.send_all(b"GET /fleet/members HTTP/1.1\r\nA: " + b"a" * (17 << 10))
        status, _, _ = await client.answer()

    assert status in (400, 431)


async def test_a_web_page_with_a_name_of_its_own_reads_nothing():
    async with serving() as client:
        of_fleet = await client.get("/fleet/members", "Host: evil.example:6780")
        of_sidecar = await client.get("/status", "Host: evil.example")

    assert [of_fleet[0], of_sidecar[0]] == [421, 421]


async def test_an_error_of_the_program_is_an_answer_without_its_text():
    async with serving() as client:
        status, _, body = await client.get("/fleet/bug")
        again, _, _ = await client.get("/fleet/members")

    assert (status, again) == (500, 200)
    assert b"secret" not in body


async def test_t152_12_a_client_that_disconnects_ends_its_question_at_once():
    asked = Asked()
    async with serving(asked) as client:
        await client.send("/fleet/wait")
        await asked.begun.wait()
        await client.stream.aclose()
        await asked.cancelled.wait()


async def test_a_second_question_that_comes_early_is_answered_after_the_first():
    asked = Asked()
    async with serving(asked) as client:
        await client.send("/fleet/wait")
        await asked.begun.wait()
        await client.send("/fleet/members")
        asked.free.set()
        first, second = await client.answer(), await client.answer()

    assert [json.loads(answer[2])["path"] for answer in (first, second)] == ["/fleet/wait", "/fleet/members"]


async def test_a_client_that_sends_without_end_while_it_waits_is_dropped():
    asked = Asked()
    async with serving(asked) as client:
        await client.send("/fleet/wait")
        await asked.begun.wait()
        with pytest.raises(trio.BrokenResourceError):
            await without_end(client.stream)
        await asked.cancelled.wait()


async def without_end(stream):
    while True:
        await stream.send_all(b"x" * (64 << 10))


async def test_one_question_too_many_is_refused_and_those_for_the_sidecar_are_not(monkeypatch):
    monkeypatch.setattr(module, "LIMITS", Limits(clients=1, newcomers=4))
    asked = Asked()
    async with raw_server(saying(http(b"{}"))) as sidecar:
        address = sidecar.removeprefix("http://")
        with trio.fail_after(PATIENCE):
            async with (
                serve("127.0.0.1:0", LOOPBACK, asked, lambda: address) as own,
                connected(own) as first,
                connected(own) as second,
            ):
                await first.send("/fleet/wait")
                await asked.begun.wait()
                refused, headers, body = await second.get("/fleet/members")
                passed, _, _ = await second.get("/metrics")

    assert (refused, passed) == (503, 200)
    assert json.loads(body)["code"] == "busy"
    assert headers["retry-after"] == "5"


async def test_questions_about_the_sidecar_are_answered_by_it():
    said = http(b'{"ready": false}', "503 Service Unavailable", "Content-Type: application/json\r\nX-Own: 1\r\n")
    async with (
        raw_server(saying(said)) as sidecar,
        serving(sidecar=lambda: sidecar.removeprefix("http://")) as client,
    ):
        answers = [await client.get(path) for path in ("/livez", "/readyz", "/metrics", "/status")]

    assert {(status, body) for status, _, body in answers} == {(503, b'{"ready": false}')}
    assert {headers["content-type"] for _, headers, _ in answers} == {"application/json"}
    assert "x-own" not in answers[0][1]


async def test_without_a_sidecar_its_questions_have_the_reason():
    async with serving() as client:
        status, _, body = await client.get("/readyz")
        again, _, _ = await client.get("/fleet/members")

    assert (status, again) == (503, 200)
    assert json.loads(body)["code"] == "sidecar_unreachable"


@pytest.mark.parametrize("said", [b"", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_sidecar_that_ends_while_it_is_asked_is_a_503(said):
    async with raw_server(saying(said)) as sidecar, serving(sidecar=lambda: sidecar.removeprefix("http://")) as client:
        status, _, _ = await client.get("/status")

    assert status == 503


async def test_an_answer_of_the_sidecar_that_is_broken_off_is_broken_off():
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    async with raw_server(saying(said)) as sidecar, serving(sidecar=lambda: sidecar.removeprefix("http://")) as client:
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await client.get("/status")


async def test_a_token_is_asked_for_where_there_is_one():
    door = Door("127.0.0.1", tokens=(b"old", b"new"))
    async with serving(door=door) as client:
        answers = [
            (await client.get("/fleet/members", *headers))[0]
            for headers in ((), ("Authorization: Bearer wrong",), ("Authorization: Bearer old",))
        ]
        _, headers, _ = await client.get("/fleet/members", "Authorization: Basic new")
        named, _, _ = await client.get("/fleet/members", "authorization: bearer new", "Host: web-1.example")

    assert answers == [401, 401, 200]
    assert headers["www-authenticate"] == "Bearer"
    assert named == 200


async def test_figures_of_the_sidecar_need_the_token_too_and_its_probes_do_not():
    door = Door("127.0.0.1", tokens=(b"t",))
    async with (
        raw_server(saying(http(b"{}"))) as sidecar,
        serving(door=door, sidecar=lambda: sidecar.removeprefix("http://")) as client,
    ):
        without = [(await client.get(path))[0] for path in ("/livez", "/readyz", "/metrics", "/status")]
        status, _, _ = await client.get("/status", "Authorization: Bearer t")

    assert (without, status) == ([200, 200, 401, 401], 200)


async def test_who_is_not_on_this_host_asks_by_tls():
    made = AUTHORITY.issue_cert("127.0.0.1")
    chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
    door = Door("0.0.0.0", server_context(chain.decode(), made.private_key_pem.bytes().decode()), (b"t",))
    tls = ssl.create_default_context()
    AUTHORITY.configure_trust(tls)
    async with serving(door=door, tls=tls) as client:
        answers = [(await client.get("/fleet/members", *headers))[0] for headers in ((), ("Authorization: Bearer t",))]

    assert answers == [401, 200]


@pytest.mark.parametrize("door", [Door("0.0.0.0"), Door("0.0.0.0", tokens=(b"t",))])
async def test_an_address_that_is_not_loopback_says_nothing_of_the_fleet_without_tls_and_token(door):
    async with (
        raw_server(saying(http(b"{}"))) as sidecar,
        serving(door=door, sidecar=lambda: sidecar.removeprefix("http://")) as client,
    ):
        of_fleet, _, _ = await client.get("/fleet/members", "Authorization: Bearer t")
        of_sidecar, _, _ = await client.get("/livez")

    assert (of_fleet, of_sidecar) == (403, 200)


async def test_an_address_that_is_taken_is_no_reason_to_stop():
    async with (
        serve("127.0.0.1:0", LOOPBACK, Asked(), lambda: None) as first,
        serve(str(first), LOOPBACK, Asked(), lambda: None) as second,
    ):
        assert second is None
