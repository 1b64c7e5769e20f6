"""What a backend may answer: nothing that was not created is ever delivered, and nothing breaks or fills the sender."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import resource
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shipper.plugin import Asyncio, Batch, Code, Duration, Held, Later, Outcome, OutputContext, Sender, TooLarge
from shipper.sdk.aio import open_asyncio
from shipper_plugins.elasticsearch.client import bulk, encoding
from shipper_plugins.elasticsearch.output import Backoff, ElasticsearchOutput
from tests.examples import examples
from tests.hostile.frames import mutated
from tests.hostile.requests import bomb
from tests.raw_http import http

STATUSES = (201, 200, 409, 400, 429, 403, 503)


def batch(count: int, seq: int = 1) -> Batch:
    return replace(Batch.lines(b"canary\n" * count, offset=0, shared={}), origin=b"0123456789abcdef", seq=seq)


def request(count: int, seq: int = 1) -> encoding.Request:
    (one,) = encoding.encode(batch(count, seq), index=None, limit=1 << 20, compression="none")
    return one


Items = list[dict[str, Any]]


def items(ids: list[str], statuses: list[int]) -> Items:
    return [{"create": {"_id": id, "status": status}} for id, status in zip(ids, statuses, strict=True)]


def answer(items: Items) -> bytes:
    errors = any(next(iter(item.values()))["status"] != 201 for item in items)
    return json.dumps({"errors": errors, "items": items}, separators=(",", ":")).encode()


def delivered(body: bytes, request: encoding.Request) -> set[str] | None:
    """The ids of events that a body makes settled with the backend; None if it says nothing of any."""
    try:
        others = bulk.read(body, request)
    except Later:
        return None
    ids = request.ids()
    return {id for position, id in enumerate(ids) if position not in others}


# -- what is read ------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(5), deadline=None)
@given(st.lists(st.sampled_from(STATUSES), min_size=2, max_size=8), st.integers(0, 2**64))
def test_items_that_are_lost_repeated_moved_or_foreign_deliver_nothing_that_was_not_created(
    statuses: list[int], seed: int
) -> None:
    draw = random.Random(seed)
    ours, theirs = request(len(statuses)), request(len(statuses), seq=2)
    said = items(ours.ids(), statuses)
    foreign = items(theirs.ids(), [201] * len(statuses))
    created = {id for id, status in zip(ours.ids(), statuses, strict=True) if 200 <= status < 300}
    for _ in range(draw.choice((1, 1, 2))):
        at, other = draw.randrange(len(said)), draw.randrange(len(said))
        match draw.randrange(5):
            case 0:
                said[at], said[other] = said[other], said[at]
            case 1:
                del said[at]
            case 2:
                said.insert(at, said[other])
            case 3:
                said[at] = draw.choice(foreign)
            case 4:
                said = draw.choice((foreign, said + foreign, foreign + said))
        if not said:
            break

    found = delivered(answer(said), ours)
    if found is not None and not all(next(iter(item.values()))["status"] == 201 for item in said):
        assert found <= created
    if said == foreign:
        assert found is None


@settings(max_examples=examples(5), deadline=None)
@given(st.lists(st.sampled_from(STATUSES), min_size=1, max_size=6), st.integers(0, 2**64))
@example([201], 283)  # `items` has another name
def test_a_body_damaged_anywhere_breaks_nothing(statuses: list[int], seed: int) -> None:
    ours = request(len(statuses))
    body = mutated(random.Random(seed), answer(items(ours.ids(), statuses)))
    found = delivered(body, ours)
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = None
    if found is not None and parsed is not None:
        assert len(parsed["items"]) == len(statuses)


@settings(max_examples=examples(2), deadline=None)
@given(st.sampled_from(["gzip", "x-gzip", "identity", "", "br", "deflate", "gzip, gzip"]), st.integers(0, 2**64))
def test_a_packed_body_damaged_anywhere_is_read_or_says_later(encoding: str, seed: int) -> None:
    ours = request(3)
    body = mutated(random.Random(seed), gzip.compress(answer(items(ours.ids(), [201, 400, 429]))))
    with suppress(Later):
        delivered(bulk.inflated(body, encoding), ours)


ITEM = b'{"create":{"status":2}},'


@pytest.mark.parametrize("name", ["status", "\\u0073tatus"])
def test_more_items_than_events_become_no_objects(name: str) -> None:
    """63 MiB of items, 66 KB as gzip, became 400 MiB of objects before anybody counted them."""
    item = ITEM.replace(b"status", name.encode())
    body = b'{"errors":true,"items":[' + item * (bulk.longest(1) // len(item) - 2) + item[:-1] + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(Later, match="far more items") as bad:
            bulk.read(body, request(1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert bad.value.code == Code.BAD_ANSWER
    assert peak < 1 << 20


def test_an_answer_is_unpacked_as_far_as_so_many_events_need_it() -> None:
    body = gzip.compress(bytes(bulk.longest(1) + 1))
    with pytest.raises(Later, match="too large"):
        bulk.inflated(body, "gzip", bulk.longest(1))
    assert len(bulk.inflated(body, "gzip", bulk.longest(2))) == bulk.longest(1) + 1


def test_a_reason_may_quote_a_large_event() -> None:
    """A pipeline's error quotes the whole value that it could not read, objects in it too."""
    quoted = json.dumps({"log": [{"n": n} for n in range(50_000)]})
    said: Items = [{"create": {"_id": request(1).ids()[0], "status": 400, "error": {"type": "x", "reason": quoted}}}]

    assert bulk.read(answer(said), request(1))[0].outcome is Outcome.REJECTED


# -- over real sockets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Endless:
    """Bytes that are said for ever, after others; slowly, if there is a pause."""

    first: bytes
    again: bytes
    pause: float = 0.0


OURS = answer(items(request(3).ids(), [201] * 3))
THEIRS = answer(items(request(3, seq=9).ids(), [201] * 3))
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS: dict[str, bytes | Endless] = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "binary": bytes(range(256)) * 40,
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "no body": http(b""),
    "half a body": http(OURS)[:-9],
    "a body with no length, cut": b"HTTP/1.1 200 OK\r\n\r\n" + OURS[:-3],
    "too short a length": http(OURS).replace(b"%d\r\n" % len(OURS), b"%d\r\n" % (len(OURS) - 5), 1),
    "two lengths": http(OURS, headers="Content-Length: 5\r\n"),
    "length and chunks": http(OURS, headers="Transfer-Encoding: chunked\r\n"),
    "a chunk of garbage": CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",
    "a chunk that never ends": CHUNKED + b"ffffffff\r\nabc",
    "chunks without an end": CHUNKED + b"%x\r\n%b\r\n" % (len(OURS) - 5, OURS[:-5]),
    "an answer to somebody else": http(THEIRS),
    "answers to somebody else, then ours": http(THEIRS) + http(OURS),
    "not modified": http(b"", "304 Not Modified"),
    "no content": http(b"", "204 No Content"),
    "accepted": http(OURS, "202 Accepted"),
    "moved": http(b"", "307 Temporary Redirect", "Location: http://127.0.0.1:1/\r\n"),
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n" + OURS,
    "status 999": http(OURS, "999 Strange"),
    "status 0": http(OURS, "0 Strange"),
    "a page": http(b"<html>created</html>", headers="Content-Type: text/html\r\n"),
    "deep JSON": http(b'{"items":' + b"[" * 200_000),
    "a bomb": http(bomb(200), headers="Content-Encoding: gzip\r\n"),
    "a bomb in a bomb": http(gzip.compress(bomb(200)), headers="Content-Encoding: gzip\r\n"),
    "a bomb as an error": http(bomb(200), "400 Bad Request", "Content-Encoding: gzip\r\n"),
    "gzip, cut": http(gzip.compress(OURS)[:-4], headers="Content-Encoding: gzip\r\n"),
    "an encoding not asked for": http(OURS, headers="Content-Encoding: br\r\n"),
    "a long head": http(OURS, headers="".join(f"X-{n}: {'y' * 7000}\r\n" for n in range(200))),
    "a long header": http(OURS, headers=f"X: {'y' * 1_000_000}\r\n"),
    "a NUL in the head": http(OURS, headers="X: a\0b\r\n"),
    "an error of a megabyte": http(b"canary" * 200_000, "500 Oops"),
    "an endless head": Endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "an endless first line": Endless(b"HTTP/1.1 200 ", b"O" * 65536),
    "endless continuing": Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "an endless body": Endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
    "endless chunks": Endless(CHUNKED, b"1\r\n \r\n" * 5000),
    "an endless error": Endless(b"HTTP/1.1 503 Busy\r\n\r\n", b" " * 65536),
    "a drip": Endless(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" ", pause=0.02),
    "a drip of a head": Endless(b"HTTP/1.1 200 OK\r\nX: ", b"y", pause=0.02),
    "silence": Endless(b"", b"", pause=0.02),
}
SOUND = http(OURS)


class Backend:
    """Answers the first request as it is told, the others well."""

    def __init__(self, first: bytes | Endless) -> None:
        self.first = first
        self.requests = 0
        self.url = ""

    async def serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while await self._read(stream):
                self.requests += 1
                if self.requests > 1:
                    await stream.send_all(SOUND)
                elif isinstance(self.first, bytes):
                    await stream.send_all(self.first)
                    break
                else:
                    await stream.send_all(self.first.first)
                    while True:
                        await stream.send_all(self.first.again)
                        await trio.sleep(self.first.pause)
        await trio.aclose_forcefully(stream)

    async def _read(self, stream: trio.SocketStream) -> bool:
        raw = b""
        while b"\r\n\r\n" not in raw or len(raw) - raw.index(b"\r\n\r\n") - 4 < _length(raw):
            if not (chunk := await stream.receive_some(65536)):
                return False
            raw += chunk
        return True


def _length(raw: bytes) -> int:
    (line,) = [line for line in raw.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return int(line.partition(b":")[2])


@asynccontextmanager
async def talking_to(backend: Backend, aio: Asyncio) -> AsyncIterator[Sender]:
    output = partial(ElasticsearchOutput, compression="none", timeout=Duration(1), backoff=Backoff())
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, backend.serve, 0, host="127.0.0.1"))
        backend.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with output(hosts=(backend.url,)).open(OutputContext("main", aio)) as sender:
            yield sender
        nursery.cancel_scope.cancel()


async def said(sender: Sender) -> set[Outcome] | str:
    """The outcomes of three events, or what kept them from having any."""
    try:
        answers = await sender.send(batch(3))
    except (Later, Held, TooLarge) as error:
        return str(error)
    found = {answers.others[at].outcome if at in answers.others else Outcome.DELIVERED for at in range(3)}
    assert len(answers.others) in (0, 3)
    return found


async def said_anew(sender: Sender, backend: Backend) -> set[Outcome] | str:
    """What is said next: asked again where the backend closed a kept connection just then, or a slow machine let the
    second pass that an answer has, perhaps before the backend had read the first request."""
    outcome: set[Outcome] | str = "connection closed"
    with trio.move_on_after(60):
        while isinstance(outcome, str) and (
            "connection closed" in outcome or "timed out" in outcome or backend.requests < 2
        ):
            outcome = await said(sender)
    return outcome


@pytest.mark.parametrize(
    "answer",
    [
        SOUND,
        http(OURS, headers="".join(f"X-{n}: y\r\n" for n in range(50))),
        http(OURS, headers="Content-Type: text/html\r\nSet-Cookie: a=b\r\n"),
        b"HTTP/1.0 200\r\n\r\n" + OURS,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + SOUND,
        CHUNKED + b"1;x=y\r\n" + OURS[:1] + b"\r\n%x\r\n" % (len(OURS) - 1) + OURS[1:] + b"\r\n0\r\nT: x\r\n\r\n",
        http(gzip.compress(OURS), headers="Content-Encoding: gzip\r\n"),
    ],
    ids=range(7),
)
async def test_an_answer_that_says_created_is_believed_however_it_comes(answer: bytes) -> None:
    async with open_asyncio() as aio, talking_to(Backend(answer), aio) as sender:
        assert await said(sender) == {Outcome.DELIVERED}


async def test_no_other_answer_delivers_or_is_quoted_and_the_next_request_is_sound() -> None:
    """All at once, since some of them take their second until they are timed out."""
    outcomes: dict[str, tuple[set[Outcome] | str, set[Outcome] | str]] = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with open_asyncio() as aio:

        async def ask(name: str) -> None:
            backend = Backend(ANSWERS[name])
            async with talking_to(backend, aio) as sender:
                outcomes[name] = await said(sender), await said_anew(sender, backend)

        with trio.fail_after(200):
            async with trio.open_nursery() as nursery:
                limit = trio.CapacityLimiter(6)
                for name in ANSWERS:

                    async def one(name: str = name) -> None:
                        async with limit:
                            await ask(name)

                    nursery.start_soon(one)

    assert {name for name, (first, _) in outcomes.items() if not isinstance(first, str)} == set()
    assert not [first for first, _ in outcomes.values() if "canary" in first or "<html>" in first]
    assert {name: second for name, (_, second) in outcomes.items() if second != {Outcome.DELIVERED}} == {}
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 250


async def test_a_loop_is_not_kept_busy_by_an_answer_without_end() -> None:
    """Others that share the thread go on: a turn of the loop takes little of a processor, while the answer comes in."""
    async with open_asyncio() as aio, talking_to(Backend(ANSWERS["endless continuing"]), aio) as sender:

        async def turns() -> float:
            begun = time.thread_time()
            for _ in range(20):
                await asyncio.sleep(0.01)
            return time.thread_time() - begun

        async with trio.open_nursery() as nursery:
            nursery.start_soon(said, sender)
            taken = await aio.call(turns)

    assert taken < 20 * 0.1
