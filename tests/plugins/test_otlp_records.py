"""Records as the bytes that came, beside the readers and writers of single records."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from shipper.pipeline import door
from shipper.pipeline.intake.envelope import Envelope
from shipper.plugin import Batch, PluginFault
from shipper.sdk import forms, joining
from shipper_plugins.otlp import events, protobuf, records, views
from shipper_plugins.otlp.model import MOST_DEPTH, Group, Record, Resource, Scope, TooHeavy, Unfit
from shipper_plugins.relay import frames
from tests.plugins.test_otlp_events import GROUPS, flat, nested_to

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
    ],
)
def test_an_odd_record_is_left_to_the_readers_of_single_records(odd):
    assert records.batches(protobuf.encoded([SHOP, Group(records=[odd])])) is None


def test_values_are_kept_to_the_last_level_that_is_not_odd():
    [batch] = came(Group(records=[Record(time=1, body=nested_to(views.LEVELS), attributes={"a": [[[[1]]]]})]))

    assert batch.own()[0]["body"] == {"structured": nested_to(views.LEVELS)}


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


def test_the_envelope_gives_them_no_time_and_leaves_them_bytes():
    [batch] = came(SHOP)

    dressed = Envelope({"data_stream": {"dataset": "x"}}).on(batch, NOW)

    assert (dressed.form, dressed.body) == ("otlp", batch.body)
    assert dressed.shared == {"data_stream": {"dataset": "x"}, **batch.shared}
    named = Envelope({"body": {"x": 1}}).on(batch, NOW)
    assert (named.form, named.own()[0]["body"]) == (None, {"x": 1, "text": "line 0"})


def test_batches_of_a_form_enter_and_are_sent_together_with_their_like():
    [batch] = came(SHOP)
    typed = batch.unformed()

    assert joining.kind(batch) == joining.kind(came(SHOP)[0]) != joining.kind(typed)
    assert joining.strung([batch, batch]).messages() == batch.messages() * 2
    assert joining.way(batch) != joining.way(typed)
    other = replace(batch, shared=batch.shared | {"labels": {"a": 1}})
    both = joining.together([batch, other], ("data_stream",))
    assert (both.form, both.whole()) == ("otlp", [*batch.whole(), *other.whole()])


def test_a_batch_of_an_unknown_form_does_not_pass_the_door():
    [batch] = came(SHOP)

    for wrong in (replace(batch, form="nobody's"), replace(batch, form="file"), replace(batch, shared={"body": 1})):
        with pytest.raises(PluginFault):
            door.check(wrong)
    with pytest.raises(ValueError, match="form"):
        forms.of("file")
    with pytest.raises(ValueError, match="record"):
        replace(batch, body=b"\xff" * len(batch.body)).own()


def test_a_relay_takes_and_gives_no_form():
    [batch] = came(SHOP)
    batch = batch.identified(b"o" * 16, 1)

    part = frames.part_of(batch)

    assert part.batch(1 << 20).own() == batch.own()
    with pytest.raises(frames.FrameError):
        part._replace(packed=batch.pack(), digest=frames.digest(batch)).batch(1 << 20)
