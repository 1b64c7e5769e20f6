"""The bodies of requests: bounds of size, memory and time, and a bomb that is noticed while it inflates."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk import bodies
from shipper.sdk.bodies import (
    BYTES_PER_SECOND,
    ENCODINGS,
    PATIENCE_SECONDS,
    Arrival,
    Body,
    BodyRefused,
    Inflation,
    Memory,
    decompressed,
)

LIMIT = 1 << 20
PACKED = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}


def status_of(why):
    return why.value.status, str(why.value)


def fits(share, size):
    """Whether a share can have so many bytes; it keeps what it had otherwise."""
    try:
        share.resize(size)
    except BodyRefused as refused:
        return refused.status != 429
    return True


def test_each_owner_has_half_of_what_others_leave_however_many_requests_it_has():
    memory = Memory(limit=100)
    with (
        memory.share("a") as first,
        memory.share("a") as second,
        memory.share("b") as other,
        memory.share("c") as third,
    ):
        assert fits(first, 30)
        assert not fits(second, 21)
        assert fits(second, 20)
        assert not memory.has_room("a")
        assert not fits(other, 26)
        assert fits(other, 25)
        assert memory.has_room("c")
        assert fits(third, 12)
        assert memory.held == 87
        assert fits(first, 10)
        assert fits(second, 20)

    assert memory.held == 0
    assert memory.has_room("a")


def test_one_request_at_a_time_may_be_larger_and_takes_nothing_from_others():
    """However small the share of its owner is when it begins, if it has said its size."""
    memory = Memory(limit=100)
    with memory.share("b") as small, memory.share("a") as large, memory.share("c") as another:
        assert fits(small, 40)
        large.expect(150)
        assert fits(large, 31)
        assert fits(large, 150)
        assert memory.held == 40
        assert fits(small, 50)
        assert not fits(another, 60)
        large.release()
        assert fits(another, 60)
        assert not fits(large, 60)


def test_the_requests_of_an_owner_are_not_large_together():
    memory = Memory(limit=100)
    with memory.share("a") as first, memory.share("a") as second:
        assert fits(first, 10)
        assert not fits(second, 60)


def inflate(encoding, body, step):
    inflation = Inflation(encoding, LIMIT)
    pieces = [piece for at in range(0, len(body), step) for piece in inflation.pieces(body[at : at + step])]
    inflation.finish()
    return pieces


def raw_deflate(body):
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


@given(st.binary(max_size=2000).map(lambda body: body * 300), st.integers(1, 5000), st.sampled_from([1, 6, 9]))
def test_what_was_compressed_is_inflated_in_bounded_pieces(body, step, level):
    for encoding, sent in [
        ("gzip", gzip.compress(body, level)),
        ("gzip", gzip.compress(body[:1000], level) + gzip.compress(body[1000:], level)),
        ("deflate", zlib.compress(body, level)),
        ("deflate", raw_deflate(body)),
    ]:
        pieces = inflate(encoding, sent, step)

        assert b"".join(pieces) == body
        assert all(len(piece) <= 1 << 18 for piece in pieces)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 100), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_inflate_or_are_refused(body, step, encoding):
    try:
        inflate(encoding, body, step)
    except BodyRefused as refused:
        problem = refused.status
    else:
        problem = 400

    assert problem == 400


def test_what_is_left_of_a_body_is_not_copied_after_each_of_its_members(monkeypatch):
    read = []
    make = bodies.isal_zlib.decompressobj

    class Counting:
        def __init__(self, window):
            self._stream = make(window)

        def decompress(self, block, most):
            read.append(len(block))
            return self._stream.decompress(block, most)

        def __getattr__(self, name):
            return getattr(self._stream, name)

    monkeypatch.setattr(bodies.isal_zlib, "decompressobj", Counting)
    inflation = Inflation("gzip", LIMIT)

    body = gzip.compress(b"") * 10_000 + gzip.compress(b"end")
    assert b"".join(inflation.pieces(body)) == b"end"
    inflation.finish()
    assert max(read) <= 64 << 10


@pytest.mark.parametrize("cut", [1, 10, 20, -1])
def test_a_body_that_is_cut_is_refused(cut):
    with pytest.raises(BodyRefused, match="too early"):
        inflate("gzip", gzip.compress(b"x" * 1000)[:cut], 7)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_refused_before_it_is_inflated(encoding):
    bomb = PACKED[encoding](b"x" * (64 << 20))
    pieces, seen = Inflation(encoding, LIMIT).pieces(bomb), []

    with pytest.raises(BodyRefused) as why:
        seen.extend(map(len, pieces))

    assert status_of(why) == (413, "the body is larger than 1MiB")
    assert sum(seen) <= LIMIT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_whole_body_is_decompressed_up_to_its_limit(encoding):
    packed = PACKED[encoding](b"x" * 1000)

    assert decompressed(packed, encoding, 1000) == b"x" * 1000
    if encoding != "identity":
        with pytest.raises(BodyRefused) as why:
            decompressed(packed, encoding, 999)
        assert status_of(why) == (413, "the body is larger than 999B")
        with pytest.raises(BodyRefused) as why:
            decompressed(b"no body", encoding, 1000)
        assert why.value.status == 400


def test_a_body_that_is_not_compressed_has_the_limit_too_where_it_is_read_in_pieces():
    inflation = Inflation("identity", 10)

    assert list(inflation.pieces(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(BodyRefused, match="larger"):
        list(inflation.pieces(b"x"))


def test_more_than_the_limit_is_refused_when_it_is_declared_and_when_it_comes():
    with pytest.raises(BodyRefused) as why:
        Arrival(10, begun=0, declared=11)
    assert status_of(why) == (413, "the body is larger than 10B")

    arrival = Arrival(10, begun=0, declared=10)
    arrival.add(b"x" * 10, 0)
    with pytest.raises(BodyRefused, match="larger"):
        arrival.add(b"x", 0)


def test_the_limit_does_not_count_a_frame():
    arrival = Arrival(10, begun=0, declared=15, framing=5)
    arrival.add(b"x" * 15, 0)

    with pytest.raises(BodyRefused) as why:
        arrival.add(b"x", 0)
    assert status_of(why) == (413, "the body is larger than 10B")


def test_the_deadline_moves_with_what_comes():
    arrival = Arrival(LIMIT, begun=100)
    assert arrival.deadline == 100 + PATIENCE_SECONDS

    arrival.add(b"x" * 2 * BYTES_PER_SECOND, 110)
    assert arrival.deadline == 110 + PATIENCE_SECONDS - 10 + 2
    arrival.add(b"", 112)
    assert arrival.deadline == 112 + PATIENCE_SECONDS - 10


def test_a_fast_beginning_gives_no_time_for_a_slow_end():
    arrival = Arrival(LIMIT, begun=100)
    arrival.add(b"x" * (LIMIT - 1), 101)

    assert arrival.deadline == 101 + PATIENCE_SECONDS


def test_only_waiting_for_the_peer_counts():
    arrival = Arrival(LIMIT, begun=100)
    arrival.add(b"", 110)
    arrival.wait(500)

    assert arrival.deadline == 500 + PATIENCE_SECONDS - 10


def test_a_body_holds_what_has_come_and_not_what_is_declared():
    memory = Memory(limit=100)
    with memory.share("a") as share:
        body = Body(LIMIT, share, begun=0, declared=50)
        assert memory.held == 0

        body.add(b"x" * 20, 0)
        assert memory.held == 20
        body.add(b"y" * 20, 0)
        assert memory.held == 40
        assert body.whole() == b"x" * 20 + b"y" * 20

    assert memory.held == 0


def test_a_body_that_does_not_fit_beside_others_is_refused_when_it_is_declared_and_when_it_comes():
    memory = Memory(limit=100)
    with memory.share("a") as other, memory.share("a") as share, memory.share("a") as third:
        other.resize(40)
        with pytest.raises(BodyRefused) as why:
            Body(LIMIT, share, begun=0, declared=11)
        assert status_of(why) == (429, "too many bytes of requests are under way")

        body = Body(LIMIT, third, begun=0)
        body.add(b"x" * 10, 0)
        with pytest.raises(BodyRefused, match="under way"):
            body.add(b"x", 0)
        assert memory.held == 50
