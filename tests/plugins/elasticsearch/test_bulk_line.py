"""What a line would unfold to is known before it is loaded, and never less than what it becomes."""

import tracemalloc

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper_plugins.elasticsearch.server import line as bulk_line
from shipper_plugins.elasticsearch.server.line import MOST_UNFOLDED, WORST, Line

UNCOUNTED = MOST_UNFOLDED // WORST


@pytest.fixture
def counted(monkeypatch):
    """Lines of any length are counted, and kept."""
    monkeypatch.setattr(bulk_line, "MOST_UNFOLDED", 1 << 40)
    monkeypatch.setattr(bulk_line, "WORST", 1 << 50)


def line_of(text, step=1 << 18):
    line = Line()
    for at in range(0, len(text), step):
        line.add(text[at : at + step])
    return line


@pytest.mark.parametrize(
    "member",
    [
        *(b"{}", b"[]", b"0", b"300", b"0.5", b'"ab"', '"é"'.encode(), b'{"":0}', b'{"a":{"b":{"c":{}}}}'),
        *(b"[" * 90 + b"]" * 90, b'"\\ud83d\\ude00%b"' % (b"x" * 500), '"€%b"'.encode() % (b"x" * 500)),
    ],
)
def test_a_line_takes_no_more_memory_than_its_weight(member, counted):
    """The peak is no measure: orjson reserves twelve times the text, and writes to what it needs of that."""
    text = b'{"a":[' + b",".join([member] * (100_000 // len(member))) + b"]}"
    tracemalloc.start()
    try:
        document = orjson.loads(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(document["a"]) > 100
    assert taken < line_of(text).weight
    assert taken < len(text) * WORST


@example(["\\", "\\u"], 1)
@given(st.lists(st.sampled_from(["{", '"', "\\", ",", "a", ":", "é", "\\u"]), max_size=60), st.integers(1, 9))
def test_the_cuts_between_blocks_change_no_weight(parts, step):
    text = "".join(parts).encode()
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(bulk_line, "MOST_UNFOLDED", 1 << 40)
        patched.setattr(bulk_line, "WORST", 1 << 50)

        assert line_of(text + b"x", step).weight == line_of(text + b"x").weight


@pytest.mark.parametrize(
    ("text", "values"),
    [(b'{"a":[1,2]}', 4), (b'{"a,b":":{["}', 2), (b'{"a":"\\",\\"","b":[]}', 5), (b'{"a":"\\\\","b":1}', 4)],
)
def test_structure_counts_outside_of_strings(text, values, counted):
    assert line_of(text).weight == len(text) + 128 * values


def test_a_line_that_is_too_heavy_is_not_kept_and_the_next_one_is():
    line = line_of(b'{"a":[' + b"{}," * (4 << 20))

    assert (line.is_too_heavy, line.size, line.weight) == (True, 0, 0)
    assert line.end() == b""
    line.add(b"{}")
    assert (line.is_too_heavy, line.end()) == (False, b"{}")


def test_a_long_text_is_as_heavy_as_it_is_long():
    """A message may hold a whole document, or a table."""
    text = b'{"a":"%b"}' % (b'{\\"a\\":[1,2]},' * 200_000)

    assert line_of(text).end() == text


def test_a_short_line_is_not_counted():
    assert line_of(b"," * UNCOUNTED).weight == UNCOUNTED
