import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.sdk.conditions import Condition

EVENT: Fields = {
    "message": "GET /health 200",
    "http": {"response": {"status_code": 200}},
    "url.path": "/health",
    "tags": ["probe", "web"],
    "ok": True,
    "duration": 2.5,
    "nothing": None,
}


def condition(**key: Any) -> Condition:
    return msgspec.convert(key, Condition)


def holds_for(event: Fields, when: Condition) -> bool:
    return when.meet(Batch.events([event])) == [0]


def test_a_condition_says_which_events_meet_it() -> None:
    for key, holds in [
        ({"equals": {"http.response.status_code": 200}}, True),
        ({"equals": {"http.response.status_code": 200, "message": "x"}}, False),
        ({"equals": {"http.response.status_code": "200"}}, False),
        ({"equals": {"url.path": "/health"}}, True),
        ({"equals": {"ok": True}}, True),
        ({"equals": {"ok": 1}}, False),
        ({"equals": {"tags": "web"}}, True),
        ({"equals": {"missing": "x"}}, False),
        ({"contains": {"message": "/health"}}, True),
        ({"contains": {"tags": "prob"}}, True),
        ({"contains": {"duration": "2"}}, False),
        ({"regexp": {"message": r"^GET \S+ 2\d\d$"}}, True),
        ({"regexp": {"message": r"^POST"}}, False),
        ({"range": {"duration": {"gte": 2.5, "lt": 3}}}, True),
        ({"range": {"duration": {"gt": 2.5}}}, False),
        ({"range": {"duration": {"lte": 2}}}, False),
        ({"range": {"ok": {"gte": 0}}}, False),
        ({"range": {"message": {"gte": 0}}}, False),
        ({"has_fields": ["http.response", "tags"]}, True),
        ({"has_fields": ["http.response", "nothing"]}, False),
        ({"and": [{"has_fields": ["ok"]}, {"equals": {"ok": True}}]}, True),
        ({"and": [{"has_fields": ["ok"]}, {"equals": {"ok": False}}]}, False),
        ({"or": [{"has_fields": ["no"]}, {"equals": {"ok": True}}]}, True),
        ({"or": [{"has_fields": ["no"]}, {"equals": {"ok": False}}]}, False),
        ({"not": {"equals": {"ok": True}}}, False),
        ({"not": {"not": {"equals": {"ok": True}}}}, True),
    ]:
        assert holds_for(EVENT, condition(**key)) == holds


def test_a_condition_that_makes_no_sense_is_refused() -> None:
    for key, complaint in [
        ({}, "exactly one"),
        ({"equals": {"a": 1}, "not": {"equals": {"a": 2}}}, "exactly one"),
        ({"equals": {}}, "must not be empty"),
        ({"or": []}, "must not be empty"),
        ({"range": {"a": {}}}, "at least one"),
        ({"regexp": {"a": "("}}, "invalid regular expression: a group is not closed"),
        ({"or": [{"regexp": {"a": "(?=a)"}}]}, "look-around"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            condition(**key)


@pytest.mark.parametrize("text", ["é" * 10, "\ud800", "a\0b", "x" * 4095 + "é"])
def test_any_text_is_searched_as_it_is(text: str) -> None:
    batch = Batch.documents([b"{}"], shared={"message": text})

    assert condition(regexp={"message": r"\A(?s:.*)\z"}).meet(batch) == [0]


def test_a_regular_expression_sees_the_first_4096_characters() -> None:
    when = condition(regexp={"message": "b"})

    assert holds_for({"message": "é" * 4095 + "b"}, when)
    assert not holds_for({"message": "é" * 4096 + "b"}, when)


@pytest.mark.parametrize(
    ("key", "slow"),
    [
        ({"contains": {"a": "b"}}, False),
        ({"not": {"and": [{"has_fields": ["a"]}, {"or": [{"equals": {"a": 1}}]}]}}, False),
        ({"regexp": {"a": "b"}}, True),
        ({"not": {"and": [{"has_fields": ["a"]}, {"or": [{"regexp": {"a": "b"}}]}]}}, True),
    ],
)
def test_a_condition_that_searches_is_slow(key: dict[str, Any], slow: bool) -> None:
    """Hundreds of expressions take seconds for one line: these are not the main thread's."""
    assert condition(**key).searches() == slow


VALUES = st.one_of(st.integers(-5, 5), st.floats(-5, 5), st.text("ab.", max_size=3), st.booleans(), st.none())
NAMES = st.sampled_from(["a", "b", "a.b", "b.a.b"])
LEAVES = st.one_of(
    st.builds(lambda n, v: {"equals": {n: v}}, NAMES, VALUES.filter(lambda v: v is not None)),
    st.builds(lambda n, v: {"contains": {n: v}}, NAMES, st.text("ab.", max_size=2)),
    st.builds(lambda n, v: {"regexp": {n: re.escape(v)}}, NAMES, st.text("ab.", max_size=2)),
    st.builds(lambda n, v: {"range": {n: {"gte": v}}}, NAMES, st.integers(-5, 5)),
    st.builds(lambda n: {"has_fields": [n]}, NAMES),
)
EVENTS = st.dictionaries(
    st.sampled_from(["a", "b", "a.b"]), st.recursive(VALUES, lambda v: st.dictionaries(st.sampled_from(["a", "b"]), v))
)


@given(EVENTS, LEAVES, LEAVES)
def test_and_or_not_are_those_of_logic(event: Fields, one: dict[str, Any], two: dict[str, Any]) -> None:
    first, second = holds_for(event, condition(**one)), holds_for(event, condition(**two))

    assert holds_for(event, condition(**{"and": [one, two]})) == (first and second)
    assert holds_for(event, condition(**{"or": [one, two]})) == (first or second)
    assert holds_for(event, condition(**{"not": one})) != first
