from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Condition
from shipper.sdk.conditions import Range
from shipper.sdk.fields import find, merged
from shipper.sdk.table import Cells, Lines, Table, Unfit, constant

SCALARS = st.sampled_from([None, True, 7, -1.5, "", "x", "é\x7f\n", [], [{"a": 1}], {}])
GROUPS = st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2)
ROWS = st.lists(
    st.fixed_dictionaries({"n": st.sampled_from((0, -7, 1 << 63))}, optional={"a": SCALARS | GROUPS, "b": SCALARS}),
    min_size=1,
)


def documents(*events: dict[str, Any]) -> Batch:
    return Batch.events(events)


def cells(batch: Batch, name: str) -> list[bytes]:
    found = batch.table().opened(name).cells(name)
    assert found is not None
    return found.texts(batch.count)


@given(ROWS)
def test_documents_are_the_same_as_a_table(events: list[dict[str, Any]]) -> None:
    batch = Batch.events(events)
    try:
        table = batch.table()
    except Unfit:
        return

    assert batch.body == table.body()
    assert events == table.objects(range(len(events)))


@given(ROWS, st.dictionaries(st.sampled_from("abc"), SCALARS | GROUPS), st.data())
def test_rows_are_picked_and_merged_as_events_are(
    events: list[dict[str, Any]], shared: dict[str, Any], data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.sampled_from(range(len(events))), unique=True).map(sorted))
    try:
        table = Batch.events(events).table().below(shared)
    except Unfit:
        return

    assert [merged(shared, events[place]) for place in places] == table.objects(places)


def test_documents_are_written_when_they_are_asked_for() -> None:
    batch = documents({"a": 1}, {"a": 2})
    made = batch.tabled(batch.table().put("b", constant("x")), {})

    assert not made.is_written
    assert made.body == b'{"a":1,"b":"x"}\n{"a":2,"b":"x"}\n'
    assert made.is_written
    assert made.written() == made == documents(*made.own())


def test_a_row_unlike_the_others_is_odd() -> None:
    alike: list[dict[str, Any]] = [{"a": number, "b": 1} for number in range(5)]
    table = documents(*alike, {"b": 1, "a": 5}, *alike).table()

    assert table.odd == {5: {"b": 1, "a": 5}}
    assert table.pick([4, 5]).odd == {1: {"b": 1, "a": 5}}


@pytest.mark.parametrize(
    "events",
    [
        [{"a.b": 1}],
        [{f"n{number}": 1} for number in range(100)],
        [{}],
    ],
    ids=["dotted names", "too many names", "nothing in them"],
)
def test_documents_that_differ_too_much_are_no_table(events: list[dict[str, Any]]) -> None:
    with pytest.raises(Unfit):
        documents(*events).table()


def test_runs_of_documents_with_other_names_are_one_table() -> None:
    events: list[dict[str, Any]] = [{"a": 1}] * 300 + [{"a": 1, "b": 2}] * 300
    table = documents(*events).table()

    assert events == table.objects(range(600))
    assert not table.odd


def test_a_group_is_opened_where_all_rows_have_it_or_nothing() -> None:
    assert cells(documents({"a": {"b": 1}, "n": 1}, {"n": 2}, {"a": {"c": 3}, "n": 3}), "a.b") == [b"1", b"", b""]
    for event in ({"a": 1}, {"a": [{"b": 1}]}, {"a": {}}, {"a": {"b.c": 1}}):
        with pytest.raises(Unfit):
            documents({"a": {"b": 1}}, event).table().opened("a.b")
    with pytest.raises(Unfit):
        documents({"a": {"b": 1}}).table().opened("a.b").cells("a")


def test_typed_events_and_none_are_no_table() -> None:
    with pytest.raises(Unfit):
        Batch.typed([{"a": b"x"}]).table()
    with pytest.raises(Unfit):
        documents().table()


def test_a_group_that_not_all_rows_have_gets_no_other_field() -> None:
    table = documents({"n": 1, "a": {"b": 1}}, {"n": 2}).table().opened("a.b")

    with pytest.raises(Unfit):
        table.put("a.c", constant(1))
    with pytest.raises(Unfit):
        table.put("n.c", constant(1))


def test_an_odd_event_that_cannot_be_written_fails_at_once() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    batch = documents({"a": 1}, {"a": 2})

    with pytest.raises(TypeError):
        batch.tabled(Table(2, batch.table().fields, {1: {"a": deep}}), {})


def test_equal_values_are_changed_once() -> None:
    calls: list[Any] = []

    def change(value: Any) -> Any:
        calls.append(value)
        if value == "no":
            raise ValueError
        return f"{value}!"

    made, refused = Cells([b'"a"', b'"no"', b"", b'"a"', b"null"], sparse=True).changed(5, change)

    assert made.texts(5) == [b'"a!"', b'"no"', b"", b'"a!"', b"null"]
    assert refused == [1]
    assert sorted(calls) == ["a", "no"]


def test_a_constant_is_changed_once_or_refused_in_all_rows() -> None:
    assert constant(1).changed(3, lambda value: value + 1)[0].constant == b"2"
    assert constant("x").changed(3, int)[1] == [0, 1, 2]


def test_texts_are_lines_unless_one_has_several() -> None:
    assert Cells(b'"', [b"a", b'\\"\\\\'], b'"').lines(2) == b'a\n"\\\n'
    assert Lines(b"a\nb\n").lines(2) == b"a\nb\n"
    for other in ([b'"a\\nb"'], [b"1"]):
        with pytest.raises(Unfit):
            Cells(other).lines(1)


def test_a_condition_looks_at_a_column_and_writes_nothing() -> None:
    batch = documents(*[{"a": {"b": number}, "c": "x"} for number in range(5)])
    made = batch.tabled(batch.table().without("c"), {"s": 1})
    condition = Condition(and_=[Condition(range={"a.b": Range(gt=2)}), Condition(has_fields=["s", "a"])])

    assert condition.meet(made) == [3, 4]
    assert not made.is_written
    assert [find(event, "a.b") for event in made.pick([3, 4]).whole()] == [3, 4]


def test_documents_that_a_condition_has_looked_at_keep_their_bytes() -> None:
    own = b'{"n":12345678901234567890123,"x":1e5,"x":1.10}'
    batch = Batch.documents([b'{"n":1}', own, b'{"n":1,"x":2}'])
    kept = batch.pick(Condition(has_fields=["x"]).meet(batch))

    assert kept.pick([0]).body == own + b"\n"
    assert find(kept.table().objects([0])[0], "x") == 1.1


def test_a_value_that_is_nested_deeply_gets_no_deeper() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    table = documents({"a": deep, "n": 1}).table()

    assert table.put("b", table.fields["a"]).body()
    with pytest.raises(Unfit):
        table.put("b.c", table.fields["a"])
