"""The bounded server over real sockets."""

import socket
import ssl
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
import trustme

from shipper.sdk import server as module
from shipper.sdk.server import Limits, Server
from shipper.sdk.tls import server_context
from tests import certificates

PATIENCE = 60
AUTHORITY = trustme.CA()


def a_context():
    return server_context(*certificates.identity(AUTHORITY, "127.0.0.1"))


class Talk:
    """A handler that keeps what came; `+` lets a peer in, `k…` shows a credential, `b` is busy until `free`, `!` is a
    bug, `.` ends."""

    def __init__(self):
        self.seen, self.refused = [], 0
        self.free = trio.Event()
        self.news = trio.Event()

    def tell(self):
        self.news.set()
        self.news = trio.Event()

    async def until(self, condition):
        while not condition():
            await self.news.wait()

    async def __call__(self, peer):
        while block := await peer.receive():
            self.seen.append(block)
            self.tell()
            if block == b"!":
                raise KeyError("secret")
            if block == b".":
                return
            if block.startswith(b"k"):
                peer.shown.add(block[1:])
            if block == b"+" and not peer.let_in():
                self.refused += 1
                return
            if block == b"b":
                with peer.busy():
                    await self.free.wait()
            await peer.send(b"ok")


class Running:
    def __init__(self, server, talk, listener, told):
        self.server, self.talk, self.listener, self.told = server, talk, listener, told
        self.opened = []

    async def connect(self):
        stream = await trio.open_tcp_stream(*self.listener.getsockname())
        self.opened.append(stream)
        return stream

    async def said(self, text):
        """A connection on which this was said and answered."""
        stream = await self.connect()
        await ask(stream, text)
        return stream


async def ask(stream, text):
    await stream.send_all(text)
    assert await stream.receive_some() == b"ok"


async def is_over(stream):
    """Wait until the peer has closed it."""
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass
    return True


@asynccontextmanager
async def serving(tls=None, **limits):
    told, talk = [], Talk()

    def tell(*news):
        told.append(news)
        talk.tell()

    server = Server(talk, tls=tls, limits=Limits(**limits), tell=tell)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.serve, listener)
                running = Running(server, talk, listener, told)
                yield running
                nursery.cancel_scope.cancel()
        for stream in running.opened:
            await trio.aclose_forcefully(stream)


async def test_each_peer_has_its_own_call_and_is_closed_when_that_returns():
    async with serving() as on:
        one, two = await on.said(b"1"), await on.said(b"2")
        await one.send_all(b".")
        assert await is_over(one)
        await ask(two, b"3")

        assert on.talk.seen == [b"1", b"2", b".", b"3"]


async def test_when_it_is_cancelled_all_connections_are_closed_and_the_listening_socket_stays_open():
    with socket.create_server(("127.0.0.1", 0)) as listener, trio.fail_after(PATIENCE):
        listener.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(Talk()).serve, listener)
            stream = await trio.open_tcp_stream(*listener.getsockname())
            await ask(stream, b"+")
            nursery.cancel_scope.cancel()

        assert await is_over(stream)
        await trio.aclose_forcefully(stream)
        async with await trio.open_tcp_stream(*listener.getsockname()):
            pass


async def test_newcomers_displace_their_own_kind_and_that_is_told():
    async with serving(newcomers=2) as on:
        client = await on.said(b"+")
        first, second, third = [await on.said(b"x") for _ in range(3)]

        assert await is_over(first)
        for stream in (client, second, third):
            await ask(stream, b"x")
        await on.talk.until(lambda: on.told)
        assert on.told[0][0] == 1
        assert "127.0.0.1" in on.told[0][1]


async def test_that_it_is_over_is_told_too(monkeypatch):
    monkeypatch.setattr(module, "TELL_SECONDS", 0.01)
    async with serving(newcomers=1) as on:
        await on.said(b"x")
        await on.said(b"x")
        await on.talk.until(lambda: on.told[-1:] == [(0, None)])


async def test_a_client_too_many_displaces_an_idle_one_or_is_refused():
    async with serving(clients=1) as on:
        idle = await on.said(b"+")
        busy = await on.said(b"+")
        assert await is_over(idle)
        await busy.send_all(b"b")
        await on.talk.until(lambda: on.talk.seen[-1] == b"b")
        third = await on.connect()
        await third.send_all(b"+")

        assert await is_over(third)
        assert on.talk.refused == 1
        on.talk.free.set()
        assert await busy.receive_some() == b"ok"


async def test_a_peer_that_says_nothing_is_closed():
    async with serving(idle_seconds=0.05) as on:
        assert await is_over(await on.said(b"+"))


async def test_a_peer_that_reads_nothing_is_closed():
    over = trio.Event()

    async def flood(peer):
        try:
            while True:
                await peer.send(b"x" * (1 << 20))
        finally:
            over.set()

    async with serving(idle_seconds=0.1) as on:
        on.server._handler = flood
        await on.connect()
        await over.wait()


async def test_a_handshake_that_does_not_end_is_given_up():
    async with serving(a_context(), handshake_seconds=0.05) as on:
        assert await is_over(await on.connect())
        assert on.talk.seen == []


async def test_what_is_no_handshake_ends_that_connection_only():
    trust = ssl.create_default_context(cadata=certificates.pem(AUTHORITY))
    async with serving(a_context()) as on:
        plain = await on.connect()
        await plain.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert await is_over(plain)
        secure = trio.SSLStream(await on.connect(), trust, server_hostname="127.0.0.1")
        await ask(secure, b"+")


async def test_a_bug_of_the_handler_ends_one_connection_and_its_words_are_not_logged(caplog):
    async with serving() as on:
        broken, other = await on.connect(), await on.said(b"+")
        await broken.send_all(b"!")
        assert await is_over(broken)
        await ask(other, b"x")

    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("to_tls", [True, False])
async def test_after_a_renewal_no_connection_of_before_is_open(to_tls):
    """Also one that was opened without TLS, before it was required."""
    async with serving(None if to_tls else a_context()) as on:
        if to_tls:
            before = await on.said(b"+")
        else:
            trust = ssl.create_default_context(cadata=certificates.pem(AUTHORITY))
            before = trio.SSLStream(await on.connect(), trust, server_hostname="127.0.0.1")
            await ask(before, b"+")
        on.server.tls = a_context()
        await on.server.renew()

        assert not on.server._peers
        assert await is_over(before)


async def test_after_a_renewal_nobody_is_connected_who_has_shown_a_removed_credential():
    """However quiet: nothing of theirs is judged any more."""
    async with serving() as on:
        old, new, without = await on.said(b"kold"), await on.said(b"knew"), await on.said(b"+")
        await on.server.renew([b"new"])

        assert await is_over(old)
        for stream in (new, without):
            await ask(stream, b"x")


async def test_a_renewal_waits_for_what_is_busy():
    async with serving() as on:
        busy = await on.said(b"+")
        await busy.send_all(b"b")
        await on.talk.until(lambda: on.talk.seen[-1] == b"b")
        on.server.tls = a_context()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.server.renew)
            await trio.testing.wait_all_tasks_blocked()
            assert on.server._peers
            on.talk.free.set()

        assert await is_over(busy)


async def test_a_renewal_does_not_wait_for_ever():
    async with serving(leaving_seconds=0.05) as on:
        busy = await on.said(b"+")
        await busy.send_all(b"b")
        await on.talk.until(lambda: on.talk.seen[-1] == b"b")
        on.server.tls = a_context()
        await on.server.renew()

        assert await is_over(busy)


async def test_for_want_of_descriptors_newcomers_are_closed(monkeypatch):
    async with serving() as on:
        idle = await on.said(b"x")
        monkeypatch.setattr(module, "is_reserved", lambda descriptor: True)
        assert await is_over(await on.connect())
        assert await is_over(idle)
        await on.talk.until(lambda: on.told)
        assert "Too many open files" in on.told[0][1]


async def test_it_serves_a_socket_in_the_file_system(tmp_path):
    seen = []

    async def note(peer):
        seen.append((peer.address, await peer.receive()))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "in"))
        listener.listen()
        listener.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(note).serve, listener)
            with trio.fail_after(PATIENCE):
                async with await trio.open_unix_socket(str(tmp_path / "in")) as stream:
                    await stream.send_all(b"x")
                    assert await is_over(stream)
            nursery.cancel_scope.cancel()

    assert seen == [("this host", b"x")]
