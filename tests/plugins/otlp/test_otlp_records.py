"""Records as the bytes that came, beside the readers and writers of single records."""

from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given, settings
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from shipper.pipeline import door
from shipper.plugin import Batch
from shipper.sdk import joining
from shipper_plugins.otlp import events, protobuf, records, views, wire
from shipper_plugins.otlp.documents import documents
from shipper_plugins.otlp.model import MOST_DEPTH, Group, Record, Resource, Scope, TooHeavy, Unfit
from tests.plugins.otlp.test_otlp_events import GROUPS, flat, nested_to

NOW = datetime(2026, 11, 29, tzinfo=UTC)
SHOP = Group(
    resource=Resource(attributes={"service.name": "shop"}, schema_url="https://example.org/1"),
    scope=Scope(name="access", version="1"),
    records=[Record(time=n + 1, severity=n, body=f"line {n}", attributes={"n": n, "b": b"\xff"}) for n in range(20)],
)


def came(*groups):
    """The batches of a request that is not odd."""
    found = records.batches(protobuf.encoded(groups))
    assert found is not None
    return found


def decoded(body):
    """The batches of single records."""
    return events.batches(events.taken(protobuf.decoded(body).groups)[0])


@settings(deadline=None)
@given(GROUPS)
def test_records_that_stay_bytes_are_the_same_events(groups):
    body = protobuf.encoded(groups)
    found, expected = records.batches(body), decoded(body)

    for batch, one in zip(found or (), expected, strict=found is not None):
        door.check(batch)
        assert repr(batch.whole()) == repr(one.whole())
        assert (batch.timestamps, batch.severities) == (one.timestamps, one.severities)
        assert records.encoded(batch) == protobuf.encoded(events.groups(one))
        assert batch.json_lines() == one.json_lines()
        assert documents(batch.messages()) == replace(one, shared={}).json_lines()


def test_as_json_records_have_the_fields_that_they_have():
    """Each field but the time is missing in some record, or in all."""
    full = Record(time=1_700_000_000_123_456_789, observed=7, severity=9, severity_text="INFO", body="one", flags=1)
    odd = Record(observed=999_999_999, trace_id=b"\1" * 16, attributes={"a": float("nan"), "b": b"\xff", "c": [{}]})
    groups = [Group(records=[full, odd, Record(time=5, body={"a": 1}, event_name="e", dropped=2, span_id=b"\2")])]

    [batch], [one] = came(*groups), decoded(protobuf.encoded(groups))

    assert batch.json_lines() == one.json_lines()
    assert documents(batch.messages()) == replace(one, shared={}).json_lines()
    assert came(SHOP)[0].json_lines() == decoded(protobuf.encoded([SHOP]))[0].json_lines()


@pytest.mark.parametrize("odd", [b"", b"\x0a\x01a\x0a\x01b", b"\x10\x01", b"\xaa\x06\x02hi", b"\x0a\x00"])
def test_bodies_that_are_no_texts_alone_are_read_one_by_one(odd):
    record = b"\x09" + (1).to_bytes(8, "little")
    messages = [record + wire.bytes_field(5, body) for body in (b"\x0a\x03one", odd, b"\x0a\x03two")]

    messages.append(record + wire.bytes_field(5, odd) + wire.bytes_field(5, b"\x2a\x02\x0a\x00"))
    own = records.Records().events(messages)

    assert documents(messages) == b"".join([orjson.dumps(event) + b"\n" for event in own])


def test_a_request_goes_as_it_came():
    body = protobuf.encoded([SHOP, Group(records=[Record(observed=7)])])

    [one, other] = records.batches(body)
    stored = [Batch.unpack(batch.pack(), origin=b"", seq=0) for batch in (one, other)]

    assert records.encoded(joining.together(stored, ("resource", "scope"))) == body
    assert [batch.form for batch in stored] == ["otlp", "otlp"]


def test_what_nobody_knows_of_a_record_is_kept():
    record = ExportLogsServiceRequest.FromString(protobuf.encoded([Group(records=[Record(time=1)])]))
    of_record = b"".join([b"\x12", bytes([9 + 5]), b"\x09" + (1).to_bytes(8, "little"), b"\xaa\x06\x02hi"])
    body = protobuf._enclosed(Group(), of_record)

    [batch] = records.batches(body)

    assert records.encoded(batch) == body
    assert batch.own() == decoded(record.SerializeToString())[0].own()


@pytest.mark.parametrize(
    "odd",
    [
        Record(),
        Record(time=1 << 63),
        Record(time=1, observed=1 << 63),
        Record(time=1, trace_id=b"\1" * 65),
        Record(time=1, span_id=b"\1" * 65),
        Record(time=1, body=nested_to(views.LEVELS + 1)),
        Record(time=1, attributes={"deep": [[[[[1]]]]]}),
        Record(time=1, body=[None] * (events.BATCH_BYTES // 2)),
    ],
)
def test_an_odd_record_is_left_to_the_readers_of_single_records(odd):
    assert records.batches(protobuf.encoded([SHOP, Group(records=[odd])])) is None


def test_values_are_kept_to_the_last_level_that_is_not_odd():
    [batch] = came(Group(records=[Record(time=1, body=nested_to(views.LEVELS), attributes={"a": [[[[1]]]]})]))

    assert batch.own()[0]["body"] == {"structured": nested_to(views.LEVELS)}


def test_of_a_value_that_is_given_again_only_the_last_is_looked_at():
    """So it takes the memory of one."""
    deep = ExportLogsServiceRequest.FromString(protobuf.encoded([Group(records=[Record(time=1, body=nested_to(9))])]))
    [record] = deep.resource_logs[0].scope_logs[0].log_records
    again = record.SerializeToString() + wire.bytes_field(5, wire.bytes_field(1, b"text"))

    [batch] = records.batches(protobuf._enclosed(Group(), wire.bytes_field(2, again)))

    assert batch.own()[0]["body"] == {"text": "text"}


@pytest.mark.parametrize("odd", [Group(resource=Resource(attributes={"b": b"\0"}), records=[Record(time=1)])])
def test_a_resource_that_json_cannot_hold_is_left_to_them_too(odd):
    assert records.batches(protobuf.encoded([odd])) is None


def test_so_are_bytes_that_are_no_request_and_broken_texts():
    assert records.batches(b"\xff") is None
    assert records.batches(protobuf.encoded([SHOP]).replace(b"line", b"\xff\xff\xff\xff")) is None
    assert records.batches(protobuf.encoded([SHOP]).replace(b"shop", b"\xff\xff\xff\xff")) is None


def test_the_limits_of_a_request_are_those_of_single_records(monkeypatch):
    many = [Group(scope=Scope(name=str(n)), records=[Record(time=1)]) for n in range(events.MOST_GROUPS + 1)]
    deep = Group(resource=Resource(attributes={"a": nested_to(MOST_DEPTH)}), records=[Record(time=1)])

    assert records.batches(protobuf.encoded(many)) is None
    assert len(came(deep)) == 1
    monkeypatch.setattr(events, "MOST_WEIGHT", 100)
    with pytest.raises(TooHeavy):
        came(SHOP)
    monkeypatch.setattr(protobuf, "MOST_RECORDS", 5)
    with pytest.raises(Unfit, match="at most"):
        came(SHOP)


def test_a_resource_of_many_scopes_is_weighed_until_it_is_too_heavy_and_looked_into_after_that(monkeypatch):
    weighed, looked_into = [], []
    weigh = events.Filled.own_bytes.fget
    monkeypatch.setattr(events, "MOST_WEIGHT", 1000)
    monkeypatch.setattr(events.Filled, "own_bytes", property(lambda one: weighed.append(one) or weigh(one)))
    monkeypatch.setattr(events, "is_exact", lambda value: looked_into.append(value) or True)
    resource = Resource(attributes={"long": "x" * 300})
    body = protobuf.encoded([Group(resource=resource, records=[Record(time=1)]) for _ in range(events.MOST_GROUPS)])

    for read in (records.batches, decoded):
        with pytest.raises(TooHeavy):
            read(body)
        assert len(weighed) == 3
        weighed.clear()
    assert looked_into == []


def test_groups_without_records_make_no_batch():
    assert came(Group(), Group(resource=SHOP.resource)) == []


def test_what_was_added_on_the_way_is_sent_with_the_records():
    [batch] = came(SHOP)

    for changed in (
        batch.share({"labels": {"a": 1}}),
        batch.share({"body": {"text": "x"}}),
        batch.replace(batch.own()),
    ):
        assert records.encoded(changed) is None
    assert records.encoded(Batch.documents([])) is None
    assert len(events.groups(batch.share({"labels": {"a": 1}}))[0].records) == 20


def test_times_that_a_processor_gives_are_not_lost():
    [batch] = came(SHOP)

    timed = batch.with_columns(timestamps=[5] * 20)

    assert (timed.form, records.encoded(timed)) == (None, None)
    assert [record.time for record in events.groups(timed)[0].records] == [5] * 20


def test_parts_of_a_batch_stay_in_the_form():
    [batch] = came(SHOP)

    picked = batch.pick([1, 3])

    assert flat(protobuf.decoded(records.encoded(picked)).groups) == flat(
        [Group(resource=SHOP.resource, scope=SHOP.scope, records=[SHOP.records[1], SHOP.records[3]])]
    )
    assert [piece.form for piece in batch.pieces(100)] == ["otlp"] * len(list(batch.pieces(100)))


def test_records_that_are_broken_are_said_to_be():
    [batch] = came(SHOP)
    broken = replace(batch, body=b"\xff" * len(batch.body))

    for read in (broken.own, broken.json_lines, broken.pick([1]).json_lines):
        with pytest.raises(ValueError, match="record"):
            read()
