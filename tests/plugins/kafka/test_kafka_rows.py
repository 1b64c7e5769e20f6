"""What a record takes of its event."""

from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch
from shipper.sdk.joining import together
from shipper_plugins.kafka.rows import Layout, rows, topics


def events(*own: dict[str, Any], **shared: Any) -> Batch:
    return replace(Batch.events(own, shared=shared), origin=b"o" * 16, seq=1)


def test_a_value_is_the_event_as_json() -> None:
    lines = Batch.lines(b"one\ntwo\n", offset=7, shared={"host": {"name": "h"}})
    assert [orjson.loads(value) for value in rows(lines, Layout()).values] == lines.whole()


def test_the_topic_is_the_data_stream_where_none_is_named() -> None:
    stream = {"type": "logs", "dataset": "nginx", "namespace": "prod"}
    assert topics(events({}, data_stream=stream), Layout()) == ["logs-nginx-prod"]
    assert topics(events({}), Layout()) == ["logs-generic-default"]
    assert topics(events({}, data_stream=stream), Layout(topic="all")) == ["all"]


def test_events_that_are_sent_together_have_their_own_topics_and_headers() -> None:
    streams = [{"type": "logs", "dataset": name, "namespace": "prod"} for name in ("a", "b", "a")]
    batches = [replace(events({}, data_stream=stream), seq=n) for n, stream in enumerate(streams)]
    joined = together(batches, ["data_stream"])
    got = rows(joined, Layout(headers={"d": ("data_stream", "dataset")}))

    assert got.topics == ["logs-a-prod", "logs-b-prod", "logs-a-prod"]
    assert list(got.headers) == [[("d", b"a")], [("d", b"b")], [("d", b"a")]]
    assert [orjson.loads(value) for value in got.values] == [event for batch in batches for event in batch.whole()]


def test_a_field_names_the_topic_of_the_events_that_have_it() -> None:
    layout = Layout(topic="rest", topic_field=("kafka", "topic"))
    batch = events({"kafka": {"topic": "a"}}, {"kafka": {"topic": 1}}, {"kafka": "x"}, {}, {"kafka": {"topic": ""}})
    assert topics(batch, layout) == ["a", "rest", "rest", "rest", "rest"]


def test_what_cannot_be_a_topic_is_none() -> None:
    for name in ["with space", ".", "..", "x" * 250, "ä", "a\n"]:
        assert topics(events({"to": name}), Layout(topic_field=("to",))) == [""]


def test_keys_and_headers_are_fields_as_texts_or_json() -> None:
    layout = Layout(key=("user",), headers={"h": ("host", "name"), "o": ("log", "offset")}, id_header="id")
    batch = events({"user": "ä", "log": {"offset": 3}}, {"user": {"id": 1}}, {"user": None}, {}, host={"name": "web"})
    got = rows(batch, layout)
    assert got.keys == ["ä".encode(), b'{"id":1}', None, None]
    ids = [id.encode() for id in batch.id_texts()]
    assert list(got.headers) == [
        [("id", ids[0]), ("h", b"web"), ("o", b"3")],
        *([("id", id), ("h", b"web")] for id in ids[1:]),
    ]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=5,
)
_fields = st.dictionaries(st.sampled_from(["a", "b", "message"]), _json, max_size=3)


@given(st.lists(_fields, max_size=5), st.dictionaries(st.sampled_from(["c", "d"]), _json))
def test_any_events_make_rows(own: list[dict[str, Any]], shared: dict[str, Any]) -> None:
    batch = events(*own, **shared)
    got = rows(batch, Layout(topic_field=("a", "b"), key=("c", "a"), headers={"x": ("d",), "y": ("b",)}))
    assert {len(part) for part in (got.topics, got.keys or [], got.headers, got.values)} == {len(own)}
    assert [orjson.loads(value) for value in got.values] == batch.whole()
