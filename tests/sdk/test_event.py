"""A batch: however it is looked at, picked or changed, it is the same events under the same ids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.columns import join
from shipper.sdk.event import Batch
from shipper.sdk.fields import merged
from tests.sdk.batches import (
    ANY_BATCHES,
    BATCHES,
    FIELDS,
    KEYS,
    TYPED_VALUES,
    columns,
    exact,
    ids,
    line_batches,
    rows,
    some,
    typed_batches,
)

# -- what it takes -----------------------------------------------------------------------------------------------------


@given(ANY_BATCHES)
def test_a_batch_is_written_in_at_most_six_times_its_weight(batch: Batch) -> None:
    """A control character takes six bytes as JSON, and so does `false` of a typed event with its comma."""
    assert len(batch.json_lines()) + sum(len(id.encode()) for id in batch.id_texts()) <= 6 * batch.weight


@given(ANY_BATCHES.filter(lambda batch: batch.count > 0), st.integers(1, 2000))
def test_neighbouring_events_within_a_weight_are_all_of_them_or_at_least_one(batch: Batch, most: int) -> None:
    count = batch.together_within(most)

    assert 1 <= count <= batch.count
    assert (count == batch.count) == (batch.weight <= most) or count * batch.weight <= most * batch.count or count == 1


# -- two views of the same ---------------------------------------------------------------------------------------------


@given(ANY_BATCHES, st.integers(1, 60))
def test_pieces_are_the_same_events_under_the_same_ids(batch: Batch, size: int) -> None:
    pieces = list(batch.pieces(size))

    assert b"".join(piece.json_lines() for piece in pieces) == batch.json_lines()
    assert [row for piece in pieces for row in columns(piece)] == columns(batch)
    assert all(len(piece.body) <= size or piece.count == 1 for piece in pieces)


@given(ANY_BATCHES)
def test_each_event_has_one_id_and_one_line_in_which_no_key_stands_twice(batch: Batch) -> None:
    """A carriage return inside a document, or an escaped line feed, ends nothing."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    *lines, end = batch.json_lines().split(b"\n")
    written = [json.loads(line, object_pairs_hook=unique) for line in lines]

    assert end == b""
    assert len(written) == len(ids(batch)) == len(batch.own()) == batch.count
    assert batch.is_typed or written == batch.whole()
    for event in batch.own():
        event.clear()
    assert rows(batch) == written, "what it gave is its own"


def test_offsets_count_bytes_and_line_ends() -> None:
    batch = Batch.lines("é\n\nabc\n".encode(), offset=100, gap=2, shared={})

    assert [event["log"]["offset"] for event in rows(batch)] == [100, 104, 106]


def test_the_sentinel_in_a_text_splits_no_line() -> None:
    batch = Batch.lines("a\ue000b\nc\n".encode(), offset=0, shared={})

    assert [event["message"] for event in rows(batch)] == ["a\ue000b", "c"]


def test_a_carriage_return_between_the_tokens_of_a_document_ends_nothing() -> None:
    batch = Batch.documents([b'{"a":1,\r"b":2}', b"{}"], shared={"c": 3})

    assert rows(batch) == [{"a": 1, "b": 2, "c": 3}, {"c": 3}]


@given(line_batches())
def test_the_columns_of_lines_are_their_own_fields_and_the_shared_log(batch: Batch) -> None:
    rows = join(batch.count, b"{", *batch.line_columns(), b"}\n").splitlines()
    logs = join(batch.count, b"{", *batch.log_columns(), b"}\n").splitlines()
    log = {"log": batch.shared.get("log", {})}

    assert [json.loads(row) for row in rows] == [merged(log, own) for own in batch.own()]
    assert [json.loads(row) for row in logs] == [{"log": merged(log, own)["log"]} for own in batch.own()]


def test_documents_have_no_columns_of_lines() -> None:
    with pytest.raises(ValueError, match="documents"):
        Batch.documents([b"{}"]).log_columns()


def test_a_rewritten_batch_is_the_same_events_with_other_fields() -> None:
    batch = Batch.documents([b'{"a":1}', b'{"a":2}', b'{"a":3}'], shared={"s": 0}, ids=["x", None, "z"]).pick([0, 2])
    result = batch.rewritten(b'{"b":4}\n{"b":5}\n', {"t": 6})

    assert result.whole() == [{"b": 4, "t": 6}, {"b": 5, "t": 6}]
    assert result.id_texts() == batch.id_texts()


def test_a_key_that_a_document_writes_with_an_escaped_slash_is_set_once() -> None:
    batch = Batch.documents([b'{"a\\/b":1}']).share({"a/b": 2})

    assert batch.json_lines().count(b'b":') == 1
    assert batch.whole() == [{"a/b": 2}]


@pytest.mark.parametrize("empty", [Batch.documents([]), Batch.events([]), Batch.lines(b"", offset=7, shared={})])
def test_a_batch_without_events_has_no_rows(empty: Batch) -> None:
    assert (empty.count, rows(empty), ids(empty), empty.own()) == (0, [], [], [])


# -- ids ---------------------------------------------------------------------------------------------------------------


@given(ANY_BATCHES, st.data())
def test_an_event_that_is_picked_keeps_its_id_and_columns(batch: Batch, data: st.DataObject) -> None:
    positions = some(batch, data)
    again = [positions[i] for i in some(batch.pick(positions), data)]
    twice = batch.pick(positions).pick([positions.index(i) for i in again])

    for picked, chosen in ((batch.pick(positions), positions), (twice, again)):
        assert exact(picked.whole()) == exact([batch.whole()[i] for i in chosen])
        assert columns(picked) == [columns(batch)[i] for i in chosen]


@given(line_batches(), st.data())
def test_neighbouring_lines_stay_lines_with_their_places(batch, data):
    first = data.draw(st.integers(0, batch.count))
    run = range(first, data.draw(st.integers(first, batch.count)))

    picked = batch.pick(run)

    assert picked.is_lines or not run
    assert picked.whole() == [batch.whole()[at] for at in run]
    assert picked.id_texts() == [batch.id_texts()[at] for at in run]


@given(BATCHES, st.data())
def test_an_event_that_is_replaced_keeps_its_id_and_its_own_fields_win(batch: Batch, data: st.DataObject) -> None:
    positions = some(batch, data)
    events = data.draw(st.lists(FIELDS, min_size=len(positions), max_size=len(positions)))
    result = batch.replace(events, positions)

    assert columns(result) == [columns(batch)[i] for i in positions]
    assert result.whole() == [merged(batch.shared, event) for event in events]
    assert rows(result) == result.whole()


@given(typed_batches())
def test_replacing_typed_events_by_themselves_changes_nothing(batch: Batch) -> None:
    result = batch.replace(batch.own())

    assert (columns(result), exact(result.whole())) == (columns(batch), exact(batch.whole()))


# -- fields in common --------------------------------------------------------------------------------------------------


@given(BATCHES, FIELDS)
def test_what_is_shared_is_in_every_event_over_what_was_there(batch: Batch, fields: dict[str, Any]) -> None:
    result = batch.share(fields)

    assert result.whole() == [merged(event, fields) for event in batch.whole()]
    assert rows(result) == result.whole()
    assert columns(result) == columns(batch)


@given(typed_batches(), FIELDS)
def test_what_typed_events_share_leaves_their_types_alone(batch: Batch, fields: dict[str, Any]) -> None:
    result = batch.share(fields)

    assert exact(result.whole()) == exact([merged(event, fields) for event in batch.whole()])


@pytest.mark.parametrize("fields", [{"message": "m"}, {"log": {"offset": 1}}, {"log": "text"}, {"log": None}])
def test_even_what_a_line_has_of_its_own_can_be_overwritten(fields: dict[str, Any]) -> None:
    batch = Batch.lines(b"one\n", offset=5, shared={"log": {"file": {"path": "p"}}})
    expected = [merged(event, fields) for event in batch.whole()]

    assert rows(batch.share(fields)) == expected


def test_sharing_new_fields_looks_into_no_line() -> None:
    batch = Batch.lines(b"one\ntwo\n", offset=0, shared={"log": {"file": {"path": "p"}}})

    assert batch.share({"service": {"name": "s"}, "log": {"level": "info"}}).body is batch.body


# -- typed events ------------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(KEYS, TYPED_VALUES, max_size=4), max_size=5))
def test_typed_events_keep_the_types_of_their_values(events: list[dict[str, Any]]) -> None:
    stored = Batch.unpack(Batch.typed(events).pack(), origin=b"", seq=0)

    assert exact(stored.own()) == exact(events)
    assert stored.is_typed


def test_as_json_bytes_are_base64_and_what_is_no_number_is_null() -> None:
    batch = Batch.typed([{"b": b"\xff\n", "n": float("nan"), "i": 2**64 - 1, "f": 1.0, "in": [{"b": b""}]}, {}])
    expected = [{"b": "/wo=", "n": None, "i": 2**64 - 1, "f": 1.0, "in": [{"b": ""}], "s": 1}, {"s": 1}]

    assert rows(batch.share({"s": 1})) == batch.share({"s": 1}).plain() == expected


@pytest.mark.parametrize("batch", [Batch.lines(b"a\nb\n", offset=0, shared={"s": 1}), Batch.documents([b"{}", b"{}"])])
def test_events_with_bytes_become_typed_and_others_do_not(batch: Batch) -> None:
    assert batch.replace([{"a": {"b": [b"\0"]}}, {}]).own() == [{"a": {"b": [b"\0"]}}, {}]
    assert batch.replace([{"a": {"b": [b"\0"]}}, {}]).is_typed
    assert not batch.replace([{"a": 1}, {}]).is_typed


@pytest.mark.parametrize("value", [2**70, {1, 2}.__iter__(), object()])
def test_what_no_batch_can_keep_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        Batch.events([{"a": value}])
    with pytest.raises(TypeError):
        Batch.typed([{"a": value}])
