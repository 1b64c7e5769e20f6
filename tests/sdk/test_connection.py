"""Connections that are aborted when they are closed, to real sockets on loopback."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from shipper.plugin import Code, Endpoint
from shipper.sdk import connection as module
from shipper.sdk.connection import broken_off, connected_socket, open_stream, unreachable
from shipper.sdk.http_answer import Unreachable
from shipper.sdk.proxies import Proxy
from tests import certificates

AUTHORITY = trustme.CA()
BIG = 32 << 20


@asynccontextmanager
async def listening(talk: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[Endpoint]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, talk, 0, host="127.0.0.1"))
        yield Endpoint("tcp", "127.0.0.1", listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


class Slow:
    """A peer that reads nothing before `go_on`, and then all."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.go_on, self.ended = trio.Event(), trio.Event()
        self.received, self.end = 0, ""

    async def talk(self, plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = plain
        if self.tls is not None:
            stream = trio.SSLStream(plain, self.tls, server_side=True)
            await stream.do_handshake()
        await self.go_on.wait()
        try:
            while block := await stream.receive_some(1 << 16):
                self.received += len(block)
            self.end = "closed"
        except trio.BrokenResourceError:
            self.end = "reset"
        self.ended.set()


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


async def send_until_cancelled(stream: trio.abc.Stream) -> None:
    with trio.move_on_after(0.05) as scope:
        await stream.send_all(bytes(BIG))
    assert scope.cancelled_caught


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_after_it_is_closed_the_peer_gets_a_reset_and_nothing_of_what_was_held_back(tls: bool) -> None:
    peer = Slow(certificates.server(AUTHORITY, "localhost") if tls else None)
    async with listening(peer.talk) as endpoint:
        stream = await open_stream(endpoint, trusting() if tls else None, server_name="localhost")
        await send_until_cancelled(stream)
        await trio.aclose_forcefully(stream)
        peer.go_on.set()
        await peer.ended.wait()

    assert peer.end == "reset"
    assert peer.received < BIG


async def test_a_socket_for_another_loop_is_aborted_too() -> None:
    peer = Slow()
    async with listening(peer.talk) as endpoint:
        made = await connected_socket(endpoint)
        assert not made.getblocking()
        with suppress(BlockingIOError):
            while True:
                made.send(bytes(1 << 20))
        made.close()
        peer.go_on.set()
        await peer.ended.wait()

    assert peer.end == "reset"


async def test_a_socket_in_the_file_system_is_talked_to(tmp_path: Path) -> None:
    path = str(tmp_path / "app.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        stream = await open_stream(Endpoint("unix", path=path))
        peer, _ = listener.accept()
        with peer:
            await stream.send_all(b"hello")
            assert peer.recv(10) == b"hello"
            await trio.aclose_forcefully(stream)
            assert peer.recv(10) == b""


async def test_a_socket_in_the_file_system_that_nobody_accepts_from_is_unreachable(tmp_path: Path) -> None:
    path = str(tmp_path / "app.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            with pytest.raises(Unreachable, match=r"resource temporarily unavailable$"):
                await open_stream(Endpoint("unix", path=path))
    with pytest.raises(Unreachable, match=r"connection refused$"):
        await open_stream(Endpoint("unix", path=path))
    with pytest.raises(Unreachable, match=rf"^{path}x: no such file or directory$"):
        await open_stream(Endpoint("unix", path=f"{path}x"))


async def test_a_file_system_that_does_not_answer_holds_one_thread_and_no_other_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked, joined = threading.Event(), list[str](), module._joined

    def hang(path: str) -> socket.socket:
        asked.append(path)
        if path == "/hangs":
            answers.wait(20)
        return joined(path)

    monkeypatch.setattr(module, "_joined", hang)
    try:
        for _ in range(3):
            with pytest.raises(Unreachable, match=r"^/hangs: no connection within 0.05s$") as late:
                await open_stream(Endpoint("unix", path="/hangs"), seconds=0.05)
        with pytest.raises(Unreachable, match="no such file"):
            await open_stream(Endpoint("unix", path=str(tmp_path / "other")))
    finally:
        answers.set()

    assert late.value.code == Code.TIMED_OUT
    assert asked.count("/hangs") == 1


async def test_a_peer_that_says_nothing_in_the_handshake_is_left_after_a_time() -> None:
    closed = trio.Event()

    async def talk(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while True:
                await stream.receive_some()
        closed.set()

    async with listening(talk) as endpoint:
        with pytest.raises(Unreachable, match=r"no connection within 0.1s$") as late:
            await open_stream(endpoint, trusting(), server_name="localhost", seconds=0.1)
        await closed.wait()

    assert (late.value.code, late.value.failure) == (Code.TIMED_OUT, "timeout")


async def test_a_server_of_another_name_is_unreachable() -> None:
    async def talk(stream: trio.SocketStream) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await trio.SSLStream(stream, certificates.server(AUTHORITY, "other.test"), server_side=True).do_handshake()

    async with listening(talk) as endpoint:
        with pytest.raises(Unreachable, match=r": certificate verify failed: ") as refused:
            await open_stream(endpoint, trusting(), server_name="localhost")

    assert (refused.value.code, refused.value.failure) == (Code.TLS_FAILED, "tls")


async def test_the_first_address_that_takes_a_connection_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        there = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", 0)) as other:
            nobody = (*there[:4], other.getsockname())

        async def resolve(*_: object, **__: object) -> list[object]:
            return [nobody, there]

        monkeypatch.setattr(module, "resolve", resolve)
        made = await connected_socket(Endpoint("tcp", "es.test", port))
        with made:
            assert made.getpeername() == ("127.0.0.1", port)


async def test_a_name_that_is_none_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"^es.invalid:9092: name not found \(") as unknown:
        await open_stream(Endpoint("tcp", "es.invalid", 9092))

    assert unknown.value.code == Code.NAME_NOT_FOUND


@pytest.mark.parametrize(
    ("error", "said", "failure", "code"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused", "unreachable", Code.UNREACHABLE),
        (OSError(errno.EMFILE, "x"), os.strerror(errno.EMFILE), "unreachable", Code.NO_DESCRIPTORS),
        (ssl.SSLError(1, "canary"), "TLS: failed", "tls", Code.TLS_FAILED),
        (trio.BrokenResourceError("canary"), "connection closed before the answer", "unreachable", Code.UNREACHABLE),
    ],
)
def test_an_error_becomes_words_a_kind_and_a_code(error: Exception, said: str, failure: str, code: Code) -> None:
    told = unreachable("x:1", error)

    assert str(told).startswith(f"x:1: {said}")
    assert (told.failure, told.code) == (failure, code)


def test_after_something_was_sent_it_is_broken_off() -> None:
    outer = trio.BrokenResourceError()
    outer.__cause__ = ConnectionResetError(errno.ECONNRESET, "canary")
    told = [broken_off("x:1", error) for error in (outer, ssl.SSLError(1, "canary"), None)]

    assert [str(one) for one in told] == [
        "x:1: connection reset by peer",
        "x:1: TLS: failed",
        "x:1: connection closed before the answer",
    ]
    assert [(one.failure, one.code) for one in told] == [
        ("broken", Code.NO_ANSWER),
        ("tls", Code.TLS_FAILED),
        ("broken", Code.NO_ANSWER),
    ]
    assert not any(isinstance(one, Unreachable) for one in told)


# -- through a proxy ---------------------------------------------------------------------------------------------------

FAR = Endpoint("tcp", "far.test", 9000)


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[Proxy]:
    """A proxy that answers in pieces, and closes."""

    async def talk(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        for piece in pieces:
            await stream.send_all(piece)
            await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()

    async with listening(talk) as endpoint:
        yield Proxy(f"http://{endpoint.address}")


@pytest.mark.parametrize(
    "pieces", [(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nhello",), (b"HTTP/1.1 200", b" OK\r\n\r\nhello")]
)
async def test_what_the_host_says_after_the_answer_of_a_proxy_is_read(pieces: tuple[bytes, ...]) -> None:
    async with answering(*pieces) as proxy:
        stream = await open_stream(FAR, proxy=proxy)
        with trio.fail_after(60):
            assert await stream.receive_some(100) == b"hello"
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((), "connection closed before the answer"),
        ((b"HTTP/1.1 200 OK\r\n",), "the answer is not HTTP"),
        ((b"x" * (20 << 10),), "the answer is not HTTP"),
        ((b"HTTP/1.1 403 canary\r\n\r\n",), "the proxy answered 403"),
    ],
)
async def test_what_is_no_tunnel_is_told(pieces: tuple[bytes, ...], said: str) -> None:
    async with answering(*pieces) as proxy:
        with trio.fail_after(60), pytest.raises(Unreachable) as why:
            await open_stream(FAR, proxy=proxy)

        assert str(why.value) == f"far.test:9000 by the proxy {proxy.address}: {said}"


async def test_a_proxy_that_says_nothing_is_given_up() -> None:
    async def talk(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with listening(talk) as endpoint:
        proxy = Proxy(f"http://{endpoint.address}")
        with pytest.raises(Unreachable, match=r"^far.test:9000 by the proxy .*: no connection within 0.1s$"):
            await open_stream(FAR, proxy=proxy, seconds=0.1)
