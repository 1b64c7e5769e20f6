"""Columns: whatever the lines hold, the quick ways say what the obvious ones say."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.sdk.columns import encoded, escaped, escaped_rows, join, line_count, numerals, offsets, quoted, rows

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",))), max_size=20)


def text(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


@given(LINES)
@example(["a\x7fb", ""])
@example(["a\x7fb", "\ue000"])
@example(["\\n", "\\", '"'])
@example(["", ""])
def test_lines_are_escaped_one_by_one(lines: list[str]) -> None:
    assert [json.loads(b'"%b"' % line) for line in escaped(text(lines))] == lines


@given(LINES)
@example(["a\x7fb", ""])
@example(["", '"'])
def test_rows_of_escaped_lines_are_those_lines_with_their_end(lines: list[str]) -> None:
    assert escaped_rows(text(lines), b'"}\n') == [line + b'"}\n' for line in escaped(text(lines))]


@given(LINES)
@example(["a\rb\x0bc\x85\u2028"])
def test_rows_end_at_line_feeds_only(lines: list[str]) -> None:
    assert rows(text(lines)) == [line.encode() + b"\n" for line in lines]


@given(LINES)
@example([])
@example([""])
@example([",", '","', '"', "\\", '\\",', ""])
def test_texts_are_quoted_one_by_one(texts: list[str]) -> None:
    assert [json.loads(b'"%b"' % text) for text in quoted(texts)] == texts


@given(LINES)
def test_line_feeds_are_counted(lines: list[str]) -> None:
    assert line_count(text(lines)) == len(lines)


@given(LINES, st.integers(0, 1 << 60), st.integers(1, 2))
def test_each_line_begins_where_the_ones_before_it_end(lines: list[str], first: int, gap: int) -> None:
    places, at = [], first
    for line in lines:
        places.append(at)
        at += len(line.encode()) + gap
    assert offsets(text(lines), first, gap) == places


JSON = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.just("\x7f"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(JSON, max_size=8))
@example([])
@example(["\x7f"])
@example([["", "\x7f", ""], {"a": '","\x7f","'}])
def test_objects_are_encoded_one_by_one(objects: list[object]) -> None:
    assert encoded(objects) == [orjson.dumps(object) for object in objects]


def test_an_object_as_deep_as_can_be_written_alone_is_written_among_others() -> None:
    deepest: list[object] = []
    for _ in range(253):
        deepest = [deepest]

    assert encoded([1, deepest]) == [b"1", b"[" * 254 + b"]" * 254]
    with pytest.raises(TypeError):
        encoded([[deepest]])


@given(st.lists(st.integers(0, 1 << 62)))
def test_numbers_are_written_in_decimal(numbers: list[int]) -> None:
    assert numerals(numbers) == [b"%d" % number for number in numbers]


@given(st.integers(0, 5).flatmap(lambda rows: st.tuples(st.just(rows), st.lists(columns(rows), max_size=6))))
def test_rows_are_the_columns_side_by_side(table: tuple[int, list[bytes | list[bytes]]]) -> None:
    number, all_columns = table
    cells = [[c if isinstance(c, bytes) else c[row] for c in all_columns] for row in range(number)]
    assert join(number, *all_columns) == b"".join(map(b"".join, cells))


def columns(rows: int) -> st.SearchStrategy[bytes | list[bytes]]:
    return st.one_of(st.binary(max_size=3), st.lists(st.binary(max_size=3), min_size=rows, max_size=rows))


@pytest.mark.parametrize("column", [[], [b"a"], [b"a", b"b", b"c"]])
def test_a_column_that_is_too_short_or_too_long_is_refused(column: list[bytes]) -> None:
    with pytest.raises(ValueError, match=f"a column of {len(column)} for 2 rows"):
        join(2, column)
    with pytest.raises(ValueError, match=f"a column of {len(column)} for 2 rows"):
        join(2, b"x", column)
