"""Whatever a line of JSON says, `parse` makes an event of it that a backend takes, and loses no value."""

import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins import data_streams
from shipper_plugins.processors.parse import Parse
from tests.examples import examples

OWN_TIME = "2026-01-01T00:00:00.000Z"
STREAM = {"type": "logs", "dataset": "app", "namespace": "prod"}
SHARED: Fields = {
    "@timestamp": OWN_TIME,
    "log": {"file": {"path": "/a"}},
    "host": {"name": "h"},
    "agent": {"type": "shipper"},
    "data_stream": STREAM,
    "event": {"dataset": "app"},
    "ecs": {"version": "8.17.0"},
}


def parsed(line: Fields | str, **options: Any) -> Fields:
    """The event of a line; read at once and alone it is the same."""
    text = line if isinstance(line, str) else json.dumps(line)
    parse = Parse(format="json", **options)
    batch = Batch.lines(text.encode() + b"\n", offset=10, shared=SHARED)
    (event,) = check_processor(parse, batch).whole()
    assert parse.process(Batch.events(batch.own(), shared=SHARED)).whole() == [event]
    return event


# -- what conflicts ----------------------------------------------------------------------------------------------------


def test_a_value_that_cannot_stand_in_its_place_is_a_label() -> None:
    for line, labels in [
        ({"log": "text\n", "stream": "stdout"}, {"log": "text\n"}),
        ({"host": "web-1"}, {"host": "web-1"}),
        ({"agent": 7}, {"agent": 7}),
        ({"error": "boom"}, {"error": "boom"}),
        ({"labels": "x"}, {"labels": "x"}),
        ({"message": {"a": 1, "b": 2}}, {"message": '{"a":1,"b":2}'}),
        ({"tags": {"a": 1}}, {"tags_a": 1}),
        ({"log": {"file": "x", "offset": "y"}}, {"log_file": "x", "log_offset": "y"}),
        ({"host.name.short": "x"}, {"host_name_short": "x"}),
        ({"host": {"name": ["a"]}}, {"host_name": ["a"]}),
        ({"a": "text", "a.b": 1}, {"a_b": 1}),
        ({"a.b": 1, "a": "text"}, {"a": "text"}),
        ({"a.b": 1, "a": {"b": 2}}, {"a_b": 2}),
        ({"a.b": 0, "a": {"b": {"c": 1, "d": 2}}}, {"a_b": '{"c":1,"d":2}'}),
        ({"x": {"a.b": 1, "a": "text"}}, {"x_a": "text"}),
        ({"": 1, ".": 2, " ": 3, "a..b": 4, "x": {"": 5}}, {"_": 1, "__2": 2, "__3": 3, "a__b": 4, "x_": 5}),
        ({".".join("a" * 21): 1}, {"_".join("a" * 21): 1}),
        ({"_id": "1", "_source": {"a": 1}, "_kept": 2}, {"_id": "1", "_source_a": 1}),
        ({"a": [1, {"b": 2}]}, {"a": '[1,{"b":2}]'}),
        ({"a": [{"b": 1}, {"b": {"c": 2}}]}, {"a": '[{"b":1},{"b":{"c":2}}]'}),
        ({"host": "a", "labels": {"host": "b", "host_2": "c"}}, {"host": "b", "host_2": "c", "host_3": "a"}),
    ]:
        event = parsed(line)

        assert event["labels"] == labels
        assert "tags" not in event
        assert event["log"] | {"offset": 10} == {"file": {"path": "/a"}, "offset": 10}
        assert (event["host"], event["data_stream"]) == (SHARED["host"], STREAM)


def test_a_label_of_the_event_is_not_taken_away() -> None:
    batch = Batch.lines(b'{"host":"web-1"}\n', offset=0, shared=SHARED | {"labels": {"host": "ours"}})

    assert check_processor(Parse(format="json"), batch).whole()[0]["labels"] == {"host": "ours", "host_2": "web-1"}


def test_a_line_of_ecs_keeps_its_own_values() -> None:
    nested = {
        "@timestamp": "2026-05-17T12:34:56.789Z",
        "message": "m",
        "log": {"level": "info", "logger": "app", "origin": {"file": {"name": "x.py", "line": 3}}},
        "ecs": {"version": "1.6.0"},
        "event": {"dataset": "shop.log"},
        "host": {"name": "web-1"},
        "service": {"name": "shop", "environment": "prod"},
        "trace": {"id": "4bf92f"},
        "span": {"id": "00f067"},
    }
    dotted = {"log.level": "info", "log": {"logger": "app", "origin": nested["log"]["origin"]}}  # type: ignore[index]
    dotted |= {"@timestamp": nested["@timestamp"], "message": "m", "ecs.version": "1.6.0", "host.name": "web-1"}
    dotted |= {"event.dataset": "shop.log", "service.name": "shop", "service": {"environment": "prod"}}
    dotted |= {"trace.id": "4bf92f", "span.id": "00f067"}
    expected = SHARED | nested | {"log": {**SHARED["log"], **nested["log"], "offset": 10}}  # type: ignore[dict-item]

    assert parsed(nested) == parsed(dotted) == expected


def test_an_own_dotted_field_of_a_document_is_the_nested_one() -> None:
    batch = Batch.documents([b'{"host.name":"a","message":"{\\"host\\":{\\"name\\":\\"b\\"}}"}'])

    assert check_processor(Parse(format="json"), batch).whole() == [{"host": {"name": "b"}}]


# -- where it goes -----------------------------------------------------------------------------------------------------


def test_a_line_never_says_where_it_goes() -> None:
    for line in [
        *({"data_stream": {"dataset": "audit"}}, {"data_stream.dataset": "audit"}, {"data_stream": "audit"}),
        *({"data_stream": {"dataset": "BAD X/../"}}, {"data_stream": {"dataset": ["a"]}}, {"data_stream": None}),
        *({"data_stream": {"dataset": {"a": 1}}}, {"data_stream.type.x": 1}, {"data_stream": {"more": 1}}),
    ]:
        for options in ({}, {"target": "data_stream"}):
            text = json.dumps(line | {"n": 1})
            result = Parse(format="json", **options).process(Batch.lines(f"{text}\n".encode(), offset=0, shared=SHARED))

            assert result.whole()[0]["data_stream"] == STREAM
            assert data_streams.of(result) in ("logs-app-prod", ["logs-app-prod"])
            assert result.whole()[0]["labels"]


def test_a_data_stream_that_is_the_events_own_says_nothing_new() -> None:
    event = parsed({"data_stream": STREAM, "a": 1})

    assert "labels" not in event
    assert event["data_stream"] == STREAM


# -- when it was -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["2026-05-17 10:34:56.789Z", 1779014096.789, 1779014096789])
def test_a_time_in_a_common_shape_is_the_time_of_the_event(written: Any) -> None:
    assert parsed({"@timestamp": written, "a": 1})["@timestamp"] == "2026-05-17T10:34:56.789Z"


def test_a_line_whose_time_is_none_is_parsed_and_tagged() -> None:
    for written in ["garbage", "2026-13-01T00:00:00Z", None, -1, ["x"]]:
        event = parsed({"@timestamp": written, "a": 1, "error": {"message": "boom", "code": 7}, "tags": "x"})

        assert event["@timestamp"] == OWN_TIME
        assert event["tags"] == ["x", "processor_error"]
        assert event["error"] == {"message": "parse: the @timestamp of the line is no time", "code": 7}
        assert event["labels"] == {"@timestamp": written, "error_message": "boom"}
        assert event["a"] == 1


def test_a_line_whose_time_is_none_keeps_the_tags_that_all_have() -> None:
    batch = Batch.lines(b'{"@timestamp":"garbage"}\n', offset=0, shared=SHARED | {"tags": ["web"]})

    assert check_processor(Parse(format="json"), batch).whole()[0]["tags"] == ["web", "processor_error"]


# -- any line ----------------------------------------------------------------------------------------------------------

PARTS = st.sampled_from(
    ["a", "b", "log", "host", "name", "file", "offset", "version", "ecs", "dataset", "tags", "type"]
)
NAMES = (
    st.lists(PARTS, min_size=1, max_size=3).map(".".join)
    | st.sampled_from(
        ["", ".", "..", " ", "a.", ".a", "a..b", "\t", "_id", "_source", "@timestamp", "message", "error"]
    )
    | st.sampled_from(
        ["data_stream", "data_stream.dataset", "labels", "labels.a", "labels.a_b", "error.message", "event"]
    )
    | st.text(max_size=3)
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.just(OWN_TIME)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
LINES = st.dictionaries(NAMES, VALUES, max_size=6)


def scalars(value: Any, *, is_event: bool = False) -> Iterator[str]:
    """Every plain value in it, as JSON; those in the JSON texts of labels too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if is_event and key == "labels" and isinstance(inner, dict):
                for label in inner.values():
                    yield from scalars(label)
                    yield from scalars(read_back(label))
            else:
                yield from scalars(inner)
    elif isinstance(value, list):
        for item in value:
            yield from scalars(item)
    else:
        yield json.dumps(value)


def read_back(label: Any) -> Any:
    try:
        value = orjson.loads(label)
    except (ValueError, TypeError):
        return []
    return value if isinstance(value, dict | list) else []


def assert_no_conflict(value: Any, kinds: dict[str, bool], path: str) -> None:
    """No name is empty, and none is a group in one place and a plain value in another: what Elasticsearch refuses."""
    if isinstance(value, list):
        for item in value:
            assert_no_conflict(item, kinds, path)
    elif value is not None:
        assert kinds.setdefault(path, isinstance(value, dict)) == isinstance(value, dict), path
        for name, inner in value.items() if isinstance(value, dict) else ():
            assert all(part.strip() for part in name.split(".")), name
            at = path
            for part in name.split(".")[:-1]:
                at = f"{at}.{part}"
                assert kinds.setdefault(at, True), at
            assert_no_conflict(inner, kinds, f"{at}.{name.split('.')[-1]}")


def names(value: Any, path: str = "") -> Iterator[str]:
    """The full name of each value that is in no list."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from names(inner, f"{path}.{name}")
    else:
        yield path


@settings(deadline=None, max_examples=examples(2))
@given(st.lists(LINES, min_size=1, max_size=3), st.sampled_from([None, "app", "log.x", "data_stream", "@timestamp"]))
@example([{"labels": {"a_b": "1"}, "a..b": 2, "a": [{"": [1]}]}], None)
@example([{"a": 0, "a.b": {"c": 1}}, {"a": {}, "a.b": 1}], None)
def test_any_object_is_an_event_that_is_taken_and_whole(lines: list[Fields], target: str | None) -> None:
    body = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    parse = Parse(format="json", target=target)
    result = check_processor(parse, Batch.lines(body, offset=0, shared=SHARED))

    assert data_streams.of(result) in ("logs-app-prod", ["logs-app-prod"] * len(lines))
    for line, row, event in zip(lines, result.json_lines().splitlines(), result.whole(), strict=True):
        assert orjson.loads(row) == event
        assert_no_conflict(event, {}, "")
        assert max(Counter(names(event)).values()) == 1
        assert event["data_stream"] == STREAM
        assert isinstance(event["@timestamp"], str)
        assert isinstance(event["log"]["offset"], int)
        assert all(isinstance(event[name], dict) for name in ("host", "agent", "ecs", "event"))
        assert not isinstance(event.get("message"), dict)
        said = line | ({"@timestamp": None} if line.get("@timestamp") == event["@timestamp"] else {})
        lost = Counter(scalars(said)) - Counter(scalars(event, is_event=True)) - Counter(["null", *of_times(line)])
        assert not lost


def of_times(line: Fields) -> list[str]:
    """A time that is a number is written anew."""
    return [json.dumps(line["@timestamp"])] if isinstance(line.get("@timestamp"), int) else []


def test_long_names_above_many_values_do_not_make_a_long_event() -> None:
    line = {"x" * 100_000: {" " * n: n for n in range(1, 500)} | {"a": 1}}

    assert len(orjson.dumps(parsed(line))) < 2 * len(orjson.dumps(line))


def test_deep_lists_leave_the_others_of_their_batch_alone() -> None:
    for name in ["a", "tags", "message", "labels"]:
        for depth in [240, 1000]:
            deep = f'{{"{name}":' + "[" * depth + "]" * depth + "}"
            first, second = check_processor(
                Parse(format="json"), Batch.lines(f'{deep}\n{{"n":{{}}}}\n'.encode(), offset=0, shared=SHARED)
            ).whole()

            assert ("n" in second, "processor_error" in first.get("tags", [])) == (True, depth == 1000)


def test_a_long_name_above_many_values_in_a_list_takes_no_more_memory_than_the_line() -> None:
    line = {"items": [{"x" * 10_000: {f"n{n}": [] for n in range(2000)}}, {"y": {"z": 1}}]}

    tracemalloc.start()
    try:
        parsed(line)

        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_thousands_of_dotted_names_cost_what_as_many_others_do() -> None:
    """In a run of lines each of which has names of its own, no name is looked for in all of them."""
    lines = [{f"a{n}.b{m}": 1 for m in range(200)} for n in range(256)]
    body = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    begun = time.process_time()
    result = Parse(format="json").process(Batch.lines(body, offset=0, shared=SHARED))

    assert time.process_time() - begun < 2
    assert result.own()[255]["a255"]["b199"] == 1


def test_thousands_of_values_of_one_label_are_kept_apart() -> None:
    line = {" " * n: n for n in range(1, 1000)}

    assert sorted(parsed(line)["labels"].values()) == list(range(1, 1000))


def test_an_object_that_becomes_too_deep_leaves_the_others_of_its_batch_alone() -> None:
    for levels in [60, 200, 250]:
        for name in ["a", ".".join("a" * 20)]:
            deep = f'{{"{name}":' * levels + "1" + "}" * levels
            batch = Batch.lines(f'{deep}\n{{"n":1}}\n'.encode(), offset=0, shared=SHARED)
            first, second = check_processor(Parse(format="json"), batch).whole()

            assert second["n"] == 1
            assert first.get("message", deep) == deep
            assert first.get("tags") == (["processor_error"] if "message" in first else None)
