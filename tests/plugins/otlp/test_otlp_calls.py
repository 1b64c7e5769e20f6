"""Whole calls of gRPC take the way without h2, which nobody outside can tell from the way with it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import cast
from unittest.mock import patch

import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamReset, TrailersReceived
from h2.settings import SettingCodes
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch
from shipper.sdk import server
from shipper_plugins.otlp import grpc, protobuf
from shipper_plugins.otlp.model import Group, Record
from shipper_plugins.otlp.server import frames, intake
from shipper_plugins.otlp.server import grpc as otlp_grpc
from shipper_plugins.otlp.server.calls import LEAST_WINDOW
from shipper_plugins.otlp.server.grpc import MOST_STREAMS, talk
from shipper_plugins.otlp.server.intake import Door, Intake

FRAME = 16 << 10
ACKNOWLEDGED = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
"""The frame that acknowledges settings, of which h2 does not know which they are; the first ones are read apart."""
CALLED = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", grpc.PATH),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


class Client:
    """What a client of HTTP/2 sends, in blocks, and what it makes of the answer."""

    def __init__(self) -> None:
        self.h2 = H2Connection(H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False))
        self.h2.initiate_connection()
        self.h2.receive_data(greeting() + ACKNOWLEDGED)
        self.h2.remote_settings.max_concurrent_streams = 1000  # it heeds no limit
        self.h2.remote_settings.acknowledge()
        self.blocks = list[bytes]()
        self.ended = False
        self._ids = itertools.count(1, 2)

    def block(self) -> None:
        """What is to be sent so far comes in one block."""
        if data := self.h2.data_to_send():
            self.blocks.append(data)

    def call(self, message: bytes, *, more: tuple[tuple[str, str], ...] = (), cut: int | None = None) -> int:
        """A call; with `cut`, its body comes in two frames."""
        id, body = next(self._ids), grpc.framed(message)
        own = dict(more)
        self.h2.send_headers(id, [(name, own.pop(name, value)) for name, value in CALLED] + list(own.items()))
        cut = FRAME if cut is None else cut
        parts = [body[:cut], *(body[at : at + FRAME] for at in range(cut, len(body), FRAME))]
        for part in parts:
            self.h2.send_data(id, part, end_stream=part is parts[-1])
        return id

    def read(self, answer: bytes) -> dict[int, list[object]]:
        """By stream, what has come on it after the greeting."""
        told = defaultdict[int, list[object]](list)
        for event in self.h2.receive_data(answer.removeprefix(greeting()).replace(ACKNOWLEDGED, b"", 1)):
            self.ended |= isinstance(event, ConnectionTerminated)
            if (one := _told(event)) is not None:
                told[event.stream_id].append(one)  # type: ignore[attr-defined]
        return dict(told)


def _told(event: Event) -> object:
    match event:
        case ResponseReceived() | TrailersReceived():
            return event.headers
        case DataReceived():
            return event.data
        case StreamReset():
            return event.error_code
        case _:
            return None


class Peer:
    """A peer whose blocks come one after the other, and who reads all."""

    leaves, tls, address = False, None, "here"

    def __init__(self, blocks: list[bytes], turns: int | None = None) -> None:
        self.blocks, self._turns, self.sent = list(blocks), turns, b""
        self.shown = set[bytes]()

    async def receive(self) -> bytes:
        """The next block, after so many turns of others, or when all of them wait."""
        for _ in range(self._turns or 0):
            await trio.lowlevel.checkpoint()
        if self._turns is None or not self.blocks:
            await trio.testing.wait_all_tasks_blocked()
        return self.blocks.pop(0) if self.blocks else b""

    async def send(self, data: bytes) -> None:
        self.sent += data

    def let_in(self) -> bool:
        return True

    @contextmanager
    def busy(self) -> Iterator[None]:
        yield


class Stored(list[str]):
    """An intake that stores at once."""

    def __init__(self, *, hangs: bool = False) -> None:
        super().__init__()
        self._hangs = hangs
        door = Door(keys=None, is_tls=False, max_body_bytes=20_000, max_decompressed_bytes=20_000)
        self.intake = Intake(door, self._emit)

    async def _emit(self, *batches: Batch, wait: bool) -> None:
        if self._hangs:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        self.extend(str(event["body"]["text"]) for batch in batches for event in batch.own())


async def _at_once(work: Callable[..., object], *arguments: object, **_: object) -> object:
    """In place of `in_thread`."""
    await trio.lowlevel.checkpoint()
    return work(*arguments)


def talking(stored: Stored, peer: Peer) -> None:
    with patch.object(intake, "in_thread", _at_once):
        trio.run(talk, stored.intake, cast(server.Peer, peer))


@cache
def greeting() -> bytes:
    """What each client is sent first."""
    peer = Peer([])
    talking(Stored(), peer)
    return peer.sent


def served(client: Client, stored: Stored) -> dict[int, list[object]]:
    """What a client is answered that sends each block when all before it is answered."""
    client.block()
    peer = Peer(client.blocks)
    talking(stored, peer)
    return client.read(peer.sent)


def message(size: int, text: str = "x") -> bytes:
    return protobuf.encoded([Group(records=[Record(body=text * size)])])


@pytest.fixture
def by_h2() -> Iterator[list[int]]:
    """The streams that h2 has begun."""
    streams = list[int]()
    begin = H2Connection._begin_new_stream

    def noted(h2: H2Connection, stream: int, *rest: object) -> object:
        if not h2.config.client_side:
            streams.append(stream)
        return begin(h2, stream, *rest)  # type: ignore[arg-type]

    with patch.object(H2Connection, "_begin_new_stream", noted):
        yield streams


def test_calls_after_the_first_one_are_answered_without_h2(by_h2: list[int]) -> None:
    client, stored = Client(), Stored()
    for number in range(5):
        client.call(message(1, str(number)))
        client.block()
    answers = served(client, stored)

    assert by_h2 == [1]
    assert stored == list("01234")
    assert len({str(answer) for answer in answers.values()}) == 1
    assert len(answers) == 5


def _with_long_header(client: Client) -> None:
    """A call with a header that Huffman's code makes longer than a frame, and which comes without that."""
    client.h2.encoder.encode = partial(client.h2.encoder.encode, huffman=False)
    client.call(message(1), more=(("x-long", "\xff" * 6000),))


UNUSUAL: dict[str, Callable[[Client], object]] = {
    "a body in two frames": lambda client: client.call(message(1), cut=3),
    "a large body": lambda client: client.call(message(17_000)),
    "a cookie": lambda client: client.call(message(1), more=(("cookie", "a"),)),
    "a declared length": lambda client: client.call(message(1), more=(("content-length", str(5 + len(message(1)))),)),
    "a long header that is not ASCII": _with_long_header,
    "another method": lambda client: client.call(message(1), more=((":method", "PUT"),)),
}


@pytest.mark.parametrize("send", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_unusual_goes_by_h2(send: Callable[[Client], object], by_h2: list[int]) -> None:
    client, stored = Client(), Stored()
    for call in (lambda _: client.call(message(1)), send, lambda _: client.call(message(1))):
        call(client)
        client.block()
    answers = served(client, stored)

    assert by_h2 == [1, 3]
    assert answers[1] == answers[5]


def test_a_client_that_takes_small_answers_only_is_served_by_h2(by_h2: list[int]) -> None:
    client, stored = Client(), Stored()
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: LEAST_WINDOW - 1})
    for _ in range(2):
        client.call(message(1))
        client.block()
    served(client, stored)

    assert by_h2 == [1, 3]


def test_an_answer_that_does_not_fit_the_window_of_the_connection_ends_its_stream() -> None:
    client, stored = Client(), Stored()
    for _ in range(2):
        client.call(message(1))
        client.block()
    with patch("shipper_plugins.otlp.server.grpc.H2Connection") as made:
        made.side_effect = _without_window
        answers = served(client, stored)

    assert answers[3] == [ErrorCodes.ENHANCE_YOUR_CALM]


def _without_window(config: H2Configuration) -> H2Connection:
    """Its client takes one answer."""
    h2 = H2Connection(config)
    h2.outbound_flow_control_window = grpc.PREFIX.size
    return h2


@pytest.mark.parametrize("cut", [None, 3], ids=["whole", "by h2"])
def test_no_more_than_so_many_calls_are_under_way_whichever_way_they_take(cut: int | None) -> None:
    for calls in (MOST_STREAMS, MOST_STREAMS + 1):
        client, stored = Client(), Stored(hangs=True)
        for number in range(calls):
            client.call(message(1), cut=cut if number % 2 else None)
        client.h2.ping(bytes(8))
        client.block()
        client.h2.ping(bytes(8))
        client.block()
        peer = Peer(client.blocks, 1)
        talking(stored, peer)

        assert (not peer.blocks) == (calls == MOST_STREAMS)


def test_a_call_that_is_reset_makes_room_for_another() -> None:
    client, stored = Client(), Stored(hangs=True)
    for number in range(2 * MOST_STREAMS):
        id = client.call(message(1))
        client.block()
        if number:
            client.h2.reset_stream(id)
            client.block()
    client.h2.ping(bytes(8))
    client.block()
    peer = Peer(client.blocks, 3)
    with patch.object(frames, "FIRST", 1000):
        talking(stored, peer)

    assert not peer.blocks


def test_the_window_of_the_connection_opens_again() -> None:
    client, stored = Client(), Stored()
    size, window = 15_000, client.h2.outbound_flow_control_window
    while client.h2.outbound_flow_control_window > 2 * size:
        client.call(message(size))
        client.block()
    served(client, stored)

    assert len(stored) * size > window - 4 * size
    assert window - client.h2.outbound_flow_control_window < 1 << 17


def test_calls_that_are_reset_do_not_close_the_window_of_the_connection() -> None:
    client, stored = Client(), Stored(hangs=True)
    window = client.h2.outbound_flow_control_window
    for number in range(50):
        id = client.call(message(15_000))
        client.block()
        if number:
            client.h2.reset_stream(id)
            client.block()
    with patch.object(frames, "FIRST", 1000):
        served(client, stored)

    assert window - client.h2.outbound_flow_control_window < 1 << 17


def test_a_peer_that_leaves_is_refused_more_calls() -> None:
    client, stored = Client(), Stored()
    client.call(message(1))
    client.call(message(1))
    client.block()
    peer = Peer(client.blocks, 1)
    peer.leaves = True
    talking(stored, peer)

    assert client.read(peer.sent) == {1: [ErrorCodes.REFUSED_STREAM], 3: [ErrorCodes.REFUSED_STREAM]}


# -- both ways ---------------------------------------------------------------------------------------------------------

HEADERS = [
    ("grpc-timeout", "10S"),
    ("grpc-timeout", "11S"),
    ("grpc-encoding", "gzip"),
    ("grpc-encoding", "unknown"),
    ("content-type", "text/plain"),
    (":path", "/another"),
    (":path", ""),
    (":method", "PUT"),
    ("te", "gzip"),
    ("cookie", "a"),
    ("content-length", "1"),
    ("host", "localhost"),
    ("host", "elsewhere"),
    ("connection", "close"),
    ("Upper", "case"),
    ("", "nameless"),
    ("a", " b"),
    ("a", "b\0"),
    ("a", "é"),
    ("a", "b" * 9000),
    (":other", "x"),
]
TABLES = [0, 100, 4096, 65536]
WINDOWS = [0, LEAST_WINDOW - 1, LEAST_WINDOW, 65535]
calls = st.tuples(
    st.just("call"),
    st.sampled_from([0, 1, 2, 40, 5000, 16_370, 17_000]),
    st.lists(st.sampled_from(HEADERS), max_size=2, unique_by=lambda one: one[0]).map(tuple),
    st.sampled_from([None, None, None, 3]),
)
steps = st.one_of(
    calls,
    calls,
    calls,
    st.tuples(st.just("block")),
    st.tuples(st.just("ping")),
    st.tuples(st.just("settings"), st.just(SettingCodes.HEADER_TABLE_SIZE), st.sampled_from(TABLES)),
    st.tuples(st.just("settings"), st.just(SettingCodes.INITIAL_WINDOW_SIZE), st.sampled_from(WINDOWS)),
    st.tuples(st.just("garbage"), st.binary(min_size=1, max_size=20)),
    st.tuples(st.just("broken call"), st.binary(min_size=1, max_size=8)),
)


def scripted(script: list[tuple[object, ...]]) -> Client:
    client = Client()
    client.call(message(1, "first"))
    changed = False
    for number, step in enumerate(script):
        if step[0] not in ("ping", "call") or step[2:3] not in ((), ((),)):  # else what others do meanwhile would count
            client.block()
        match step:
            case ("call", int(size), tuple(more), cut):
                client.call(message(size, chr(97 + number)), more=more, cut=cut)  # type: ignore[arg-type]
            case ("block",):
                client.block()
            case ("ping",):
                client.h2.ping(bytes(8))
            case ("settings", code, int(size)) if not changed:  # h2 takes any acknowledgement for that of the first
                client.h2.update_settings({code: size})  # type: ignore[dict-item]
                client.block()
                changed = True
            case ("garbage", bytes(data)):
                client.blocks.append(data)
            case ("broken call", bytes(block)):
                id = next(client._ids).to_bytes(4)
                head = len(block).to_bytes(3) + b"\1\4" + id + block
                client.blocks.append(head + (5).to_bytes(3) + b"\0\1" + id + bytes(5))
    client.block()
    return client


@given(script=st.lists(steps, max_size=12))
def test_both_ways_answer_the_same(script: list[tuple[object, ...]]) -> None:
    short, long = scripted(script), scripted(script)
    by_short, by_long = Stored(), Stored()
    answers = served(short, by_short)
    with patch.object(frames, "call_at", lambda block, at: None):
        assert answers == served(long, by_long)

    assert sorted(by_short) == sorted(by_long)
    assert short.ended == long.ended


@given(
    script=st.lists(calls, max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_bytes_that_were_changed_on_the_way_are_no_fault_of_ours(
    script: list[tuple[object, ...]], changes: list[tuple[int, int]]
) -> None:
    blocks = [bytearray(block) for block in scripted(script).blocks]
    for place, value in changes:
        block = blocks[place % len(blocks)]
        block[place % min(len(block), 60)] = value  # where its frames and its headers are
    with patch.object(otlp_grpc, "_log") as log:
        talking(Stored(), Peer([bytes(block) for block in blocks]))

    assert not log.error.called
