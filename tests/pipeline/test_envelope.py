"""The envelope: every event has it, and what an event says itself is above it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline import door
from shipper.pipeline.intake.envelope import TIME, Envelope
from shipper.plugin import DataStream, Input
from shipper.sdk.event import Batch
from shipper.sdk.fields import Fields, merged

ARRIVED = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)
TEXT = "2026-01-02T03:04:05.678Z"
STREAM = {"type": "logs", "dataset": "app", "namespace": "default"}


class Forwarding(Input, frozen=True):
    """Of events of others."""

    forwards = True


ENVELOPE = Envelope.of(Input(data_stream=DataStream(dataset="app")))
FORWARDED = Envelope.of(Forwarding(data_stream=DataStream(dataset="app")))
FIELDS: Fields = {TIME: TEXT, **ENVELOPE.fields}

_values = st.sampled_from(["text", None, 7, {}, {"name": "own"}, {"dataset": "own"}, {"a": {"b": [1]}}])
_events = st.lists(
    st.dictionaries(st.sampled_from([*FIELDS, "other", "message"]), _values, max_size=4), min_size=1, max_size=5
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Of documents or typed events that may have any part of the envelope, shared or of their own."""
    events = draw(_events)
    used = {name for event in events for name in event}
    shared = {name: draw(_values) for name in sorted(FIELDS.keys() - used) if draw(st.booleans())}
    times = st.none() | st.integers(0, 2**60)
    batch = (Batch.typed if draw(st.booleans()) else Batch.events)(events, shared=shared)
    if draw(st.booleans()):
        batch = batch.with_columns(timestamps=draw(st.lists(times, min_size=batch.count, max_size=batch.count)))
    return replace(batch.with_columns(keys=[b"%d" % n for n in range(batch.count)]), seq=7)


@given(batches())
def test_each_event_has_the_envelope_below_what_it_says_itself(batch: Batch) -> None:
    stamped = ENVELOPE.on(batch, ARRIVED)

    events = stamped.whole()
    times = [event.pop(TIME) for event in events]
    said = batch.whole()
    for event, time, own, ns in zip(events, times, said, batch.timestamps or [None] * batch.count, strict=True):
        assert event == {k: v for k, v in merged(ENVELOPE.fields, own).items() if k != TIME}
        assert time == own[TIME] if TIME in own else time == (TEXT if ns is None else _written(ns))


@given(batches())
def test_an_event_in_its_envelope_passes_the_door_with_its_id_and_columns(batch: Batch) -> None:
    stamped = door.check(ENVELOPE.on(door.check(batch), ARRIVED))

    assert stamped.id_texts() == batch.id_texts()
    assert (stamped.keys, stamped.timestamps, stamped.is_typed) == (batch.keys, batch.timestamps, batch.is_typed)
    for row in stamped.json_lines().split(b"\n")[:-1]:
        names = [name for name, _ in json.loads(row, object_pairs_hook=list)]
        assert len(set(names)) == len(names)


def _written(ns: int) -> str:
    whole = datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{ns // 10**6 % 1000:03d}Z"


def test_lines_share_the_envelope_and_are_not_looked_into() -> None:
    text = b'{"@timestamp":"x","host":1}\n'
    lines = Batch.lines(text, offset=5, shared={"log": {"file": {"path": "/a"}}, "agent": {"name": "mine"}})
    stamped = ENVELOPE.on(lines, ARRIVED)

    assert stamped.body is lines.body
    assert stamped.shared == merged(FIELDS, lines.shared)
    assert stamped.shared["agent"] == FIELDS["agent"] | {"name": "mine"}


def test_lines_whose_times_are_known_have_them() -> None:
    lines = Batch.lines(b'a"\nb\n', offset=5, shared={"log": {"file": {"path": "/a"}}, "x": 1})
    first, second = ENVELOPE.on(lines.with_columns(timestamps=[1_700_000_000_123_456_789, None]), ARRIVED).whole()

    assert (first[TIME], second[TIME]) == ("2023-11-14T22:13:20.123Z", TEXT)
    assert [first, second] == [
        merged(FIELDS, event) | {TIME: time} for event, time in zip(lines.whole(), (first[TIME], TEXT), strict=True)
    ]


def test_documents_without_any_of_it_are_not_looked_into() -> None:
    documents = Batch.documents([b'{"a":{"b":1}}', b"{}"])

    assert ENVELOPE.on(documents, ARRIVED).body is documents.body


@pytest.mark.parametrize(
    "document", [b'{"\\u0040timestamp":"own","n":1.50}', b'{"@timestamp":"own","n":1.50}', b'{"n":1.50,"@timestamp":5}']
)
def test_what_a_document_has_stays_as_it_was_written(document: bytes) -> None:
    stamped = FORWARDED.on(Batch.documents([document, b'{"x":{"@timestamp":1}}']), ARRIVED)
    kept, filled = stamped.body.splitlines()

    assert kept == document
    assert json.loads(filled) == {TIME: TEXT, "x": {TIME: 1}}
    assert TIME not in stamped.shared


def test_a_name_that_is_written_with_an_escape_is_seen() -> None:
    document = b'{"\\u0040timestamp":"own"}'
    stamped = FORWARDED.on(Batch.documents([document]), ARRIVED)

    assert (stamped.body, TIME in stamped.shared) == (document + b"\n", False)


@pytest.mark.parametrize("bad", [b'{"@timestamp"', b'{"@timestamp":1}{}', b'{"host":{"a":1e999x}}', b"{{{}}}"])
def test_a_document_that_is_no_json_takes_the_envelope_from_no_neighbour(bad: bytes) -> None:
    stamped = ENVELOPE.on(Batch.documents([bad, b'{"n":1}', b'{"@timestamp":"own","n":2}', bad]), ARRIVED)
    rows = stamped.json_lines().split(b"\n")

    assert stamped.count == 4
    assert json.loads(rows[1]) == FIELDS | {"n": 1}
    assert json.loads(rows[2]) == FIELDS | {"n": 2, TIME: "own"}


def test_what_was_forwarded_has_no_host_and_agent_of_ours() -> None:
    (event,) = FORWARDED.on(Batch.documents([b"{}"]), ARRIVED).whole()

    assert event == {TIME: TEXT, "data_stream": STREAM}


def test_events_whose_client_named_a_target_have_no_data_stream_of_the_input() -> None:
    (event,) = FORWARDED.on(Batch.documents([b"{}"], route="theirs"), ARRIVED).whole()

    assert event == {TIME: TEXT}


def test_documents_that_begin_with_their_time_keep_it() -> None:
    batch = Batch.documents([b'{"@timestamp":"then","n":1}', b'{"@timestamp":"then","n":2}'])

    assert [event[TIME] for event in ENVELOPE.on(batch, ARRIVED).whole()] == ["then", "then"]


def test_typed_events_keep_what_they_say_themselves_and_get_the_rest() -> None:
    stamped = ENVELOPE.on(Batch.typed([{"host": {"name": "own"}, "n": 1}, {"n": 2}]), ARRIVED)

    one, other = stamped.whole()
    assert stamped.is_typed
    assert (one["host"]["name"], one[TIME], other[TIME]) == ("own", TEXT, TEXT)
    assert other["host"] == ENVELOPE.fields["host"]


def test_what_every_document_says_itself_is_inserted_into_none() -> None:
    batch = Batch.documents([b'{"agent":{"name":"own"},"n":1}'] * 2)

    assert [event["agent"]["name"] for event in ENVELOPE.on(batch, ARRIVED).whole()] == ["own", "own"]


def test_what_documents_are_known_to_have_themselves_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {TIME: "2025-01-01T00:00:00Z", "host": {"name": "own"}}
    batch = Batch.ndjson(json.dumps(own).encode() + b"\n", complete=own.keys())
    monkeypatch.setattr("shipper.pipeline.intake.envelope._held", None)

    stamped = ENVELOPE.on(batch, ARRIVED)

    assert stamped.whole() == [{**FIELDS, **own}]
    assert not stamped.complete


@pytest.mark.parametrize("name", ["host", r"\u0068ost", r"hos\u0074"])
def test_a_field_is_found_however_its_name_is_written(name: str) -> None:
    batch = Batch.documents([b'{"a":"\\u001b[1m","%b":{"x":1}}' % name.encode()])

    (event,) = ENVELOPE.on(batch, ARRIVED).whole()

    assert event["host"] == {**ENVELOPE.fields["host"], "x": 1}


def test_a_text_that_names_a_field_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shipper.pipeline.intake.envelope._held", None)
    said = {"message": 'the "host" of an agent\x1b', "hosts": 1}

    (event,) = ENVELOPE.on(Batch.events([said]), ARRIVED).whole()

    assert event == {**FIELDS, **said}
