"""The door: no batch of a plugin comes in that could not be sent for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.pipeline import door
from shipper.pipeline.intake.envelope import Envelope
from shipper.plugin import Input, PluginFault
from shipper.sdk.event import Batch
from shipper.sdk.joining import together
from shipper.sdk.state import Change, Version
from shipper.spool.drain_orders import letters_of
from shipper_plugins.elasticsearch.client.encoding import encode
from shipper_plugins.file.output import identified
from tests.examples import examples
from tests.sdk.formed import FORMED

LINES = Batch.lines(b"one\ntwo\n", offset=0, shared={"log": {"file": {"path": "/x"}}})
DOCUMENTS = Batch.documents([b'{"n":1}', b'{"n":2}'], shared={"a": 1}, ids=["x", None])
THEIRS = LINES.identified(b"T" * 16, 7)
TYPED = Batch.typed([{"n": 1, "b": b"\xff"}, {"n": float("nan")}], shared={"a": 1})

_ENVELOPE = Envelope.of(Input())
_PIECES = [b"{", b"}", b"{}", b'{"n":1}', b"\n", b"}\n{", b" ", b"a", b"\0", b"\xff", b"\x7f", b"\xc3\xa9"]


def _ended(lines: list[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])


_DOCUMENTS = st.lists(st.sampled_from([b"{}", b'{"n":1}', b"[]"]), max_size=4).map(_ended)
_LINES = st.lists(st.sampled_from([b"a", b"\xc3\xa9\r", b"\0", b""]), max_size=4).map(_ended)
_values: st.SearchStrategy[Any] = st.sampled_from(
    [1, "a", None, [], {}, {"offset": 1}, 2**70, float("nan"), "\ud800", {1: 2}, b"x", {1, 2}, datetime.now(UTC)]
)
_maps = st.lists(
    st.sampled_from(
        [
            *(b"\x80", b"\x81\xa1n\x01", b"\x81\xa1n\xc4\x01\xff", b"\x81\xa1a\x01", b"\x81\x01\x01"),
            *(b"\x81\xa1\xff\x01", b"\x81\xa1n\x81\x01\x02", b"\x81\xa1n\xdd\xff\xff\xff\xff", b"\x90", b"", b"\xc1"),
            *(b"\x81\xa1n\xd4\x07\x01", b"\x81\xa1n\xca\x7f\x80\0\0", b"\x81\xa1n\xcf" + b"\xff" * 8),
            *(b"\x81\xa1n\xd6\xff\0\0\0\0", *(b"\x81\xa1n" + b"\x91" * levels + b"\x01" for levels in (300, 5000))),
        ]
    ),
    max_size=4,
)
_columns = {
    "timestamps": [0, -1, 2**63 - 1, 2**63, None, True, 1.5, "1"],
    "keys": [b"", b"\xff", None, "a", bytearray(b"a")],
    "severities": [0, 24, 25, -1, None, True],
}
_wild: dict[str, st.SearchStrategy[Any]] = {
    **{
        name: st.lists(st.sampled_from(values), max_size=4).map(tuple) | st.sampled_from([7, "ab", b"ab"])
        for name, values in _columns.items()
    },
    "sizes": st.none() | st.lists(st.sampled_from([1, 4, 0, -1, 2**64, True, "a"]), max_size=4).map(tuple) | st.just(7),
    "body": st.lists(st.sampled_from(_PIECES), max_size=8).map(b"".join),
    "count": st.integers(-1, 5),
    "shared": st.dictionaries(st.sampled_from(["a", "log", "message", "data_stream", "\ud800"]), _values, max_size=2),
    "offset": st.sampled_from([None, 0, 7, -1, 2**63, "a"]),
    "gap": st.sampled_from([2, -3, 2**62]),
    "route": st.sampled_from(["an-index", 7, "\ud800"]),
    "ids": st.lists(st.sampled_from(["a", "\xe9", None, 7, "\ud800"]), max_size=4).map(tuple),
    "items": st.lists(st.sampled_from([0, 1, 2, -1, 2**64, "a", None]), max_size=4) | st.integers(0, 4).map(range),
}


@st.composite
def wild_batches(draw: st.DrawFn) -> Batch:
    """What a plugin may think up: sound but for some of its parts."""
    offset = draw(st.sampled_from([None, 7]))
    body = draw(_DOCUMENTS if offset is None else _LINES)
    batch = Batch(count=body.count(b"\n"), body=body, shared=draw(st.sampled_from([{}, {"a": 1}])), offset=offset)
    if offset is None and draw(st.booleans()):
        maps = draw(_maps)
        batch = replace(batch, count=len(maps), body=b"".join(maps), sizes=tuple(map(len, maps)))
    parts = draw(st.lists(st.sampled_from(sorted(_wild)), max_size=2))
    return replace(batch, **{part: draw(_wild[part]) for part in parts})


def nested_lists(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def accepted(batch: object, before: Batch | None = None) -> bool:
    try:
        door.check(batch, before)
    except PluginFault:
        return False
    return True


@settings(max_examples=examples(5))
@given(wild_batches(), st.none() | st.just(LINES) | st.just(DOCUMENTS))
def test_every_batch_that_comes_in_can_be_stored_and_sent_in_its_envelope(batch: Batch, before: Batch | None) -> None:
    if not accepted(batch, before):
        return
    batch = door.check(_ENVELOPE.on(batch, datetime.now(UTC)))
    stored = Batch.unpack(batch.pack(), origin=b"o" * 16, seq=7)
    for seen in (replace(batch, origin=b"o" * 16, seq=7), stored, together([stored, stored])):
        for limit in (1, 1 << 20):
            requests = encode(seen, index=None, limit=limit, compression="gzip")
            assert sum(request.count for request in requests) == seen.count
            assert [id for request in requests for id in request.ids()] == seen.id_texts()
        assert seen.json_lines().count(b"\n") == identified(seen, "id").count(b"\n") == seen.count
    assert len(letters_of(stored, dict.fromkeys(range(stored.count), "why"), "main")) == stored.count


@given(wild_batches())
def test_a_batch_that_came_in_comes_in_again_from_the_store(batch: Batch) -> None:
    if accepted(batch):
        assert accepted(Batch.unpack(batch.pack(), origin=b"", seq=0))


def test_what_can_be_comes_in() -> None:
    for batch in [
        *(LINES, DOCUMENTS, TYPED, Batch.documents([]), Batch.typed([]), Batch.events([{"é": 1}, {}], shared={"é": 0})),
        TYPED.with_columns(timestamps=[-(2**63), None], keys=[b"\xff", None], severities=[24, None]),
        Batch.documents([b"{}"], shared={"resource": {"labels": [{"k": ["a", 1, None]}]}}),
    ]:
        assert door.check(batch) is batch
        assert door.check(batch, batch) is batch


def test_a_processor_may_drop_change_and_share() -> None:
    assert accepted(LINES.pick([1]), LINES)
    assert accepted(LINES.share({"message": "other"}), LINES)
    assert accepted(DOCUMENTS.replace([{"m": 1}], [0]), DOCUMENTS)
    assert accepted(DOCUMENTS.replace([{"m": b"\xff"}], [0]), DOCUMENTS)
    assert accepted(TYPED.replace([{"m": b"\xff"}], [1]), TYPED)


def test_what_cannot_be_is_refused_in_clear_words() -> None:
    for batch, what in [
        (None, "a batch is expected, not NoneType"),
        (replace(LINES, body="one\ntwo\n"), "a batch is expected, not Batch"),
        (Batch.lines(b"one\ntwo", offset=0, shared={}), "its last event has no line feed at the end"),
        (Batch.lines(b"one", offset=0, shared={}), "its last event has no line feed at the end"),
        (replace(LINES, count=3), "it counts 3 events and has 2 lines"),
        (Batch.documents([b'{"a":\n1}']), "it counts 1 events and has 2 lines"),
        (Batch.lines(b"\xff\n", offset=0, shared={}), "its text is not UTF-8"),
        (Batch.documents([b'{"a":"\xff"}']), "its text is not UTF-8"),
        (Batch.documents([b'{"a":"\0"}']), "a document is no JSON object, or has white space before it"),
        (Batch.documents([b"{}", b"[1]"]), "a document is no JSON object, or has white space before it"),
        (Batch.documents([b"{}", b" {}"]), "a document is no JSON object, or has white space before it"),
        (Batch.documents([b"1"]), "a document is no JSON object, or has white space before it"),
        (Batch.lines(b"a\n", offset=-1, shared={}), "its lines have invalid places"),
        (Batch.lines(b"a\n", offset=1 << 63, shared={}), "its lines have invalid places"),
        (Batch.lines(b"a\n", offset=0, gap=-1, shared={}), "its lines have invalid places"),
        (Batch.lines(b"a\n", offset=0, shared={"message": 1}), "its shared fields have the message or log.offset"),
        (Batch.lines(b"a\n", offset=0, shared={"log": []}), "its shared fields have the message or log.offset"),
        (Batch.lines(b"a\n", offset=0, shared={"log": {"offset": 1}}), "its shared fields have the message or log"),
        (Batch.documents([b"{}"], shared={"a": 1 << 70}), "its shared fields or ids are not what JSON can hold"),
        (Batch.documents([b"{}"], shared={"a": {1, 2}}), "its shared fields or ids are not what JSON can hold"),
        (Batch.documents([b"{}"], ids=["\ud800"]), "its shared fields or ids are not what JSON can hold"),
        (Batch.documents([b"{}"], ids=["a", "b"]), "it counts 1 events and has ids of 2"),
        (DOCUMENTS.pick([0, 0]), "two of its events are the same item"),
        (DOCUMENTS.with_columns(timestamps=[1]), "it counts 2 events and has timestamps of 1"),
        (DOCUMENTS.with_columns(keys=[b"a"]), "it counts 2 events and has keys of 1"),
        (DOCUMENTS.with_columns(timestamps=[1, 2**63]), "its timestamps are not valid numbers"),
        (DOCUMENTS.with_columns(timestamps=[1, 2.0]), "its timestamps are not valid numbers"),
        (DOCUMENTS.with_columns(severities=[25, None]), "its severities are not valid numbers"),
        (DOCUMENTS.with_columns(keys=["a", None]), "its keys are no bytes"),
        (replace(TYPED, sizes=(1, 2)), "it counts 2 events, and its body or its sizes are of others"),
        (replace(TYPED, offset=0), "it is of text lines and of typed events"),
        (Batch.typed([{"a": {1: 2}}]), "a typed event is no map with names that are text, or has a value that JSON"),
        (Batch.typed([{"a": nested_lists(300)}]), "a typed event is no map with names that are text, or has a value"),
        (replace(TYPED, shared={"n": 1}), "a field of a typed event is in its shared fields too"),
    ]:
        with pytest.raises(PluginFault, match=what):
            door.check(batch)


def test_what_a_processor_cannot_return_is_refused() -> None:
    for batch in [
        Batch.documents([b"{}", b"{}", b"{}"]),
        DOCUMENTS.rewritten(b'{"n":1}\n', {}),
        DOCUMENTS.rewritten(b"{}\n{}\n{}\n", {}),
        DOCUMENTS.rewritten(b"{}\n[]\n", {}),
        replace(LINES, offset=None),
        replace(DOCUMENTS, count=1),
        replace(DOCUMENTS, shared={"a": b"x"}),
    ]:
        for before in (LINES, DOCUMENTS):
            assert not accepted(batch, before)


@pytest.mark.parametrize("positions", [{"a": "text"}, {1: b"x"}, {"\ud800": b"x"}, {"a": 7}])
def test_positions_are_bytes_by_name(positions: Any) -> None:
    with pytest.raises(PluginFault, match="position"):
        door.check_types((), positions, {}, relays=False)
    with pytest.raises(PluginFault, match="position"):
        door.check_types((), {}, positions, relays=False)
    door.check_types((LINES,), {"a": b"x", "b": None}, {"c": None}, relays=False)


def test_only_an_input_that_relays_gives_the_identity_of_another_shipper() -> None:
    with pytest.raises(PluginFault, match="does not relay"):
        door.check_types((THEIRS,), {}, {}, relays=False)
    door.check_types((THEIRS,), {}, {}, relays=True)
    assert accepted(THEIRS)


def test_an_identity_that_cannot_be_is_refused() -> None:
    for batch in [
        LINES.identified(b"short", 7),
        LINES.identified(b"T" * 16, -1),
        LINES.identified(b"T" * 16, 1 << 63),
        LINES.identified("T" * 16, 7),  # type: ignore[arg-type]
        LINES.identified(b"T" * 16, 7, [-1, *range(1, LINES.count)]),
    ]:
        assert not accepted(batch)


def test_a_processor_gives_no_identity_but_that_of_the_batch_that_came() -> None:
    assert accepted(THEIRS.pick([0]), THEIRS)
    assert accepted(THEIRS.anew(), THEIRS)
    assert not accepted(replace(THEIRS, seq=8), THEIRS)
    assert not accepted(THEIRS, LINES)


def test_changes_of_keyed_state_come_in_a_bounded_number() -> None:
    with pytest.raises(PluginFault, match="at once"):
        door.check_changes([Change("things", "k", None)] * (door.MOST_CHANGES + 1), {}, {})


def test_a_batch_of_an_input_has_no_versions() -> None:
    version = Version("", "things", "k", 1, b"", False)

    assert not accepted(DOCUMENTS.with_columns(versions=[version, version]))


def test_messages_pass_in_a_form_that_is_known():
    assert door.check(FORMED) is FORMED
    for wrong in (replace(FORMED, form="nobody's"), replace(FORMED, form="file"), replace(FORMED, shared={"body": 1})):
        with pytest.raises(PluginFault, match="form"):
            door.check(wrong)
