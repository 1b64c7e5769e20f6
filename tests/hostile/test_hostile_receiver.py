"""Requests that are no requests, or two at once: each answered or closed, nothing stored twice, others served."""

from __future__ import annotations

import json
import resource
import socket
import struct
from contextlib import suppress
from random import Random

import pytest
import trio

from shipper.sdk import bodies as bounds
from shipper_plugins.elasticsearch.server import connections as bulk_connections
from tests.hostile.receiver import PATIENCE, Receiver, receiving
from tests.hostile.requests import AMBIGUOUS, BOMB, CLOSE, Case, ambiguous, documents, post, sound, token
from tests.hostile.rounds import requests_round

OTHERS = 10_000_000
"""The case of a client that ships while others misbehave."""


async def served(receiver: Receiver, number: int = OTHERS) -> None:
    """A sound client is answered at once."""
    with trio.fail_after(60):
        await receiver.judge(number, Case(sound(number, 3, CLOSE), 1, 3, exact=True))


async def test_every_case_of_a_flood_is_answered_as_it_deserves() -> None:
    assert (await requests_round(seed=0, count=400)).figures["requests"] > 400


@pytest.mark.parametrize("framing", AMBIGUOUS)
async def test_a_framing_that_two_servers_may_read_differently_is_refused_and_closed(framing: str) -> None:
    async with receiving() as receiver:
        case = ambiguous(1, framing)
        said, ended = await receiver.exchange(case.raw, PATIENCE)
        answers = await receiver.judge(1, case, PATIENCE)
        await served(receiver)

        assert [answer.status for answer in answers] == [400]
        assert ended
        assert said.count(b"HTTP/1.") == 1
        assert receiver.ledger.stored_by == {token(OTHERS): 3}


async def test_who_says_nothing_is_waited_for() -> None:
    async with receiving() as receiver:
        assert await receiver.exchange(b"") == (b"", False)


async def test_requests_in_a_row_are_answered_in_their_order() -> None:
    async with receiving() as receiver:
        counts = [Random(3).randrange(1, 9) for _ in range(60)]
        raw = b"".join(sound(1, count) for count in counts[:-1]) + sound(1, counts[-1], CLOSE)
        answers = await receiver.judge(1, Case(raw, len(counts), sum(counts), exact=True))

        assert [answer.created for answer in answers] == counts


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_bombs_at_once_take_no_memory_and_others_are_served(encoding: str) -> None:
    """Eight of 64 MiB; all requests together may hold that much once."""
    async with receiving() as receiver:
        await served(receiver, 1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        bomb = post(BOMB, f"Content-Encoding: {encoding}\r\n{CLOSE}", length=len(BOMB))
        async with trio.open_nursery() as nursery:
            for number in range(2, 10):
                nursery.start_soon(receiver.judge, number, Case(bomb, 1, 0), PATIENCE)
            await served(receiver)

        assert receiver.answered[200] == 2
        assert receiver.answered[413] + receiver.answered[400] + receiver.answered[429] == 8
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 192 << 10


async def test_those_who_drip_are_closed_in_time_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then: in a head, in a body, in chunks. Idle connections are displaced before sound ones."""
    monkeypatch.setattr(bounds, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(bulk_connections, "IDLE_SECONDS", 0.5)
    body = documents(1, 1)
    slow = [
        b"POST /_bulk HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 400,
        post(body * 20, length=len(body) * 20),
        post(b"1\r\n{\r\n" * 200, "Transfer-Encoding: chunked\r\n"),
    ]
    answers: dict[bytes, set[bytes]] = {raw: set() for raw in slow}

    async def drip(port: int, raw: bytes) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream, trio.open_nursery() as dripping:

            async def go_on() -> None:
                head, end, body = raw.rpartition(b"\r\n\r\n")
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(head + end)
                    for at in range(len(body)):
                        await stream.send_all(body[at : at + 1])
                        await trio.sleep(0.05)

            dripping.start_soon(go_on)
            try:
                answers[raw].add(bytes(await stream.receive_some(4096))[8:13])
            except trio.BrokenResourceError:  # it went on sending after the answer: that may be lost
                answers[raw].add(b"")
            dripping.cancel_scope.cancel()

    async with receiving() as receiver:
        with trio.fail_after(60):
            async with trio.open_nursery() as drips:
                for raw in slow * 4:
                    drips.start_soon(drip, receiver.port, raw)
                for number in range(5):
                    await served(receiver, OTHERS + number)

    head, *bodies = answers.values()
    assert head == {b""}
    for body in bodies:
        assert b" 408 " in body <= {b"", b" 408 "}


async def test_resets_in_the_middle_of_everything_leave_nothing_behind() -> None:
    raw = sound(1, 50)
    async with receiving() as receiver:
        for at in [*range(0, len(raw), len(raw) // 60), len(raw)]:
            peer = socket.create_connection(("127.0.0.1", receiver.port))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(raw[:at])
            peer.close()
        await served(receiver)

        assert receiver.ledger.stored_by[token(1)] in (0, 50)


async def test_what_a_client_names_is_never_a_header_of_an_answer_or_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    canary = "canary-7f3a"
    raws = [
        post(b"{}\n{}\n", f"Accept: application/json{canary}\r\n{CLOSE}", length=6),
        post(b"{}\n{}\n", CLOSE, length=6, line=f"POST /{canary}%0d%0aX-Evil:%201/_bulk HTTP/1.1"),
        post(b"{}\n{}\n", f"Content-Type: {canary}\r\n{CLOSE}", length=6),
        post(b"x", f"{canary}\x01: y\r\n", length=1),
        f"GET /{canary} HTTP/1.1\r\nHost: {canary}\r\n{CLOSE}\r\n".encode(),
        f"{canary}\r\n\r\n".encode(),
        post(f'{{"{canary}":{{}}}}\n'.encode(), CLOSE, length=len(canary) + 8),
    ]
    async with receiving() as receiver:
        for raw in raws:
            said, ended = await receiver.exchange(raw, PATIENCE)
            head, _, body = said.partition(b"\r\n\r\n")

            assert ended
            assert canary.encode() not in head
            assert b"X-Evil" not in head
            assert canary.encode() not in body, json.loads(body)
    assert canary not in caplog.text
