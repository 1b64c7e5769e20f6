"""Connections of the bulk server, without what is told of them."""

import asyncio
import itertools
import re
import socket
import types
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st

from shipper_plugins.elasticsearch.server import connections
from shipper_plugins.elasticsearch.server.connections import Connections


async def unanswered(request):
    raise AssertionError


def test_a_tale_that_outlives_the_cancel_does_not_outlive_the_server(monkeypatch):
    """`Asyncio.answer` keeps an answer that beats a cancel, and the cancel is gone then."""
    monkeypatch.setattr(connections, "MOST_NEWCOMERS", 1)

    async def main(listener):
        telling = asyncio.Event()

        async def tell(count, text):
            telling.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return

        server = web.Server(unanswered)
        accepting = asyncio.create_task(Connections(server, lambda: None, tell).accept(listener))
        peers = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        await telling.wait()
        accepting.cancel()
        await asyncio.wait({accepting}, timeout=20)
        for peer in peers:
            peer.close()
        while server.connections:  # noqa: ASYNC110 (aiohttp has no event; what a loop leaves open is told of later)
            await asyncio.sleep(0)
        return accepting.cancelled()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        assert asyncio.run(main(listener))


# -- repeated requests -------------------------------------------------------------------------------------------------


def request(path, body=b"{}"):
    return b"POST %b HTTP/1.1\r\nhost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


BEAT, OTHER = request("/beat"), request("/other")
WITHIN = request("/other", BEAT).removesuffix(BEAT)
"""The head of a request whose body is another request."""
LONG = request("/beat", b"x" * connections.MOST_REPEATED)
AGAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain"


class Peer:
    """A client of one connection."""

    def __init__(self, send, stream):
        self.send, self._stream = send, stream

    async def ask(self, piece, answers=1):
        """Sends something, and returns the bodies of so many answers."""
        self.send(piece)
        return await self.answers(answers)

    async def answers(self, count):
        return [await self._answer() for _ in range(count)]

    async def is_closed(self):
        return await self._stream.read() == b""

    async def _answer(self):
        head = await self._stream.readuntil(b"\r\n\r\n")
        return (await self._stream.readexactly(int(re.search(rb"Content-Length: ([0-9]+)", head)[1]))).decode()


class Beats:
    """Answers a request by its path, and a `/beat` that is repeated by AGAIN while that is permitted."""

    def __init__(self):
        self.is_permitted = True
        self._server = web.Server(self._answer)
        self.connections = Connections(self._server, lambda: None, unanswered)

    async def _answer(self, request):
        with self.connections.busy(request):
            body = await request.read()
            self.connections.let_in(request)
            if request.path == "/beat":
                self.connections.repeat(request, body, lambda: AGAIN if self.is_permitted else None)
                await asyncio.sleep(0)  # another request may arrive now
            response = web.Response(text=request.path)
            await response.prepare(request)
            await response.write_eof()
            return response

    @asynccontextmanager
    async def connection(self):
        """A connection and its peer; what that sends arrives in the same pieces, at once."""
        near, far = socket.socketpair()
        connection = connections._Connection(self._server, lambda one: None)
        connection.opening = asyncio.current_task()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, near)
        stream, writer = await asyncio.open_connection(sock=far)
        try:
            async with asyncio.timeout(20):
                yield connection, Peer(connection.data_received, stream)
        finally:
            connection.force_close()
            writer.close()


@pytest.mark.parametrize(
    "talk",
    [
        [(BEAT, ["/beat"]), (BEAT, ["again"]), (BEAT, ["again"])],
        [(BEAT, ["/beat"]), (OTHER, ["/other"]), (BEAT, ["/beat"]), (BEAT, ["again"])],
        [(BEAT, ["/beat"]), (request("/beat", b"[]"), ["/beat"]), (BEAT, ["/beat"])],
        [(BEAT[:9], []), (BEAT[9:], ["/beat"]), (BEAT, ["/beat"]), (BEAT, ["again"])],
        [(BEAT + BEAT, ["/beat", "/beat"]), (BEAT, ["/beat"]), (BEAT, ["again"])],
        [(BEAT, ["/beat"]), (WITHIN, []), (BEAT, ["/other"]), (BEAT, ["/beat"])],
        [(LONG, ["/beat"]), (LONG, ["/beat"])],
    ],
)
def test_only_a_request_that_follows_itself_byte_by_byte_is_answered_again(talk):
    async def main():
        async with Beats().connection() as (_, peer):
            return [await peer.ask(piece, len(answers)) for piece, answers in talk]

    assert asyncio.run(main()) == [answers for _, answers in talk]


def cuts(sizes, end):
    """Where something of this length is cut into pieces of these sizes, in turn."""
    return [*itertools.takewhile(lambda at: at < end, itertools.accumulate(itertools.cycle(sizes), initial=0)), end]


@given(
    requests=st.lists(st.sampled_from([BEAT, OTHER]), max_size=8),
    sizes=st.lists(st.sampled_from([len(BEAT), len(BEAT) + len(OTHER), 9]), min_size=1),
    turns=st.lists(st.integers(0, 6), min_size=1),
)
@example(requests=[BEAT, OTHER, BEAT, BEAT], sizes=[len(BEAT + OTHER), len(BEAT), len(BEAT)], turns=[0, 2])
@example(requests=[BEAT, OTHER, BEAT, BEAT], sizes=[len(BEAT + OTHER), len(BEAT), len(BEAT)], turns=[0, 3])
@example(requests=[BEAT, BEAT], sizes=[len(BEAT)], turns=[2])
@example(requests=[BEAT, OTHER, BEAT, BEAT], sizes=[len(BEAT + OTHER), len(BEAT), len(BEAT)], turns=[0, 4])
def test_answers_come_in_the_order_of_the_requests_however_these_arrive(requests, sizes, turns):
    """`turns` is how often the loop runs after a piece."""

    paths = {BEAT: "/beat", OTHER: "/other"}
    left = b"".join(requests)
    pieces = [left[begin:end] for begin, end in itertools.pairwise(cuts(sizes, len(left)))]

    async def main():
        async with Beats().connection() as (_, peer):
            for piece, several in zip(pieces, itertools.cycle(turns), strict=False):
                peer.send(piece)
                for _ in range(several):
                    await asyncio.sleep(0)
            return await peer.answers(len(requests))

    answers = asyncio.run(main())
    assert answers[:1] != ["again"]
    assert [answer.replace("again", "/beat") for answer in answers] == [paths[one] for one in requests]


def test_a_repeated_request_that_is_not_permitted_any_more_is_judged_like_a_new_one():
    async def main():
        beats = Beats()
        async with beats.connection() as (_, peer):
            await peer.ask(BEAT)
            beats.is_permitted = False
            return await peer.ask(BEAT)

    assert asyncio.run(main()) == ["/beat"]


def test_a_peer_that_repeats_its_request_and_reads_no_answer_is_cut_off():
    async def main():
        async with Beats().connection() as (connection, peer):
            await peer.ask(BEAT)
            while connection.transport is not None:
                peer.send(BEAT)
                assert not connection.writing_paused or connection.transport is None

    asyncio.run(main())


def test_a_connection_is_idle_since_its_last_request_also_if_that_was_repeated(monkeypatch):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.01)
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(connections, "time", types.SimpleNamespace(monotonic=lambda: clock.now))

    async def main(listener):
        accepting = asyncio.create_task(Beats().connections.accept(listener))
        streams = [await asyncio.open_connection(*listener.getsockname()) for _ in range(2)]
        one, other = (Peer(writer.write, reader) for reader, writer in streams)
        async with asyncio.timeout(20):
            for peer in (one, other):
                await peer.ask(BEAT)
            clock.now = 0.009
            await one.ask(BEAT)
            clock.now = 0.018
            assert await other.is_closed()
            answers = await one.ask(BEAT)
        for _, writer in streams:
            writer.close()
        accepting.cancel()
        await asyncio.wait({accepting})
        return answers

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        assert asyncio.run(main(listener)) == ["again"]
