import math
from contextlib import suppress
from dataclasses import replace

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from shipper.plugin import Batch
from shipper_plugins.otlp import events, jsons, protobuf, texts
from shipper_plugins.otlp.model import MOST_DEPTH, Group, Record, Resource, Scope, Unfit

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SCALARS = st.none() | st.booleans() | INT64 | st.floats() | TEXT | st.binary(max_size=8)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3), max_leaves=6)
ATTRIBUTES = st.dictionaries(TEXT, VALUES, max_size=3)
U32 = st.integers(0, (1 << 32) - 1)
TIME = st.just(0) | st.integers(1, (1 << 63) - 1)
IDS = st.sampled_from([b"", b"\1" * 16, b"\0" * 8, b"ab"])

RECORDS = st.builds(
    Record,
    time=TIME,
    observed=st.integers(1, (1 << 63) - 1),
    severity=st.integers(-3, 30),
    severity_text=TEXT,
    body=VALUES,
    attributes=ATTRIBUTES,
    dropped=U32,
    flags=U32,
    trace_id=IDS,
    span_id=IDS,
    event_name=TEXT,
)
RESOURCES = st.builds(Resource, attributes=ATTRIBUTES, dropped=U32, schema_url=TEXT)
SCOPES = st.builds(Scope, name=TEXT, version=TEXT, attributes=ATTRIBUTES, dropped=U32, schema_url=TEXT)
GROUPS = st.lists(
    st.builds(Group, resource=RESOURCES, scope=SCOPES, records=st.lists(RECORDS, min_size=1, max_size=2)),
    min_size=1,
    max_size=2,
)
CODECS = [protobuf, jsons]


def flat(groups):
    """What is to be kept of each record, with floats that can be compared and types that differ."""
    return [repr((group.resource, group.scope, record)) for group in groups for record in group.records]


@given(GROUPS)
@settings(deadline=None)
def test_what_is_written_or_stored_is_read_with_the_same_types(groups):
    for codec in CODECS:
        assert flat(codec.decoded(codec.encoded(groups)).groups) == flat(groups)
    stored = [Batch.unpack(batch.pack(), origin=b"", seq=0) for batch in events.batches(groups)]

    assert flat([group for batch in stored for group in events.groups(batch)]) == flat(groups)


@given(GROUPS)
@settings(deadline=None)
def test_every_batch_of_records_can_be_written_as_json(groups):
    for batch in events.batches(groups):
        assert batch.json_lines().count(b"\n") == batch.count


@pytest.mark.parametrize("codec", CODECS)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(codec, body):
    with suppress(Unfit):
        codec.decoded(body)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 1 << 65) | TEXT,
    lambda v: (
        st.lists(v, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resourceLogs",
                    "scopeLogs",
                    "logRecords",
                    "resource",
                    "scope",
                    "attributes",
                    "key",
                    "value",
                    "body",
                    "arrayValue",
                    "kvlistValue",
                    "values",
                    "intValue",
                    "bytesValue",
                    "doubleValue",
                    "traceId",
                    "flags",
                ]
            ),
            v,
            max_size=3,
        )
    ),
    max_leaves=20,
)


@given(JSONS)
def test_any_json_is_read_or_refused(value):
    with suppress(Unfit):
        jsons.decoded(msgspec.json.encode(value))


def test_the_library_of_opentelemetry_reads_what_protobuf_says():
    body = protobuf.encoded([Group(resource=Resource(attributes={"service.name": "shop"}), records=[Record(body="x")])])

    request = ExportLogsServiceRequest.FromString(body)

    assert request.resource_logs[0].resource.attributes[0].value.string_value == "shop"
    assert request.resource_logs[0].scope_logs[0].log_records[0].body.string_value == "x"


def test_json_is_read_as_the_specification_writes_it():
    body = b"""{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"stringValue":"my.service"}}]},
    "scopeLogs":[{"scope":{"name":"my.library","version":"1.0.0"},"logRecords":[{"timeUnixNano":"1544712660300000000",
    "observedTimeUnixNano":1544712660300000000,"severityNumber":10,"severityText":"Information",
    "traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174","body":{"stringValue":"Example"},
    "attributes":[{"key":"int","value":{"intValue":"9223372036854775807"}},{"key":"d","value":{"doubleValue":637}},
    {"key":"nothing","value":{}},{"key":"new","value":{"newValue":1}}],"new":true}]}]}]}"""

    [group] = jsons.decoded(body).groups
    [record] = group.records

    assert record.time == record.observed == 1544712660300000000
    assert record.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert repr(record.attributes) == repr({"int": (1 << 63) - 1, "d": 637.0, "nothing": None, "new": None})
    assert group.scope == Scope(name="my.library", version="1.0.0")


@pytest.mark.parametrize("zero", ["-0", "-0.0", "-0e0"])
def test_a_negative_zero_keeps_its_sign_as_it_is_written_in_go(zero):
    value = f'{{"doubleValue":{zero}}}'
    body = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{value},"flags":-0}}]}}]}}]}}'

    [record] = jsons.decoded(body.encode()).groups[0].records

    assert (math.copysign(1, record.body), record.flags) == (-1, 0)


def nested_to(depth):
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("codec", CODECS)
def test_values_are_kept_to_the_deepest_level_that_is_taken(codec):
    groups = [Group(records=[Record(attributes={"deep": nested_to(MOST_DEPTH)})])]

    assert flat(codec.decoded(codec.encoded(groups)).groups) == flat(groups)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_deeper_than_that_is_sent_as_text(codec):
    groups = [Group(records=[Record(body=nested_to(MOST_DEPTH + 1))])]
    value = codec.decoded(codec.encoded(groups)).groups[0].records[0].body

    for _ in range(MOST_DEPTH):
        value = value["a"]
    assert value == '{"a":1}'


def test_a_record_that_is_too_deep_is_rejected_alone():
    deep: dict = {"intValue": 1}
    for _ in range(MOST_DEPTH + 1):
        deep = {"arrayValue": {"values": [deep]}}
    body = orjson.dumps(
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": deep}, {"body": {"stringValue": "sound"}}]}]}]}
    )

    decoded = jsons.decoded(body)

    assert decoded.rejected == 1
    assert "levels" in decoded.reason
    assert [record.body for record in decoded.groups[0].records] == ["sound"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_request_has_so_many_records_at_most(codec, monkeypatch):
    monkeypatch.setattr(codec, "MOST_RECORDS", 5)
    sound = codec.encoded([Group(records=[Record()] * 3)])

    assert len(codec.decoded(sound).groups[0].records) == 3
    for groups in ([Group(records=[Record()] * 5)], [Group()] * 6):
        with pytest.raises(Unfit, match="at most"):
            codec.decoded(codec.encoded(groups))


def test_a_time_after_the_year_2262_is_rejected_with_a_reason():
    groups, rejected, reason = events.taken([Group(records=[Record(time=1 << 63), Record(time=1)])])

    assert ([record.time for record in groups[0].records], rejected) == ([1], 1)
    assert "2262" in reason


def test_the_fields_have_the_names_of_elasticsearchs_mappings():
    resource = Resource(attributes={"service.name": "shop"}, schema_url="https://example.org/1")
    record = Record(time=1_700_000_000_123_456_789, severity=9, severity_text="INFO", body="hello", trace_id=b"\1" * 16)
    [batch] = events.batches([Group(resource=resource, scope=Scope(name="lib"), records=[record])])

    assert batch.shared == {
        "resource": {"attributes": {"service.name": "shop"}, "schema_url": "https://example.org/1"},
        "scope": {"name": "lib"},
    }
    assert batch.own() == [
        {
            "@timestamp": "2023-11-14T22:13:20.123456789Z",
            "severity_number": 9,
            "severity_text": "INFO",
            "body": {"text": "hello"},
            "trace_id": "01" * 16,
        }
    ]
    assert (batch.timestamps, batch.severities) == ((1_700_000_000_123_456_789,), (9,))


def test_objects_stand_in_the_structured_body_and_all_else_in_the_text():
    for body, field in [
        ({"a": 1}, "structured"),
        ([1, {}], "structured"),
        ([1], "text"),
        (7, "text"),
        (b"x", "text"),
        ({}, "structured"),
    ]:
        [batch] = events.batches([Group(records=[Record(body=body)])])

        assert batch.own()[0]["body"] == {field: body}


def test_a_resource_that_json_cannot_hold_stands_in_each_event():
    [batch] = events.batches([Group(resource=Resource(attributes={"b": b"\0"}), records=[Record(), Record()])])

    assert batch.shared == {"scope": {}}
    assert [own["resource"]["attributes"] for own in batch.own()] == [{"b": b"\0"}] * 2


def test_many_groups_become_one_batch():
    many = [Group(scope=Scope(name=str(n)), records=[Record(body=n)]) for n in range(events.MOST_GROUPS + 1)]

    [batch] = events.batches(many)

    assert flat(events.groups(batch)) == flat(many)


def test_a_text_line_becomes_a_body_with_its_fields_as_attributes():
    shared = {"host": {"name": "web-1"}, "log": {"file": {"path": "/a.log"}}, "@timestamp": "2023-11-14T22:13:20.5Z"}

    [group] = events.groups(Batch.lines(b"one\n", offset=7, shared=shared))

    assert group.resource == Resource(attributes={"host.name": "web-1"})
    assert group.records == [
        Record(time=1_700_000_000_500_000_000, body="one", attributes={"log.file.path": "/a.log", "log.offset": 7})
    ]


def test_fields_that_were_added_on_the_way_become_attributes():
    [batch] = events.batches([Group(records=[Record(body="x", attributes={"a": 1})])])

    [group] = events.groups(batch.share({"labels": {"env": "prod"}, "host": {"name": "h"}}))

    assert group.records[0].attributes == {"a": 1, "labels.env": "prod", "host.name": "h"}
    assert group.resource == Resource()


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                [
                    "body",
                    "message",
                    "resource",
                    "scope",
                    "trace_id",
                    "flags",
                    "host",
                    "severity_number",
                    "attributes",
                    "@timestamp",
                    "observed_timestamp",
                    "x",
                ]
            ),
            VALUES,
            max_size=5,
        ),
        max_size=3,
    )
)
@settings(deadline=None)
def test_any_event_can_be_sent(rows):
    groups = events.groups(Batch.typed(rows))

    assert sum(len(group.records) for group in groups) == len(rows)
    for codec in CODECS:
        assert sum(len(group.records) for group in codec.decoded(codec.encoded(groups)).groups) == len(rows)


def test_an_integer_of_more_than_64_bits_is_sent_as_its_digits():
    groups = [Group(records=[Record(body=1 << 63)])]

    for codec in CODECS:
        assert codec.decoded(codec.encoded(groups)).groups[0].records[0].body == str(1 << 63)


def test_a_record_keeps_its_time_where_the_columns_are_gone():
    [batch] = events.batches([Group(records=[Record(time=5, observed=6)])])

    [group] = events.groups(replace(batch, timestamps=None, severities=None))

    assert (group.records[0].time, group.records[0].observed) == (5, 6)


@pytest.mark.parametrize("codec", CODECS)
def test_an_answer_says_how_many_were_rejected(codec):
    assert codec.rejected(codec.answer(0, "")) == 0
    assert codec.rejected(codec.answer(3, "too old")) == 3
    with pytest.raises(Unfit):
        codec.rejected(b"\xff")


def test_not_a_number_is_kept():
    for codec in CODECS:
        value = codec.decoded(codec.encoded([Group(records=[Record(body=float("nan"))])])).groups[0].records[0].body
        assert math.isnan(value)


BROKEN = {
    "a byte that is no UTF-8": (b"caf\xe9", b"caf\xe9", "caf\ufffd"),
    "the end of a cut character": (b"cut \xf0\x9f\x98", b"cut \xf0\x9f\x98", "cut \ufffd"),
    "half of a surrogate pair": (b"cut \xed\xa0\xbd", b"cut \\ud83d", None),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("in_protobuf", "in_json", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_text_that_cannot_be_one_costs_its_record_nothing_else_and_its_neighbours_nothing(
    codec, in_protobuf, in_json, expected
):
    """Exporters do not repeat what is answered 400: one cut text would cost all records of its request."""
    mark = "mark-of-text"
    attributes = {"n": 0, "no": False, "f": 0.5, mark: [b"\xff", mark]}
    odd = Record(time=1, severity=9, body=mark, attributes=attributes, trace_id=b"\xfe")
    records = [Record(body="first"), odd, Record(body="last")]
    body = codec.encoded([Group(resource=Resource(attributes={"a": 1}), records=records)])
    broken = in_protobuf if codec is protobuf else in_json
    if codec is protobuf:
        broken = broken.ljust(len(mark), b".")  # the lengths of all messages stay
        expected = broken.decode(errors="replace")
    found = codec.decoded(body.replace(mark.encode(), broken))

    said = expected or "cut \ufffd"
    kept = replace_texts(odd, said, [b"\xff", said])
    assert flat(found.groups) == flat(
        [Group(resource=Resource(attributes={"a": 1}), records=[Record(body="first"), kept, Record(body="last")])]
    )


def replace_texts(record, text, values):
    attributes = {name: value for name, value in record.attributes.items() if not isinstance(value, list)}
    return msgspec.structs.replace(record, body=text, attributes=attributes | {text: values})


@settings(deadline=None)
@given(GROUPS)
def test_a_message_that_is_written_anew_has_all_that_it_had(groups):
    body = protobuf.encoded(groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_is_sound", lambda message, kind: False)
        anew = texts.mended(body, ExportLogsServiceRequest.DESCRIPTOR)

    assert ExportLogsServiceRequest.FromString(anew) == ExportLogsServiceRequest.FromString(body)


@pytest.mark.parametrize("limit", ["MOST_BROKEN", "MOST_FIELDS"])
def test_a_request_with_very_many_broken_texts_is_refused(monkeypatch, limit):
    """To write it anew would take the input's only thread for half a minute."""
    body = protobuf.encoded([Group(records=[Record(body="qq") for _ in range(10)])]).replace(b"qq", b"\xff\xff")
    assert len(protobuf.decoded(body).groups[0].records) == 10

    monkeypatch.setattr(texts, limit, 10)
    with pytest.raises(Unfit):
        protobuf.decoded(body)


def test_a_severity_of_syslog_is_the_severity_number_and_stays_an_attribute():
    codes = [0, 1, 2, 3, 4, 5, 6, 7, 8, -1, "3", True, None]
    batch = Batch.events([{"log": {"syslog": {"severity": {"code": code}}}} for code in codes])
    records = [record for group in events.groups(batch) for record in group.records]

    assert [record.severity for record in records] == [21, 19, 18, 17, 13, 10, 9, 5, 0, 0, 0, 0, 0]
    assert [record.attributes["log.syslog.severity.code"] for record in records] == codes
    (own,) = events.groups(Batch.events([{"severity_number": 3, "log": {"syslog": {"severity": {"code": 0}}}}]))
    assert [record.severity for record in own.records] == [3]
