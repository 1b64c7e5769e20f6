"""Chunks of bytes become the same lines and offsets, wherever they are cut."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import BadOption
from shipper_plugins.tail.lines import Charset, Cutter
from shipper_plugins.tail.multiline import Multiline

TEXTS = st.lists(
    st.sampled_from([b"a", b"bb", "ü€😀".encode(), b"\n", b"\n", b"\r\n", b"\r", b"\xff", b"\xf0\x9f", b" x"])
)


def cutter(limit: int = 1 << 20, encoding: str = "utf-8", multiline: Multiline | None = None) -> Cutter:
    return Cutter(Charset.of(encoding), limit, multiline, {"log": {"file": {"path": "/a"}}, "ecs": {"version": "8"}})


def read(content: bytes, sizes: list[int], cut: Cutter) -> list[tuple[int, str, Any]]:
    """Read a content as it grows by so many bytes at a time; then it is final."""
    events, at, skipping = [], 0, False
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    for end in [*(e for e in ends if e < len(content)), len(content)]:
        while True:
            found = cut.cut(content[at:end], at, skipping=skipping, final=end == len(content))
            for batch in found.batches:
                events += [(e["log"]["offset"], e["message"], e["log"].get("flags")) for e in batch.whole()]
            at, skipping = at + found.consumed, found.skipping
            if not found.consumed or at >= end:
                break
    assert at == len(content)
    return events


def expected(content: bytes, limit: int) -> list[tuple[int, str, Any]]:
    events, at = [], 0
    for line in re.findall(rb"[^\n]*\n|[^\n]+\Z", content):
        body = line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line
        if len(body) <= limit:
            events.append((at, body.decode(errors="replace"), None))
        else:
            events.append((at, None, ["truncated"]))
        at += len(line)
    return events


@given(TEXTS, st.lists(st.integers(1, 9)), st.sampled_from([5, 100]))
def test_lines_are_the_same_however_they_arrive(texts: list[bytes], sizes: list[int], limit: int) -> None:
    content = b"".join(texts)
    known = [(at, None if flags else text, flags) for at, text, flags in read(content, sizes, cutter(limit))]

    assert expected(content, limit) == known


@given(TEXTS, st.lists(st.integers(1, 9)))
def test_utf_16_gives_the_same_lines_with_offsets_of_its_own(texts: list[bytes], sizes: list[int]) -> None:
    text = b"".join(texts).decode(errors="replace") + "Ċ਀\n"
    plain = read(text.encode(), [], cutter())
    wide = read(text.encode("utf-16-be"), [2 * size for size in sizes], cutter(encoding="utf-16-be"))

    assert [message for _, message, _ in plain] == [message for _, message, _ in wide]
    assert [len(text.encode()[:at].decode().encode("utf-16-be")) for at, *_ in plain] == [at for at, *_ in wide]


@given(st.lists(st.sampled_from(["a", " b", " c", "d\\", "e"]), min_size=1), st.integers(1, 5), st.booleans())
def test_no_line_is_lost_by_joining(texts: list[str], most: int, negate: bool) -> None:
    for match in ("after", "before"):
        multiline = Multiline(pattern=r"^\s", negate=negate, match=match, max_lines=most)  # type: ignore[arg-type]
        content = "".join(text + "\n" for text in texts).encode()
        events = read(content, [], cutter(multiline=multiline))

        assert texts == "\n".join(message for _, message, _ in events).split("\n")
        assert all(message.count("\n") < most for _, message, _ in events)
        assert all(content[at:].decode().startswith(message) for at, message, _ in events)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pattern": r"^\s"}, ["a\n b\n c", "d\\", "e"]),
        ({"pattern": r"^\S", "negate": True}, ["a\n b\n c", "d\\", "e"]),
        ({"pattern": r"\\$", "match": "before"}, ["a", " b", " c", "d\\\ne"]),
        ({"pattern": r"^\s", "max_lines": 2}, ["a\n b", " c", "d\\", "e"]),
    ],
)
def test_lines_are_joined_as_the_options_say(options: dict[str, Any], expected: list[str]) -> None:
    events = read(b"a\n b\n c\nd\\\ne\n", [], cutter(multiline=Multiline(**options)))

    assert expected == [message for _, message, _ in events]


def test_an_event_of_several_lines_is_bounded_in_bytes() -> None:
    events = read(b"start\n" + b" more\n" * 10, [], cutter(limit=20, multiline=Multiline(pattern=r"^\s")))

    assert [len(message) + 1 for _, message, _ in events] == [18, 18, 18, 12]
    assert events[0][2] == ["multiline"]


def test_a_unicode_file_may_begin_with_a_byte_order_mark() -> None:
    content = "\ufeffone\ntwo\n".encode()
    cut = Cutter(Charset.of("utf-8", content), 1 << 20, None, {})

    assert read(content, [], cut) == [(3, "one", None), (7, "two", None)]


def test_a_block_of_valid_lines_is_passed_on_as_it_is() -> None:
    block = "ünchanged\n".encode() * 1000
    batch = cutter().cut(block + b"rest", 5).batches[0]

    assert batch.body == block
    assert (batch.count, batch.offset, batch.gap) == (1000, 5, 1)


def test_what_is_no_encoding_of_text_is_refused() -> None:
    for name in [
        "utf-9",
        "hex",
        "rot13",
        "undefined",
        "idna",
        "punycode",
        "unicode_escape",
        "raw_unicode_escape",
        "a\0",
    ]:
        with pytest.raises(ValueError, match="no such encoding"):
            Charset.of(name)


@pytest.mark.parametrize("pattern", ["(", "(?<!a)b", "(?x) a", r"(['\"]).*\1"])
def test_a_pattern_that_is_none_or_needs_backtracking_is_refused(pattern: str) -> None:
    with pytest.raises(BadOption) as caught:
        Multiline(pattern=pattern)

    assert caught.value.at == ("pattern",)


@pytest.mark.parametrize("pattern", [r"^\s", r"\\$", r"^a.*\\$"])
def test_both_ends_of_a_long_line_are_looked_at(pattern: str) -> None:
    line = ("  " if pattern == r"^\s" else "a") + 100_000 * "x" + "\\"

    assert Multiline(pattern=pattern).group([b"a", line.encode()], [0, 2, 100_010], 1 << 20) == [(0, 2)]


@pytest.mark.parametrize("pattern", [r"a*b", "^(?:(?:a?){4}){4}(?:(?:a?){4}){4}b", "(a+)+b"])
def test_a_line_cannot_take_more_than_linear_time(pattern: str) -> None:
    started = time.process_time()
    Multiline(pattern=pattern).group([b"x", b"a" * 60_000], [0, 2, 60_002], 1 << 20)

    assert time.process_time() - started < 1


HOLES = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@given(HOLES, st.lists(st.integers(1, 60)), st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "cp037"]))
def test_a_line_behind_a_hole_is_itself_however_the_two_arrive(holes: list[int], sizes: list[int], code: str) -> None:
    """Longer than a line may be, or one NUL; at the beginning of a file, or between two lines."""
    width = len("\n".encode(code))
    content = b"".join(("\0" * hole + f"line {hole}\n").encode(code) for hole in holes) + "\0\0".encode(code)
    events = read(content, [width * size for size in sizes], cutter(limit=16 * width, encoding=code))

    assert [(f"line {hole}", None) for hole in holes] == [(text, flags) for _, text, flags in events]
    assert all(content[at:].startswith(text.encode(code)) for at, text, _ in events)


@given(st.integers(4, 12), st.lists(st.integers(1, 9)), st.sampled_from(["\n", "", "\r\n"]))
def test_what_a_crash_cut_off_is_no_beginning_of_the_next_line(hole: int, sizes: list[int], end: str) -> None:
    content = b"one\nhal" + b"\0" * hole + end.encode() + b"first\nnext\n"

    assert [text for _, text, _ in read(content, sizes, cutter(limit=16))] == ["one", "hal", "first", "next"]


def test_a_hole_ends_an_event_of_several_lines() -> None:
    content = b"\0" * 9 + b"a\n b\n c" + b"\0" * 9 + b" d\ne\n f\n"
    events = read(content, [], cutter(multiline=Multiline(pattern=r"^\s")))

    assert [(at, text) for at, text, _ in events] == [(9, "a\n b\n c"), (25, " d"), (28, "e\n f")]


def test_an_event_that_a_hole_ended_has_a_line_end_less() -> None:
    """The continuation mark is that of a line which was lost."""
    content = b"a\\\n" + b"\0" * 9 + b"b\n"
    events = read(content, [], cutter(multiline=Multiline(pattern=r"\\$", match="before")))

    assert [text for _, text, _ in events] == ["a\\", "b"]


def test_a_hole_ends_a_line_that_is_skipped() -> None:
    events = read(b"x" * 40 + b"\0" * 9 + b"next\n", [20, 22], cutter(limit=16))

    assert [(text, flags) for _, text, flags in events] == [("x" * 16, ["truncated"]), ("next", None)]


def test_a_hole_waits_for_what_is_behind_it_unless_it_is_longer_than_a_line() -> None:
    """A program may write into it, where it was reserved."""
    cut = cutter(limit=16)

    assert cut.cut(b"one\n" + b"\0" * 8, 0).consumed == 4
    assert cut.cut(b"\0" * 8 + b"two\n", 4).consumed == 12
    assert cut.cut(b"one\nhalf" + b"\0" * 20, 0).consumed == 28


def test_a_nul_between_two_letters_stays_and_one_before_the_line_end_does_not() -> None:
    events = read(b"a\0b\nc\0\nd\0\r\n\0e\nh\0\0\0i\n", [], cutter())

    assert [text for _, text, _ in events] == ["a\0b", "c", "d", "e", "h\0\0\0i"]


@given(
    TEXTS,
    st.sampled_from([r"^\s", r"\\$", "b"]),
    st.booleans(),
    st.sampled_from(["after", "before"]),
    st.integers(1, 4),
)
def test_events_of_several_lines_are_the_same_by_the_block(
    texts: list[bytes], pattern: str, negate: bool, match: Any, most: int
) -> None:
    multiline = Multiline(pattern=pattern, negate=negate, match=match, max_lines=most)
    content = b"".join([text + b"\n" for text in texts])
    with pytest.MonkeyPatch.context() as patched:
        made = cutter(12, multiline=multiline).cut(content, 3)
        patched.setattr(Cutter, "_is_plain", lambda self, block: False)
        expected = cutter(12, multiline=multiline).cut(content, 3)

    assert expected == made
