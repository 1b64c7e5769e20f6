"""Columns: whatever the lines hold, the quick ways say what the obvious ones say."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.columns import escaped, join, line_count, numerals, offsets, quoted

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


@given(st.lists(st.integers(0, 1 << 62)))
def test_numbers_are_written_in_decimal(numbers: list[int]) -> None:
    assert numerals(numbers) == [b"%d" % number for number in numbers]


@given(st.integers(0, 5).flatmap(lambda rows: st.tuples(st.just(rows), st.lists(columns(rows), max_size=6))))
def test_rows_are_the_columns_side_by_side(table: tuple[int, list[bytes | list[bytes]]]) -> None:
    rows, all_columns = table
    cells = [[c if isinstance(c, bytes) else c[row] for c in all_columns] for row in range(rows)]
    assert join(rows, *all_columns) == b"".join(map(b"".join, cells))


def columns(rows: int) -> st.SearchStrategy[bytes | list[bytes]]:
    return st.one_of(st.binary(max_size=3), st.lists(st.binary(max_size=3), min_size=rows, max_size=rows))


@pytest.mark.parametrize("column", [[], [b"a"], [b"a", b"b", b"c"]])
def test_a_column_that_is_too_short_or_too_long_is_refused(column: list[bytes]) -> None:
    with pytest.raises(ValueError, match=f"a column of {len(column)} for 2 rows"):
        join(2, column)
    with pytest.raises(ValueError, match=f"a column of {len(column)} for 2 rows"):
        join(2, b"x", column)
