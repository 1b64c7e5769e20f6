"""A batch: however it is looked at, packed, picked or changed, it is the same events under the same ids."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from shipper.sdk.columns import join
from shipper.sdk.event import Batch, Oversized, merged, nested, tagged, together

_ORIGIN = bytes(range(16))

# The sentinel, line ends that are none of ours, quotes, control characters, and what is wider than a byte.
_texts = st.text(st.sampled_from('ab"\\\r\t\x00\x1f\x7f\u0085\u2028\ue000é漢🎉'), max_size=12) | st.text(
    st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20
)
_keys = st.sampled_from(["a", "b", "c", "log", "host", "tags", "é"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)
_fields = st.dictionaries(_keys, _values, max_size=4)
_shared_of_lines = st.fixed_dictionaries(
    {},
    optional={
        "host": _values,
        "a": _values,
        "log": st.fixed_dictionaries({}, optional={"file": st.fixed_dictionaries({"path": _texts}), "é": _values}),
    },
)


@st.composite
def line_batches(draw: st.DrawFn) -> Batch:
    lines = draw(st.lists(_texts, min_size=1, max_size=8))
    text = "".join(line + "\n" for line in lines).encode()
    offset, gap = draw(st.integers(0, 2**60)), draw(st.sampled_from([1, 2]))
    return _stored(Batch.lines(text, offset=offset, gap=gap, shared=draw(_shared_of_lines)))


@st.composite
def document_batches(draw: st.DrawFn) -> Batch:
    events = draw(st.lists(_fields, max_size=8))
    ids = draw(st.none() | st.lists(st.none() | _texts, min_size=len(events), max_size=len(events)))
    used = {key for event in events for key in event}
    shared = {key: value for key, value in draw(_fields).items() if key not in used}
    documents = [orjson.dumps(event) for event in events]
    return _stored(Batch.documents(documents, shared=shared, ids=ids, index=draw(st.none() | st.just("client"))))


def _stored(batch: Batch) -> Batch:
    return replace(batch, origin=_ORIGIN, seq=77)


_batches = line_batches() | document_batches()


def rows(batch: Batch) -> list[Any]:
    return [json.loads(row) for row in batch.json_lines().split(b"\n")[:-1]]


def ids(batch: Batch) -> list[str]:
    return batch.id_texts()


# -- two views of the same ---------------------------------------------------------------------------------------------


@given(_batches, st.integers(1, 60))
def test_pieces_are_the_same_events_under_the_same_ids(batch: Batch, size: int) -> None:
    pieces = list(batch.pieces(size))

    assert b"".join(piece.json_lines() for piece in pieces) == batch.json_lines()
    assert [id for piece in pieces for id in piece.id_texts()] == batch.id_texts()
    assert all(len(piece.body) <= size or piece.count == 1 for piece in pieces)


@given(_batches)
def test_the_columns_are_the_whole_events_as_json(batch: Batch) -> None:
    assert rows(batch) == batch.whole()


@given(_batches)
def test_each_event_has_one_row_and_one_id(batch: Batch) -> None:
    assert len(rows(batch)) == len(ids(batch)) == len(batch.own()) == batch.count


@given(_batches)
def test_a_row_is_one_line_that_is_ended_by_one_line_feed(batch: Batch) -> None:
    """A carriage return inside a document, or an escaped line feed, ends nothing."""
    body = batch.json_lines()

    assert body.count(b"\n") == batch.count
    assert not body or body.endswith(b"\n")


@given(_batches)
def test_no_key_is_written_twice(batch: Batch) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    for row in batch.json_lines().split(b"\n")[:-1]:
        json.loads(row, object_pairs_hook=unique)


@given(_batches)
def test_changing_what_own_gave_changes_no_batch(batch: Batch) -> None:
    before = rows(batch)
    for event in batch.own():
        event.clear()

    assert rows(batch) == before


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


def test_a_batch_of_more_lines_than_numbers_are_prepared_has_all_its_ids() -> None:
    batch = Batch.lines(b"\n" * 70_000, offset=0, shared={})

    assert len(set(ids(batch))) == 70_000


# -- ids ---------------------------------------------------------------------------------------------------------------


@given(_batches, st.data())
def test_an_event_that_is_picked_keeps_its_id(batch: Batch, data: st.DataObject) -> None:
    positions = _some(batch, data)
    picked = batch.pick(positions)

    assert picked.whole() == [batch.whole()[i] for i in positions]
    assert ids(picked) == [ids(batch)[i] for i in positions]


@given(_batches, st.data())
def test_picking_twice_is_picking_once(batch: Batch, data: st.DataObject) -> None:
    positions = _some(batch, data)
    again = _some(batch.pick(positions), data)
    twice, once = batch.pick(positions).pick(again), batch.pick([positions[i] for i in again])

    assert (ids(twice), twice.whole()) == (ids(once), once.whole())


@given(_batches, st.data())
def test_an_event_that_is_replaced_keeps_its_id_and_its_own_fields_win(batch: Batch, data: st.DataObject) -> None:
    positions = _some(batch, data)
    events = data.draw(st.lists(_fields, min_size=len(positions), max_size=len(positions)))
    result = batch.replace(events, positions)

    assert ids(result) == [ids(batch)[i] for i in positions]
    assert result.whole() == [merged(batch.shared, event) for event in events]
    assert rows(result) == result.whole()


@given(_batches)
def test_replacing_all_by_themselves_changes_nothing(batch: Batch) -> None:
    result = batch.replace(batch.own())

    assert (ids(result), result.whole()) == (ids(batch), batch.whole())


def test_ids_of_two_origins_or_two_places_differ() -> None:
    batch = _stored(Batch.lines(b"x\n", offset=0, shared={}))
    others = [replace(batch, origin=bytes(16)), replace(batch, seq=7), replace(batch, seq=770)]

    assert len({ids(one)[0] for one in [batch, *others]}) == 4


def test_an_id_that_a_client_gave_is_kept_and_escaped() -> None:
    batch = _stored(Batch.documents([b"{}", b"{}", b"{}"], ids=['a"\\\n', None, ""]))

    assert ids(batch)[0] == 'a"\\\n'
    assert [i.rpartition("-")[2] for i in ids(batch)[1:]] == ["1", "2"]


def _some(batch: Batch, data: st.DataObject) -> list[int]:
    return [i for i in range(batch.count) if data.draw(st.booleans())]


# -- fields in common --------------------------------------------------------------------------------------------------


@given(_batches, _fields)
def test_what_is_shared_is_in_every_event_over_what_was_there(batch: Batch, fields: dict[str, Any]) -> None:
    result = batch.share(fields)

    assert result.whole() == [merged(event, fields) for event in batch.whole()]
    assert rows(result) == result.whole()
    assert ids(result) == ids(batch)


@pytest.mark.parametrize("fields", [{"message": "m"}, {"log": {"offset": 1}}, {"log": "text"}, {"log": None}])
def test_even_what_a_line_has_of_its_own_can_be_overwritten(fields: dict[str, Any]) -> None:
    batch = Batch.lines(b"one\n", offset=5, shared={"log": {"file": {"path": "p"}}})
    expected = [merged(event, fields) for event in batch.whole()]

    assert rows(batch.share(fields)) == expected


def test_sharing_new_fields_looks_into_no_line() -> None:
    batch = Batch.lines(b"one\ntwo\n", offset=0, shared={"log": {"file": {"path": "p"}}})

    assert batch.share({"service": {"name": "s"}, "log": {"level": "info"}}).body is batch.body


# -- data streams ------------------------------------------------------------------------------------------------------

_STREAM = {"type": "logs", "dataset": "nginx", "namespace": "prod"}


def test_a_shared_data_stream_is_one_name() -> None:
    assert Batch.lines(b"x\n", offset=0, shared={"data_stream": _STREAM}).data_streams() == "logs-nginx-prod"


def test_events_with_data_streams_of_their_own_have_one_name_each() -> None:
    batch = Batch.events([{"data_stream": _STREAM}, {"data_stream": {"dataset": "app"}}, {}])

    assert batch.data_streams() == ["logs-nginx-prod", "logs-app-default", "logs-generic-default"]


@pytest.mark.parametrize("bad", ["BAD X/../", "", "a-b", "a\n", "x" * 101, None, 5, ["x"]])
def test_a_part_that_is_no_name_never_becomes_part_of_an_index(bad: Any) -> None:
    for part in ("type", "dataset", "namespace"):
        shared = Batch.documents([b"{}"], shared={"data_stream": {part: bad}})
        own = Batch.events([{"data_stream": {part: bad}}])

        assert (shared.data_streams(), own.data_streams()) == ("logs-generic-default", ["logs-generic-default"])


def test_events_without_a_data_stream_have_none() -> None:
    assert Batch.events([{"a": 1}]).data_streams() is None


@pytest.mark.parametrize("odd", ["text", ["list"], 7, True])
def test_a_data_stream_that_is_no_object_does_not_stop_its_neighbours(odd: Any) -> None:
    """Documents are a client's: whatever it sends under this name, its batch can be encoded."""
    streams = Batch.events([{"data_stream": odd}, {"data_stream": _STREAM}]).data_streams()

    assert isinstance(streams, list)
    assert streams[1] == "logs-nginx-prod"


# -- in the spool ------------------------------------------------------------------------------------------------------


@given(_batches, st.data())
def test_what_was_packed_comes_back_as_it_was(batch: Batch, data: st.DataObject) -> None:
    for before in (batch, batch.pick(_some(batch, data))):
        after = Batch.unpack(before.pack(), origin=before.origin, seq=before.seq)

        assert after == before
        assert (rows(after), ids(after), after.index) == (rows(before), ids(before), before.index)


@given(st.binary(max_size=64))
def test_what_is_no_packed_batch_is_refused(rubbish: bytes) -> None:
    with pytest.raises(ValueError, match="not a packed batch"):
        Batch.unpack(rubbish, origin=_ORIGIN, seq=1)


@pytest.mark.parametrize("header", [b"", b"{}", b'[1,0,1,"\xff"]', b'[1,0,1,null,null,null,{"a":' + b"[" * 5000])
def test_what_has_no_header_of_a_batch_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="not a packed batch"):
        Batch.unpack(isal_zlib.compress(header + b"\n", 0, -15), origin=_ORIGIN, seq=1)


@given(document_batches(), st.data())
def test_a_packed_batch_that_was_cut_is_refused(batch: Batch, data: st.DataObject) -> None:
    packed = batch.pack()
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]

    for limit in (None, 1 << 20):
        with pytest.raises(ValueError, match="not a packed batch"):
            Batch.unpack(cut, origin=_ORIGIN, seq=1, limit=limit)


def test_a_packed_batch_is_unpacked_only_within_the_limit() -> None:
    batch = Batch.lines(b"a" * 9999 + b"\n", offset=0, shared={})
    header = len(isal_zlib.decompress(batch.pack(), -15)) - len(batch.body)

    assert Batch.unpack(batch.pack(), origin=b"", seq=0, limit=10_000 + header) == batch
    with pytest.raises(Oversized):
        Batch.unpack(batch.pack(), origin=b"", seq=0, limit=9_999 + header)


# -- small parts -------------------------------------------------------------------------------------------------------


@given(_fields, _fields)
def test_merged_changes_neither_side(below: dict[str, Any], above: dict[str, Any]) -> None:
    before = orjson.dumps([below, above])
    merged(below, above)["new"] = 1

    assert orjson.dumps([below, above]) == before


def test_dotted_names_become_nested_fields() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}


@pytest.mark.parametrize(("tags", "expected"), [(None, []), ("x", ["x"]), (["x", "y"], ["x", "y"])])
def test_a_tagged_event_keeps_its_tags_and_says_what_happened(tags: Any, expected: list[str]) -> None:
    event = {"message": "m", "error": {"code": 7}} | ({"tags": tags} if tags is not None else {})

    assert tagged(event, "no JSON") == {
        "message": "m",
        "tags": [*expected, "processor_error"],
        "error": {"code": 7, "message": "no JSON"},
    }


@given(st.lists(_batches, min_size=1, max_size=4))
def test_batches_that_go_together_keep_their_events_and_ids(batches: list[Batch]) -> None:
    batches = [
        replace(batch, seq=n, index=None, shared={**batch.shared, "data_stream": {}}) for n, batch in enumerate(batches)
    ]
    batches = [batch for batch in batches if b'"data_stream"' not in batch.body]
    if not batches:
        return

    merged_batch = together(batches)

    assert rows(merged_batch) == [row for batch in batches for row in rows(batch)]
    assert ids(merged_batch) == [id for batch in batches for id in ids(batch)]
    assert merged_batch.count == sum(batch.count for batch in batches)
