import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import BadOption, Fields
from shipper.sdk.fields import check_name, check_pairs, find, merged, nested, put, without

names = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)
trees = st.recursive(
    st.integers(0, 9), lambda below: st.dictionaries(st.sampled_from(["a", "b", "a.b", "c"]), below), max_leaves=8
)
events = st.dictionaries(st.sampled_from(["a", "b", "a.b", "c"]), trees)


@given(events, names, st.integers())
def test_what_is_put_is_found(event: Fields, name: str, value: int) -> None:
    before = orjson.dumps(event)
    try:
        changed = put(event, name, value)
    except ValueError:
        return

    assert find(changed, name) == value
    assert orjson.dumps(event) == before, "the event that came in was changed"


@given(events, names)
def test_what_is_removed_is_gone_or_was_below_a_dotted_key(event: Fields, name: str) -> None:
    before = orjson.dumps(event)
    left = event
    for _ in range(8):  # the same name may be there nested and dotted
        left = without(left, name)

    assert find(left, name) is None
    assert orjson.dumps(event) == before, "the event that came in was changed"


def test_a_removed_field_leaves_no_empty_group() -> None:
    for event, name, left in [
        ({"a": 1, "b": 2}, "a", {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, "a.b", {"a": {"c": 2}}),
        ({"a": {"b": 1}, "x": 0}, "a.b", {"x": 0}),
        ({"a.b": 1, "x": 0}, "a.b", {"x": 0}),
        ({"a": 1}, "a.b", {"a": 1}),
        ({"a": {}}, "a.b", {"a": {}}),
        ({"x": 0}, "a", {"x": 0}),
    ]:
        assert without(event, name) == left


@given(events, events)
def test_merged_changes_neither_side(below: Fields, above: Fields) -> None:
    before = orjson.dumps([below, above])
    merged(below, above)["new"] = 1

    assert orjson.dumps([below, above]) == before


def test_dotted_names_become_nested_fields() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}


def test_a_name_without_a_part_is_refused() -> None:
    for name in ["", ".", "a.", ".a", "a..b"]:
        with pytest.raises(BadOption):
            check_name(name, "field")


def test_pairs_of_names_that_make_no_sense_are_refused() -> None:
    for pairs in [{}, {"a": ""}, {"": "a"}, {"a": "a"}, {"a": "c", "b": "c"}]:
        with pytest.raises(BadOption) as caught:
            check_pairs("fields", pairs)

        assert caught.value.at[0] == "fields"
