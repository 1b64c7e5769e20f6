"""Joining: one batch of several has the same events, under the same ids."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.event import COLUMNS, Batch
from shipper.sdk.joining import kind, pieced, rejoined, strung, together, way
from tests.sdk.batches import BATCHES, columns, exact, rows, typed_batches, with_columns
from tests.sdk.formed import FORMED

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
        assert way(same, grouping) == way(batch, grouping)
        ways = [way(other, grouping) for other in [batch, *others]]
        assert all(one != other for n, one in enumerate(ways) for other in ways[:n])


def test_lines_that_are_grouped_by_what_differs_from_line_to_line_go_alone() -> None:
    batch = Batch.lines(b"a\n", offset=0, shared={"log": {"file": {"path": "/a"}}})

    assert way(batch) == way(batch)
    assert way(batch, ["log.file.path"]) != way(batch, ["log.file.path"])


@given(
    st.lists(BATCHES, min_size=1, max_size=4) | st.lists(with_columns(typed_batches()), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_batches_that_go_together_keep_their_events_ids_and_columns_though_they_differ_in_what_groups_them(
    batches: list[Batch], kinds: int
) -> None:
    ways = [
        ("theirs" if n % kinds % 2 else None, {"data_stream": {"dataset": f"d{n % kinds}"}})
        for n in range(len(batches))
    ]
    batches = [
        replace(batch, seq=n, route=route, shared={**batch.shared, **shared})
        for n, (batch, (route, shared)) in enumerate(zip(batches, ways, strict=True))
    ]

    joined = together(batches, ("data_stream",))

    assert rows(joined) == [row for batch in batches for row in rows(batch)]
    assert columns(joined) == [row for batch in batches for row in columns(batch)]
    assert exact(joined.whole()) == exact([event for batch in batches for event in batch.whole()])
    assert joined.count == sum(batch.count for batch in batches)
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
    assert rows(joined) == joined.whole()
    assert joined.pick([0, 1, 4]).each_route() == ["to-a"] * 3
    assert joined.pick([0, 2]).each_route() == ["to-a", "to-b"]


def test_an_output_that_mixes_takes_any_group_and_route_but_keyed_state_apart() -> None:
    batch = Batch.documents([b"{}"], shared={"a": 1})
    others = [replace(batch, route="theirs"), replace(batch, shared={"a": 2}), replace(batch, shared={})]

    assert {way(other, ["a"], mixes=True) for other in [batch, *others]} == {way(batch, ["a"], mixes=True)}
    assert (
        len({way(one, ["a"], mixes=True) for one in [batch, Batch.typed([{}]), batch.with_columns(versions=[None])]})
        == 3
    )


@given(st.lists(BATCHES, min_size=1, max_size=4) | st.lists(with_columns(typed_batches()), min_size=1, max_size=4))
def test_batches_of_one_kind_are_strung_with_their_events_and_columns(batches: list[Batch]) -> None:
    kinds: dict[object, list[Batch]] = {}
    for batch in batches:
        kinds.setdefault(kind(replace(batch, shared={}, route=None)), []).append(replace(batch, shared={}, route=None))

    for those in kinds.values():
        whole = strung(those)
        assert exact(whole.own()) == exact([event for batch in those for event in batch.own()])
        for name in COLUMNS:
            each = [getattr(batch, name) or [None] * batch.count for batch in those]
            assert list(getattr(whole, name) or [None] * whole.count) == [value for one in each for value in one]


def test_only_batches_with_the_same_target_and_shared_fields_are_of_one_kind() -> None:
    batch = Batch.documents([b"{}"], shared={"a": 1})
    others = [
        Batch.documents([b"{}"], shared={"a": True}),
        Batch.documents([b"{}"], shared={"a": 1}, route="theirs"),
        Batch.typed([{}], shared={"a": 1}),
        Batch.lines(b"x\n", offset=0, shared={"a": 1}),
        batch.identified(b"T" * 16, 7),
    ]

    assert kind(batch) == kind(Batch.documents([b'{"n":1}'], shared={"a": 1}))
    assert all(kind(batch) != kind(other) for other in others)


def test_messages_of_a_form_enter_and_are_sent_together_with_their_like() -> None:
    typed = FORMED.unformed()
    other = replace(FORMED, shared=FORMED.shared | {"labels": {"a": 1}})

    assert kind(FORMED) != kind(typed)
    assert strung([FORMED, FORMED]).messages() == FORMED.messages() * 2
    assert way(FORMED) != way(typed)
    both = together([FORMED, other], ("data_stream",))
    assert (both.form, both.whole()) == ("otlp", [*FORMED.whole(), *other.whole()])
    assert both.shared == FORMED.shared


# -- pieces that were processed ----------------------------------------------------------------------------------------

LOG = {"log": {"file": {"path": "/a"}}}
TEXT = b"one\ntwo\nthree\n"


def test_lines_in_pieces_are_the_same_lines_again() -> None:
    for gap in (1, 2):
        batch = Batch.lines(TEXT, offset=5, shared=LOG, gap=gap)
        (made,) = pieced(list(batch.pieces(4)))

        assert made == batch


def test_lines_between_documents_become_documents() -> None:
    first, second, third = Batch.lines(TEXT, offset=5, shared=LOG).pieces(6)
    (made,) = pieced([first, second.replace(second.own()), third])

    assert made.whole() == Batch.lines(TEXT, offset=5, shared=LOG).whole()
    assert made.items is None


def test_pieces_that_share_other_fields_stay_apart() -> None:
    first, second, third = Batch.lines(TEXT, offset=5, shared=LOG).pieces(6)

    assert [one.count for one in pieced([first, second.share({"a": 1}), third.pick([])])] == [1, 1]


def test_a_number_is_no_boolean_where_events_are_joined() -> None:
    batch = Batch.events([{"n": 0}, {"n": 1}], shared={"a": 1})
    first, second = batch.pick([0]), replace(batch.pick([1]), shared={"a": True})

    for made in (pieced([first, second]), [rejoined(batch, [1], second)]):
        assert [event["a"] is True for one in made for event in one.whole()] == [False, True]


def test_typed_pieces_and_relayed_ones_keep_what_they_have() -> None:
    batch = Batch.typed([{"a": b"x"}, {"a": b"yy"}, {"a": b"z"}], timestamps=[1, 2, 3]).identified(b"o" * 16, 7)
    pieces = list(batch.pieces(6))
    (made,) = pieced(pieces[:1] + pieces[2:])

    assert made.own() == [{"a": b"x"}, {"a": b"z"}]
    assert (made.items, made.timestamps) == ([0, 2], (1, 3))
