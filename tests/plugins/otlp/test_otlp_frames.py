"""Frames of HTTP/2 are counted however they arrive, and requests pay for them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.otlp.server import frames as otlp_frames
from shipper_plugins.otlp.server.frames import (
    FIRST,
    MOST_AT_ONCE,
    MOST_HEADERS,
    PER_REQUEST,
    PER_SECOND,
    Frames,
    TooMany,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PING, DATA, HEADERS, CONTINUATION = 6, 0, 1, 9


def frame(kind, size):
    return size.to_bytes(3) + bytes([kind]) + bytes(5 + size)


def split(raw, sizes):
    ends = itertools.takewhile(lambda at: at < len(raw), itertools.accumulate(itertools.cycle(sizes)))
    return [raw[begin:end] for begin, end in itertools.pairwise([0, *ends, len(raw)])]


@given(
    frames=st.lists(st.tuples(st.sampled_from([PING, DATA, HEADERS]), st.sampled_from([0, 8, 300])), max_size=FIRST),
    sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=5),
)
def test_pieces_are_what_has_arrived_and_have_few_frames(frames, sizes):
    made = [frame(*one) for one in frames]
    heads = [at + 9 for at in itertools.accumulate(map(len, made), initial=len(PREFACE))][:-1]
    counted = Frames(0.0)
    raw = PREFACE + b"".join(made)
    pieces = [piece for block in split(raw, sizes) for piece in counted.parts(block, 0.0)]

    assert b"".join(pieces) == raw
    for begin, end in itertools.pairwise(itertools.accumulate(map(len, pieces), initial=0)):
        assert sum(begin < head <= end for head in heads) <= MOST_AT_ONCE


def sends(counted, frames, now=0.0, kind=PING, size=0):
    """Whether a connection may send so many frames."""
    try:
        for _ in counted.parts(frame(kind, size) * frames, now):
            pass
    except TooMany:
        return False
    return True


@pytest.fixture
def counted():
    frames = Frames(0.0)
    list(frames.parts(PREFACE, 0.0))
    return frames


def test_who_sends_frames_and_no_requests_may_send_few(counted):
    assert sends(counted, FIRST)
    assert not sends(counted, 1)


def test_time_and_answered_requests_pay_for_frames(counted):
    assert sends(counted, FIRST)
    assert sends(counted, int(2 * PER_SECOND), now=2.0)
    counted.earn(PER_REQUEST)
    assert sends(counted, int(PER_REQUEST), now=2.0)
    assert not sends(counted, 1, now=2.0)


def test_nobody_saves_frames_for_later(counted):
    counted.earn(1e9)

    assert sends(counted, int(otlp_frames.MOST))
    assert not sends(counted, 1)


def test_headers_that_go_on_are_too_large_in_the_end(counted):
    assert sends(counted, 1, kind=HEADERS, size=MOST_HEADERS // 2)
    assert sends(counted, 1, kind=HEADERS, size=MOST_HEADERS // 2)
    assert sends(counted, 1, kind=CONTINUATION, size=MOST_HEADERS // 2)
    assert not sends(counted, 1, kind=CONTINUATION, size=1)
