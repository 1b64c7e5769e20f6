"""Halves of surrogate pairs in JSON."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.surrogates import mended


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\uD83D and \uDE00", "\ufffd and \ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\\ud83d", r"\ud83d"),
        (r"\\\ud83d", "\\\ufffd"),
        (r"\u00e9\ud83d\ude00", "é\U0001f600"),
    ],
)
def test_half_of_a_pair_is_replaced_and_nothing_else(text, expected):
    assert orjson.loads(mended(b'"%b"' % text.encode())) == expected


@given(st.text(st.characters(exclude_categories=[])))
def test_each_text_that_json_can_write_is_read(text):
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    assert orjson.loads(mended(json.dumps(text).encode())) == whole
