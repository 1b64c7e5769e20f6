"""Lines as records by columns: the bytes are those of the encoders of single records."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.plugin import Batch
from shipper_plugins.otlp import events, jsons, protobuf, wire
from shipper_plugins.otlp.lines import lines

CODECS = [protobuf, jsons]
SHARED = {
    "@timestamp": "2023-11-14T22:13:20.5Z",
    "host": {"name": "web-1"},
    "data_stream": {"dataset": "app"},
    "log": {"file": {"path": "/a.log"}, "syslog": {"severity": {"code": 3}}},
    "flags": 7,
    "trace_id": "01" * 16,
}
VALUES = st.sampled_from(
    [None, "", "text", 7, -1, 0.5, True, {}, {"offset": 3}, {"text": "x"}, {"a": {"b": [1, {}]}}, []]
)
NAMES = st.sampled_from(
    [
        "@timestamp",
        "observed_timestamp",
        "severity_number",
        "severity_text",
        "body",
        "attributes",
        "message",
        "log",
        "log.offset",
        "resource",
        "scope",
        "host",
        "trace_id",
        "flags",
        "event_name",
        "labels",
    ]
)
TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=200), min_size=1, max_size=5
)
OFFSETS = st.integers(0, 1 << 20) | st.sampled_from([127, 128, 16383, 16384, (1 << 21) - 9, 1 << 40, (1 << 63) - 1])


def batch_of(texts, **options):
    return Batch.lines("".join(text + "\n" for text in texts).encode(), **{"offset": 0, "shared": SHARED, **options})


@given(TEXTS, OFFSETS, st.integers(1, 2), st.dictionaries(NAMES, VALUES, max_size=4))
@example(["", "\x7f", '"\\'], 126, 1, SHARED)
@example(["one"], 5, 1, SHARED | {"attributes": {"log.offset": 1}})
def test_lines_are_written_by_columns_as_one_after_the_other(texts, offset, gap, shared):
    batch = batch_of(texts, offset=offset, gap=gap, shared=shared)

    if (found := lines(batch)) is not None:
        for codec in CODECS:
            assert codec.encoded_lines(found) == codec.encoded(events.groups(batch))


@pytest.mark.parametrize("offset", [0, 120, 16380, (1 << 21) - 20, (1 << 62) - 3])
def test_what_an_input_of_files_reads_is_written_by_columns(offset):
    batch = batch_of(["one", "", "x" * 300, "four"] * 5, offset=offset)

    found = lines(batch)

    assert found is not None
    for codec in CODECS:
        assert codec.encoded_lines(found) == codec.encoded(events.groups(batch))


@pytest.mark.parametrize(
    "odd",
    [
        replace(batch_of(["one"]), timestamps=(7,)),
        replace(batch_of(["one"]), severities=(7,)),
        batch_of([]),
        batch_of(["one"], offset=-1),
        batch_of(["one", "two"], offset=(1 << 63) - 1),
        batch_of(["one"], shared={"body": {"text": "the same for all"}}),
        batch_of(["one"], shared={"attributes": {"log.offset": 7}}),
        Batch.documents([b'{"message":"one"}']),
    ],
)
def test_what_is_odd_is_left_to_the_encoders_of_single_records(odd):
    assert lines(odd) is None


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_numbers_are_written_together_as_one_after_the_other(numbers):
    assert wire.varints(numbers) == [wire.field_of(1, 0, number)[1:] for number in numbers]
