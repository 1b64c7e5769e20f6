"""The bytes of a connection become frames, however they are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.syslog.frames import MOST_OCTETS, Cut, Frames

LIMIT = 16
STREAMS = st.lists(
    st.sampled_from([b"5 ", b"17 ", b"200 ", b"0 ", b"07 ", b"<1>", b"a", b"9", b"1234567890 ", b"\r\n", b"\n", b"\0"])
    | st.binary(max_size=20),
    max_size=40,
).map(b"".join)


def read(*pieces: bytes, limit: int = LIMIT) -> list[tuple[type, bytes]]:
    frames = Frames(limit)
    found = [frame for piece in pieces for frame in frames.feed(piece)]
    return [(type(frame), frame) for frame in found + frames.end()]


def whole(*frames: bytes) -> list[tuple[type, bytes]]:
    return [(bytes, frame) for frame in frames]


def bodies(*pieces: bytes, limit: int = 100) -> list[bytes]:
    return [frame for _, frame in read(*pieces, limit=limit)]


@given(STREAMS, st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(stream, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert read(*pieces) == read(stream)
    assert read(*[stream[i : i + 1] for i in range(len(stream))]) == read(stream)


@given(STREAMS)
def test_no_frame_is_empty_or_longer_than_the_limit_and_little_is_held(stream):
    frames = Frames(LIMIT)
    for byte in stream:
        assert all(0 < len(frame) <= LIMIT for frame in frames.feed(bytes([byte])))
        assert len(frames._held) <= LIMIT + len(b"123456789 <191>")
    assert all(0 < len(frame) <= LIMIT for frame in frames.end())


@given(st.lists(st.binary(max_size=LIMIT - 3).map(b"<1>".__add__), max_size=20))
def test_counted_messages_are_read_whatever_they_hold(messages):
    stream = b"".join(b"%d %b" % (len(message), message) for message in messages)

    assert read(stream) == whole(*messages)


@given(
    st.lists(st.from_regex(rb"<[^\r\n\0]{0,15}", fullmatch=True), max_size=20), st.sampled_from([b"\n", b"\r\n", b"\0"])
)
def test_lines_are_read_whatever_ends_them(lines, end):
    assert read(b"".join(line + end for line in lines)) == whole(*lines)


def test_each_frame_says_how_it_is_framed():
    assert bodies(b"<1>a\n6 <2>b\ncd<3>e\r\n5 <4>fg<5>h") == [b"<1>a", b"<2>b\nc", b"d<3>e", b"<4>fg", b"<5>h"]


def test_a_line_behind_a_long_count_that_came_alone_is_read():
    frames = Frames(1 << 20)
    frames.feed(b"12345")

    assert [len(frame) for frame in frames.feed(b" <1>" + b"x" * 12342 + b"a\n")] == [12345, 1]


def test_line_ends_behind_a_counted_frame_are_skipped():
    assert bodies(b"4 <1>a\n4 <1>b\r\n\0") == [b"<1>a", b"<1>b"]


def test_what_is_no_count_is_a_line():
    large = b"%d <1>a" % (MOST_OCTETS + 1)
    for line in [b"12a", b"12", b"12 ", b"0 <1>a", b"-1 <1>a", large, b"12345678901 <1>a", b"2 <1>a", b"9 <b>a"]:
        assert bodies(line + b"\n<1>b\n") == [line, b"<1>b"]


def test_a_message_of_the_limit_is_whole():
    for end in [b"\n", b"\r\n", b""]:
        for size in [LIMIT - 1, LIMIT]:
            assert read(b"x" * size + end) == whole(b"x" * size)


@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT + 2, 1000])
def test_a_longer_message_is_cut_and_the_next_one_is_whole(size):
    message = b"<1>" + b"x" * (size - 3)

    expected = [(Cut, message[:LIMIT]), (bytes, b"<1>b")]
    assert read(message + b"\n<1>b\n") == expected
    assert read(b"%d %b4 <1>b" % (size, message)) == expected


def test_a_counted_frame_that_the_end_of_the_connection_cuts_is_marked():
    assert read(b"10 <1>a") == [(Cut, b"<1>a")]
    assert read(b"10 ") == whole(b"10 ")


def test_the_time_is_linear_in_the_bytes_of_a_line_that_comes_in_single_ones():
    frames, looked = Frames(1 << 20), 0
    for _ in range(100_000):
        assert frames.feed(b"x") == []
        assert frames._looked > looked
        looked = frames._looked
    assert len(frames.feed(b"\n")[0]) == 100_000


TEXTS = st.from_regex(rb"([1-9][0-9]{0,9}[ :]?)?[^\r\n\0<]{0,12}", fullmatch=True).filter(bool)
COUNTED = st.binary(max_size=12).map(b"<13>".__add__)


@given(st.lists(st.tuples(st.booleans(), COUNTED) | st.tuples(st.just(None), TEXTS), max_size=20))
def test_lines_that_begin_with_digits_take_no_other_message_along(messages):
    framed = {True: b"%d %b\n", False: b"%d %b"}
    stream = b"".join(
        one + b"\n" if is_ended is None else framed[is_ended] % (len(one), one) for is_ended, one in messages
    )

    assert read(stream, limit=100) == whole(*[one for _, one in messages])


def test_a_text_that_looks_like_a_count_and_is_not_filled_is_read_as_lines():
    stream = b"19999 <13>in the queue\n<14>b\r\n\n5 <15>c\nd"

    assert bodies(stream) == [b"19999 <13>in the queue", b"<14>b", b"5 <15>c", b"d"]


def test_a_count_above_the_limit_of_rsyslog_is_one_where_messages_may_be_as_long():
    message = b"<1>" + b"\n" * MOST_OCTETS

    assert bodies(b"%d %b" % (len(message), message), limit=len(message)) == [message]


class Searched(bytearray):
    """Counts how often it is searched for a line feed."""

    times = 0

    def rfind(self, *args):
        self.times += 1
        return super().rfind(*args)


@pytest.mark.parametrize(("begin", "times"), [(b"99 <1>", 0), (b"<1>", 4)], ids=["counted", "a line"])
def test_a_counted_message_that_comes_in_many_pieces_is_not_searched_for_lines(begin, times):
    frames = Frames(100)
    frames._held = Searched()
    for piece in (begin, b"a", b"a", b"a"):
        assert frames.feed(piece) == []

    assert frames._held.times == times
