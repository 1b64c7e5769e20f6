"""How events are compared with expected ones."""

from hypothesis import given
from hypothesis import strategies as st

from shipper.asking.matching import ABSENT, Compared, compared, differences, flat, same

NAMES = st.text("ab", min_size=1, max_size=2)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=2)
    ),
    max_leaves=5,
)
EVENTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


def test_only_the_named_fields_count():
    for expected, came in [
        ({"a.b": 1}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}}, {"a": {"b": 1.0}}),
        ({"a": None}, {"b": 1}),
        ({"a": None}, {"a": None}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
    ]:
        assert differences(expected, came) == []


def test_another_value_is_a_difference():
    for expected, came, difference in [
        ({"a": 1}, {"a": "1"}, ("a", 1, "1")),
        ({"a": 1}, {"a": True}, ("a", 1, True)),
        ({"a": 0}, {"a": False}, ("a", 0, False)),
        ({"a.b": 1}, {"a": {"c": 1}}, ("a.b", 1, ABSENT)),
        ({"a": None}, {"a": 1}, ("a", ABSENT, 1)),
        ({"a": [1]}, {"a": [1, 2]}, ("a", [1], [1, 2])),
        ({"a": {}}, {"a": {"b": 1}}, ("a", {}, ABSENT)),
    ]:
        assert differences(expected, came) == [difference]


def test_where_all_fields_count_only_those_that_were_given_need_no_name():
    found = differences({"a": 1}, {"a": 1, "b": 2, "c": {"d": 3}}, [{"b": 2, "c.d": 4}])

    assert found == [("c.d", ABSENT, 3)]


def test_events_that_match_stay_together_where_one_is_missing_or_too_many():
    one, two, three = {"a": 1}, {"a": 2}, {"a": 3}

    assert compared([one, two, three], [one, three]) == [
        Compared(one, one, []),
        Compared(two, None),
        Compared(three, three, []),
    ]
    assert compared([three], [one, three]) == [Compared(None, one), Compared(three, three, [])]


def test_where_nothing_matches_events_stand_beside_each_other_in_order():
    found = compared([{"a": 1}], [{"a": 2}, {"a": 3}])

    assert [(row.expected, row.came) for row in found] == [({"a": 1}, {"a": 2}), (None, {"a": 3})]


@given(EVENTS)
def test_an_event_matches_itself_and_its_flat_form(event):
    assert same(event, event)
    assert differences(flat(event), event) == []


@given(st.lists(EVENTS, max_size=4), st.lists(EVENTS, max_size=4))
def test_each_event_is_in_one_row_in_its_order(expected, came):
    rows = compared(expected, came)

    assert [row.expected for row in rows if row.expected is not None] == expected
    assert [row.came for row in rows if row.came is not None] == came
