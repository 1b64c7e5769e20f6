"""The lines of a watch, however they are cut into blocks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.apiserver.stream import TYPES, Item, Lines, NotAWatch

items = st.builds(
    Item,
    st.sampled_from(sorted(TYPES)),
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(-9, 9) | st.none(), max_size=3),
)


@given(
    st.lists(items, max_size=6), st.lists(st.integers(0, 400), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\n\n"])
)
def test_items_are_the_same_wherever_the_blocks_are_cut(expected, cuts, end):
    text = b"".join(json.dumps({"type": item.type, "object": item.object}).encode() + end for item in expected)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    lines = Lines()

    found = [item for a, b in pairwise(places) for item in lines.feed(text[a:b])]

    assert found == expected


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_whatever_comes_is_an_item_or_not_a_watch(blocks):
    lines = Lines()
    try:
        for block in blocks:
            assert all(item.type in TYPES for item in lines.feed(block))
    except NotAWatch:
        pass


def test_a_line_without_an_end_is_not_kept_beyond_its_bound():
    lines = Lines(most=100)
    list(lines.feed(b"x" * 99))

    with pytest.raises(NotAWatch):
        list(lines.feed(b"xx"))


def test_many_lines_of_one_block_may_have_more_than_the_bound_of_one():
    line = b'{"type":"ADDED","object":{}}\n'

    assert len(list(Lines(most=40).feed(line * 10))) == 10


def test_the_bookmark_after_all_objects_is_known_by_its_annotation():
    notes = {"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}

    assert Item("BOOKMARK", notes).ends_initial
    assert not Item("ADDED", notes).ends_initial
    assert not Item("BOOKMARK", {"metadata": {"annotations": None}}).ends_initial
