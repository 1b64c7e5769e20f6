"""Bodies of the `http` input become events, or are refused as a whole."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.http import bodies
from shipper_plugins.http.bodies import Unfit, batches, format_of

STREAM = {"type": "logs", "dataset": "hooks", "namespace": "prod"}


def events(body, format):
    return [event for batch in batches(body, format, STREAM) for event in batch.whole()]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4), max_size=5)


@given(OBJECTS, st.sampled_from([None, 2]))
def test_objects_come_out_as_they_went_in(objects, indent):
    objects = [{key: value for key, value in one.items() if "data_stream" not in key} for one in objects]
    array = json.dumps(objects, indent=indent).encode()
    lines = b"\r\n".join(json.dumps(one).encode() for one in objects)

    assert events(array, "json") == objects
    assert events(lines, "ndjson") == objects
    assert events(lines, "json") == objects
    for one in objects:
        assert events(json.dumps(one, indent=indent).encode(), "json") == [one]


@given(st.binary(max_size=200), st.sampled_from(["json", "ndjson", "lines"]))
def test_any_bytes_are_events_or_unfit(body, format):
    try:
        found = events(body, format)
    except Unfit:
        found = []
        assert format != "lines"
    assert orjson.dumps(found)


def test_the_format_follows_the_content_type():
    for kind, format in [
        ("application/json", "json"),
        ("application/cloudevents+json", "json"),
        ("application/x-ndjson", "ndjson"),
        ("application/stream+json", "ndjson"),
        ("text/plain", "lines"),
        ("text/html", None),
        ("application/x-www-form-urlencoded", None),
        ("", None),
    ]:
        assert format_of(kind) == format


def test_each_line_of_text_is_a_message():
    assert events(b"one\r\n\n tw\xffo \nthree", "lines") == [
        {"message": "one"},
        {"message": " tw\ufffdo "},
        {"message": "three"},
    ]


def test_an_object_over_several_lines_is_one_event():
    for text in (
        b'{\n  "a": {\n "b": 1}\n}\n',
        b'{"a":\n{"b":1}}',
        b'{"a": {"b": 1}\n}',
        b'{"a":{"b":1.0,\n"b\\u0031":[]}}',
    ):
        expected = orjson.loads(text)

        assert events(b"\n" + text, "json") == [expected]
        assert events(b'[%b, {"c": 1}]' % text, "json") == [expected, {"c": 1}]


def test_one_invalid_object_refuses_the_body_and_its_place_is_named():
    for body, format, reason in [
        (b'{"a":1}\n\n{"a":', "ndjson", "line 3: the document is not valid JSON"),
        (b'{"a":1}\n[]', "json", "line 2: the document is not a JSON object"),
        (b'[{"a":1},2]', "json", "element 2: the document is not a JSON object"),
        (b'[{"a":1}', "json", "the body is not valid JSON"),
        (b'"text"', "json", "object 1: the document is not a JSON object"),
        (b'{"a":1,"a":2}', "json", "object 1: the document has the same key twice in one object"),
        (b'{"a":"\xff"}', "json", "object 1: the document is not valid JSON"),
        (b"[" * 100_000, "json", "the body is not valid JSON"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "ndjson", "the document is nested more than 100 levels deep"),
        (b'{"a":[' + b"{}," * (1 << 20) + b"{}]}", "ndjson", "would take more than 32MiB of memory"),
    ]:
        with pytest.raises(Unfit) as why:
            batches(body, format, STREAM)

        assert reason in str(why.value)
        assert not why.value.is_large


@pytest.mark.parametrize(
    ("body", "format"), [(b"x\n" * 20, "lines"), (b"{}\n" * 11, "ndjson"), (b"[" + b"{}," * 10 + b"{}]", "json")]
)
def test_too_many_events_are_a_body_that_is_too_large(body, format, monkeypatch):
    monkeypatch.setattr(bodies, "MOST_EVENTS", 10)

    with pytest.raises(Unfit, match="at most 10 events") as why:
        batches(body, format, STREAM)

    assert why.value.is_large


def test_an_array_of_too_many_values_is_not_split(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_COMMAS", 10)

    with pytest.raises(Unfit, match="too many values") as why:
        batches(b"[" + b"0," * 11 + b"0]", "json", STREAM)

    assert why.value.is_large


def test_a_data_stream_of_a_document_is_kept_and_its_invalid_parts_are_the_inputs():
    body = b'[{"data_stream":{"dataset":"own"}},{"data_stream.dataset":"UP","a":1},{"a":2}]'

    assert events(body, "json") == [
        {"data_stream": {**STREAM, "dataset": "own"}},
        {"a": 1, "data_stream": STREAM},
        {"a": 2},
    ]


def test_many_events_become_batches_of_a_megabyte():
    body = b'{"a":"%b"}\n' % (b"x" * 1000) * 3000

    found = batches(body, "ndjson", STREAM)

    assert [batch.count for batch in found] == [1040, 1040, 920]
    assert max(len(batch.body) for batch in found) < 1.1 * bodies.BATCH_BYTES
