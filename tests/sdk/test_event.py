"""A batch: however it is looked at, packed, picked or changed, it is the same events under the same ids."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from contextlib import suppress
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
    return _stored(Batch.documents(documents, shared=shared, ids=ids, route=draw(st.none() | st.just("client"))))


_typed_values = st.recursive(
    _values | st.binary(max_size=6) | st.integers(-(2**63), 2**64 - 1) | st.floats(width=64),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def typed_batches(draw: st.DrawFn) -> Batch:
    events = draw(st.lists(st.dictionaries(_keys, _typed_values, max_size=4), max_size=8))
    used = {key for event in events for key in event}
    shared = {key: value for key, value in draw(_fields).items() if key not in used}
    return _stored(Batch.typed(events, shared=shared))


@st.composite
def _with_columns(draw: st.DrawFn, batches: st.SearchStrategy[Batch]) -> Batch:
    """Batches that may have columns beside their bodies."""
    batch = draw(batches)

    def column(values: st.SearchStrategy[Any]) -> list[Any] | None:
        size = batch.count
        return draw(st.none() | st.lists(st.none() | values, min_size=size, max_size=size))

    return batch.with_columns(
        timestamps=column(st.integers(-(2**63), 2**63 - 1)),
        keys=column(st.binary(max_size=4)),
        severities=column(st.integers(0, 24)),
    )


def _stored(batch: Batch) -> Batch:
    return replace(batch, origin=_ORIGIN, seq=77)


_batches = _with_columns(line_batches() | document_batches())
_any_batches = _batches | _with_columns(typed_batches())


def rows(batch: Batch) -> list[Any]:
    return [json.loads(row) for row in batch.json_lines().split(b"\n")[:-1]]


def ids(batch: Batch) -> list[str]:
    return batch.id_texts()


def exact(value: Any) -> str:
    """Equal for values of the same types, whatever the order of their keys; NaN is itself."""
    if isinstance(value, dict):
        return repr({key: exact(value[key]) for key in sorted(value)})
    return repr([exact(item) for item in value]) if isinstance(value, list) else repr(value)


def columns(batch: Batch) -> list[tuple[Any, ...]]:
    """What each event has beside its fields."""
    beside = (batch.timestamps, batch.keys, batch.severities)
    return list(zip(batch.id_texts(), *(column or [None] * batch.count for column in beside), strict=True))


# -- what it takes -----------------------------------------------------------------------------------------------------


@given(_any_batches)
def test_a_batch_is_written_in_at_most_six_times_its_weight(batch: Batch) -> None:
    """A control character takes six bytes as JSON, and so does `false` of a typed event with its comma."""
    assert len(batch.json_lines()) + sum(len(id.encode()) for id in batch.id_texts()) <= 6 * batch.weight


@given(_any_batches, st.integers(0, 3000))
def test_a_batch_that_was_unpacked_fits_into_the_limit(batch: Batch, limit: int) -> None:
    with suppress(Oversized):
        assert Batch.unpack(batch.pack(), origin=_ORIGIN, seq=77, limit=limit).size <= limit

    assert Batch.unpack(batch.pack(), origin=_ORIGIN, seq=77, limit=1 << 20) == batch


@pytest.mark.parametrize(
    "header",
    [
        b'[1,null,1,null,null,null,{"a":[' + b"[]," * 100_000 + b"[]]}]",
        b'[1,null,1,null,null,null,{"a":[' + b'{"":0},' * 60_000 + b"0]}]",
        b"[1,null,1,null,null,[" + b"1000," * 100_000 + b"0],{}]",
        b"[1,null,1,null,[" + b'"ab",' * 100_000 + b'""],null,{}]',
        b'[2000,null,1,null,null,null,{"a":"' + b"x" * 300_000 + b'"}]',
        b'[1000000000,null,1,null,null,null,{"a":1}]',
    ],
    ids=["lists", "objects", "items", "ids", "shared by many", "by a lie"],
)
def test_what_becomes_larger_than_the_limit_is_no_object_before_it_is_refused(header: bytes) -> None:
    packed = isal_zlib.compress(header + b"\n{}\n", 1, -15)

    tracemalloc.start()
    with pytest.raises(Oversized):
        Batch.unpack(packed, origin=_ORIGIN, seq=1, limit=1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


@given(_any_batches.filter(lambda batch: batch.count > 0), st.integers(1, 2000))
def test_neighbouring_events_within_a_weight_are_all_of_them_or_at_least_one(batch: Batch, most: int) -> None:
    count = batch.together_within(most)

    assert 1 <= count <= batch.count
    assert (count == batch.count) == (batch.weight <= most) or count * batch.weight <= most * batch.count or count == 1


# -- two views of the same ---------------------------------------------------------------------------------------------


@given(_any_batches, st.integers(1, 60))
def test_pieces_are_the_same_events_under_the_same_ids(batch: Batch, size: int) -> None:
    pieces = list(batch.pieces(size))

    assert b"".join(piece.json_lines() for piece in pieces) == batch.json_lines()
    assert [row for piece in pieces for row in columns(piece)] == columns(batch)
    assert all(len(piece.body) <= size or piece.count == 1 for piece in pieces)


@given(_batches)
def test_the_columns_are_the_whole_events_as_json(batch: Batch) -> None:
    assert rows(batch) == batch.whole()


@given(_any_batches)
def test_each_event_has_one_row_and_one_id(batch: Batch) -> None:
    assert len(rows(batch)) == len(ids(batch)) == len(batch.own()) == batch.count


@given(_any_batches)
def test_a_row_is_one_line_that_is_ended_by_one_line_feed(batch: Batch) -> None:
    """A carriage return inside a document, or an escaped line feed, ends nothing."""
    body = batch.json_lines()

    assert body.count(b"\n") == batch.count
    assert not body or body.endswith(b"\n")


@given(_any_batches)
def test_no_key_is_written_twice(batch: Batch) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    for row in batch.json_lines().split(b"\n")[:-1]:
        json.loads(row, object_pairs_hook=unique)


@given(_any_batches)
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


@given(_any_batches, st.data())
def test_an_event_that_is_picked_keeps_its_id_and_columns(batch: Batch, data: st.DataObject) -> None:
    positions = _some(batch, data)
    picked = batch.pick(positions)

    assert exact(picked.whole()) == exact([batch.whole()[i] for i in positions])
    assert columns(picked) == [columns(batch)[i] for i in positions]


@given(_any_batches, st.data())
def test_picking_twice_is_picking_once(batch: Batch, data: st.DataObject) -> None:
    positions = _some(batch, data)
    again = _some(batch.pick(positions), data)
    twice, once = batch.pick(positions).pick(again), batch.pick([positions[i] for i in again])

    assert (columns(twice), exact(twice.whole())) == (columns(once), exact(once.whole()))


@given(_batches, st.data())
def test_an_event_that_is_replaced_keeps_its_id_and_its_own_fields_win(batch: Batch, data: st.DataObject) -> None:
    positions = _some(batch, data)
    events = data.draw(st.lists(_fields, min_size=len(positions), max_size=len(positions)))
    result = batch.replace(events, positions)

    assert columns(result) == [columns(batch)[i] for i in positions]
    assert result.whole() == [merged(batch.shared, event) for event in events]
    assert rows(result) == result.whole()


@given(_any_batches)
def test_replacing_all_by_themselves_changes_nothing(batch: Batch) -> None:
    result = batch.replace(batch.own())

    assert (columns(result), exact(result.whole())) == (columns(batch), exact(batch.whole()))


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
    assert columns(result) == columns(batch)


@given(typed_batches(), _fields)
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


# -- in the spool ------------------------------------------------------------------------------------------------------


@given(_any_batches, st.data())
def test_what_was_packed_comes_back_as_it_was(batch: Batch, data: st.DataObject) -> None:
    for before in (batch, batch.pick(_some(batch, data))):
        after = Batch.unpack(before.pack(), origin=before.origin, seq=before.seq)

        assert after == before
        assert (rows(after), columns(after), after.route) == (rows(before), columns(before), before.route)


@given(_any_batches, st.data())
def test_the_identity_of_another_shipper_goes_before_that_of_the_spool(batch: Batch, data: st.DataObject) -> None:
    theirs = batch.identified(b"T" * 16, 7)

    for before in (theirs, theirs.pick(_some(batch, data)), *theirs.pieces(20)):
        after = Batch.unpack(before.stored(b"O" * 16, 99).pack(), origin=b"O" * 16, seq=99)

        assert (after.place, ids(after), rows(after)) == (99, ids(before), rows(before))
    assert not theirs.anew().is_relayed
    assert batch.stored(b"O" * 16, 99).origin == b"O" * 16


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        (
            b'[2,7,1,null,null,null,{"a":1}]\none\ntwo\n',
            replace(Batch.lines(b"one\ntwo\n", offset=7, shared={"a": 1})),
        ),
        (
            b'[2,null,1,"theirs",["x",null],[0,4],{"a":1}]\n{"n":1}\n{}\n',
            replace(
                Batch.documents([b'{"n":1}', b"{}"], shared={"a": 1}, ids=["x", None], route="theirs"), items=[0, 4]
            ),
        ),
    ],
)
def test_a_batch_that_was_stored_before_there_were_columns_is_unpacked(plain: bytes, expected: Batch) -> None:
    assert Batch.unpack(isal_zlib.compress(plain, 0, -15), origin=b"", seq=0) == expected


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


# -- typed events ------------------------------------------------------------------------------------------------------


@given(st.lists(st.dictionaries(_keys, _typed_values, max_size=4), max_size=5))
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


# -- together ----------------------------------------------------------------------------------------------------------


@given(st.lists(_batches, min_size=1, max_size=4) | st.lists(_with_columns(typed_batches()), min_size=1, max_size=4))
def test_batches_that_go_together_keep_their_events_ids_and_columns(batches: list[Batch]) -> None:
    batches = [
        replace(batch, seq=n, route=None, shared={**batch.shared, "data_stream": {}}) for n, batch in enumerate(batches)
    ]

    joined = together(batches, ("data_stream",))

    assert rows(joined) == [row for batch in batches for row in rows(batch)]
    assert columns(joined) == [row for batch in batches for row in columns(batch)]
    assert exact(joined.whole()) == exact([event for batch in batches for event in batch.whole()])
    assert joined.count == sum(batch.count for batch in batches)
    assert joined.shared["data_stream"] == {}


_RESOURCE = {"attributes": [{"key": "k8s.pod.name", "values": ["a", 1, None]}], "scope": {"name": "n"}}


def test_what_an_output_groups_by_stays_shared() -> None:
    batches = [
        replace(Batch.typed([{"n": n, "b": b"x"}], shared={"resource": _RESOURCE, "time": n}), seq=n) for n in range(3)
    ]
    joined = together(batches, ("resource", "scope"))

    assert joined.shared == {"resource": _RESOURCE}
    assert joined.own() == [{"time": n, "n": n, "b": b"x"} for n in range(3)]


def test_only_batches_with_the_same_target_and_shared_values_go_together() -> None:
    batch = Batch.documents([b"{}"], shared={"a": {"b": 1, "c": [2]}, "x": 1})
    same = replace(batch, shared={"a": {"c": [2], "b": 1}, "x": 2})
    others = [
        replace(batch, route="theirs"),
        replace(batch, shared={"a": {"b": True, "c": [2]}}),
        replace(batch, shared={"a": {"b": 1}}),
        replace(batch, shared={}),
        replace(batch, shared={"a": None}),
        Batch.typed([{}], shared=batch.shared),
    ]

    for grouping in (["a"], ["a.b"], ["a.b", "a.c"]):
        assert same.way(grouping) == batch.way(grouping)
        ways = [other.way(grouping) for other in [batch, *others]]
        assert all(one != other for n, one in enumerate(ways) for other in ways[:n])


def test_lines_that_are_grouped_by_what_differs_from_line_to_line_go_alone() -> None:
    batch = Batch.lines(b"a\n", offset=0, shared={"log": {"file": {"path": "/a"}}})

    assert batch.way() == batch.way()
    assert batch.way(["log.file.path"]) != batch.way(["log.file.path"])


@given(st.lists(_batches, min_size=1, max_size=4) | st.lists(_with_columns(typed_batches()), min_size=1, max_size=4))
def test_batches_that_differ_in_what_an_output_groups_by_go_together_in_one_that_mixes(batches: list[Batch]) -> None:
    ways = [("theirs" if n % 2 else None, {"data_stream": {"dataset": f"d{n % 3}"}}) for n in range(len(batches))]
    batches = [
        replace(batch, seq=n, route=route, shared={**batch.shared, **shared})
        for n, (batch, (route, shared)) in enumerate(zip(batches, ways, strict=True))
    ]

    joined = together(batches, ("data_stream",))

    assert rows(joined) == [row for batch in batches for row in rows(batch)]
    assert columns(joined) == [row for batch in batches for row in columns(batch)]
    assert exact(joined.whole()) == exact([event for batch in batches for event in batch.whole()])
    assert joined.each_route() == [batch.route for batch in batches for _ in range(batch.count)]
    assert [shared["data_stream"] for shared in joined.each_shared()] == [
        batch.shared["data_stream"] for batch in batches for _ in range(batch.count)
    ]
    pieces = list(joined.pieces(1))
    assert [row for piece in pieces for row in rows(piece)] == rows(joined)
    assert [route for piece in pieces for route in piece.each_route()] == joined.each_route()


def test_what_is_picked_of_a_batch_that_was_joined_can_be_stored_with_its_route_and_its_fields() -> None:
    batches = [
        replace(Batch.events([{"n": n}, {"n": 0}], shared={"tenant": name}), seq=n, route=f"to-{name}")
        for n, name in enumerate(("a", "b", "a"))
    ]
    joined = together(batches, ("tenant",))

    for at, name in ((1, "a"), (2, "b")):
        picked = joined.pick([at])
        stored = Batch.unpack(picked.pack(), origin=bytes(16), seq=9)

        assert (stored.route, stored.shared, stored.whole()) == (
            f"to-{name}",
            {"tenant": name},
            [joined.whole()[at]],
        )
    assert joined.pick([0, 1, 4]).each_route() == ["to-a"] * 3
    assert joined.pick([0, 2]).each_route() == ["to-a", "to-b"]


def test_an_output_that_mixes_takes_any_group_and_route_but_keyed_state_apart() -> None:
    batch = Batch.documents([b"{}"], shared={"a": 1})
    others = [replace(batch, route="theirs"), replace(batch, shared={"a": 2}), replace(batch, shared={})]

    assert {other.way(["a"], mixes=True) for other in [batch, *others]} == {batch.way(["a"], mixes=True)}
    assert (
        len({one.way(["a"], mixes=True) for one in [batch, Batch.typed([{}]), batch.with_columns(versions=[None])]})
        == 3
    )


_LATE = """
from shipper.sdk import event
from shipper.sdk.state import Version
for one in (event._Header, Version):
    one.__annotations__ = dict.fromkeys(one.__annotations__, "NotThere")
batch = event.Batch.documents([b"{}"])
print(event.Batch.unpack(batch.pack(), origin=bytes(16), seq=1).count)
"""


def test_what_is_known_of_a_header_is_complete_before_there_are_threads() -> None:
    """A thread that meets a half-known type is the death of the process; annotations are read when it becomes known."""
    ended = subprocess.run([sys.executable, "-c", _LATE], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.stdout, ended.stderr) == ("1\n", "")
