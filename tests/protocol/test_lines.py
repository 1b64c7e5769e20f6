"""The framing: the same lines however the stream is cut, in bounded memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from shipper.protocol.lines import Line, LineSplitter


def split(pieces: list[bytes], limit: int) -> list[Line]:
    splitter = LineSplitter(limit)
    return [line for piece in pieces for line in splitter.feed(piece)]


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"x", b"\n"))), st.integers(1, 8))
def test_the_same_lines_come_however_the_stream_is_cut(pieces: list[bytes], limit: int) -> None:
    stream = b"".join(pieces)
    whole = [Line(n, t if len(t) <= limit else None) for n, t in enumerate(stream.split(b"\n")[:-1], 1)]

    assert split(pieces, limit) == whole


def test_a_line_of_exactly_the_limit_is_taken() -> None:
    assert split([b"1234\n12345\n"], 4) == [Line(1, b"1234"), Line(2, None)]


def test_blank_lines_are_lines_and_what_has_no_end_is_none() -> None:
    assert split([b"\n  \r\n\n \t"], 9) == [Line(1, b""), Line(2, b"  \r"), Line(3, b"")]


def test_what_follows_a_line_that_is_too_long_is_read() -> None:
    assert split([b"x" * 50, b"x" * 50 + b"\nnext\n"], 10) == [Line(1, None), Line(2, b"next")]


def test_a_line_without_an_end_takes_no_memory_beyond_the_limit() -> None:
    splitter = LineSplitter(1 << 16)
    chunk = b"x" * 65536
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert list(splitter.feed(chunk)) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
