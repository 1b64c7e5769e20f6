import re
import time
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import Batch, Fields
from shipper.testing import check_processor
from shipper_plugins.processors.drop import Condition, Drop, Range

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


def drops(event: Fields, when: Condition) -> bool:
    return check_processor(Drop(when=when), Batch.events([event])).count == 0


@pytest.mark.parametrize(
    ("key", "holds"),
    [
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
    ],
)
def test_a_condition_says_which_events_go(key: dict[str, Any], holds: bool) -> None:
    assert drops(EVENT, condition(**key)) == holds


def test_the_other_lines_go_on_with_their_ids() -> None:
    batch = Batch.unpack(Batch.lines(b"a\nb\nc\n", offset=0, shared={"x": 1}).pack(), origin=b"o" * 16, seq=3)

    result = check_processor(Drop(when=Condition(equals={"message": "b"})), batch)

    assert [(event["message"], event["x"]) for event in result.whole()] == [("a", 1), ("c", 1)]
    assert list(result.items or ()) == [0, 2]


def test_what_events_share_is_seen_too() -> None:
    batch = Batch.lines(b"a\nb\n", offset=0, shared={"service": {"name": "shop"}})

    assert check_processor(Drop(when=Condition(equals={"service.name": "shop"})), batch).count == 0


def test_a_batch_of_which_nothing_is_dropped_is_untouched() -> None:
    batch = Batch.lines(b"a\nb\n", offset=0, shared={})

    assert Drop(when=Condition(equals={"message": "c"})).process(batch) is batch


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ({}, "exactly one"),
        ({"equals": {"a": 1}, "not": {"equals": {"a": 2}}}, "exactly one"),
        ({"equals": {}}, "must not be empty"),
        ({"or": []}, "must not be empty"),
        ({"range": {"a": {}}}, "at least one"),
        ({"regexp": {"a": "("}}, "no regular expression that is taken here: a group is not closed"),
        ({"or": [{"regexp": {"a": "(?=a)"}}]}, "look-around"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(key: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        condition(**key)


def test_a_line_made_for_a_backtracking_engine_is_judged_at_once() -> None:
    """Many seconds for these ten characters with `re`."""
    when = condition(regexp={"message": "^(?:(?:a?){4}){4}(?:(?:a?){4}){4}b"})
    started = time.process_time()

    assert not drops({"message": "a" * 10}, when)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("text", ["é" * 10, "\ud800", "a\0b", "x" * 4095 + "é"])
def test_any_text_is_searched_as_it_is(text: str) -> None:
    batch = Batch.documents([b"{}"], shared={"message": text})

    assert Drop(when=condition(regexp={"message": r"\A(?s:.*)\z"})).process(batch).count == 0


def test_a_regular_expression_sees_the_first_4096_characters() -> None:
    when = condition(regexp={"message": "b"})

    assert drops({"message": "é" * 4095 + "b"}, when)
    assert not drops({"message": "é" * 4096 + "b"}, when)


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
    assert Drop(when=condition(**key)).is_slow == slow


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


@settings(deadline=None)
@given(EVENTS, LEAVES, LEAVES)
def test_and_or_not_are_those_of_logic(event: Fields, one: dict[str, Any], two: dict[str, Any]) -> None:
    first, second = drops(event, condition(**one)), drops(event, condition(**two))

    assert drops(event, condition(**{"and": [one, two]})) == (first and second)
    assert drops(event, condition(**{"or": [one, two]})) == (first or second)
    assert drops(event, condition(**{"not": one})) != first


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)), st.integers(0, 9))
def test_exactly_the_events_that_meet_the_condition_go(numbers: list[int], limit: int) -> None:
    batch = Batch.documents([orjson.dumps({"n": n}) for n in numbers])
    result = check_processor(Drop(when=Condition(range={"n": Range(lt=limit)})), batch)

    assert [event["n"] for event in result.whole()] == [n for n in numbers if n >= limit]
