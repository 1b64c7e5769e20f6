"""What a section `tests` may say, and that every mistake in it has its place."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.policy import document
from shipper.policy.cases import DEFAULT_TIME, Case, read_cases, split
from shipper.sdk.errors import PolicyError

INPUTS = {"app": ("main", "audit"), "other": ("main",)}
GOOD = """
version: 1
tests:
  a line goes through:
    input: app
    events: [a line, {service.name: shop}]
    expect: [{message: a line}]
  by output:
    input: app
    events: []
    expect: {audit: []}
    exact: true
    at: 2026-11-27T11:00:00+01:00
"""


def read(text, **inputs):
    rest, section = split(document.read(text))
    return rest, read_cases(section, inputs or INPUTS)


def test_a_case_has_its_events_and_what_each_output_must_get():
    rest, (first, second) = read(GOOD)

    assert list(rest.value) == ["version"]
    assert first == Case(
        "a line goes through",
        first.mark,
        "app",
        ("a line", {"service.name": "shop"}),
        {"main": ({"message": "a line"},), "audit": ({"message": "a line"},)},
        at=DEFAULT_TIME,
    )
    assert first.mark.line == 4
    assert (second.expect, second.exact, second.at) == ({"audit": ()}, True, datetime(2026, 11, 27, 10, tzinfo=UTC))


def test_a_policy_without_tests_is_unchanged():
    root = document.read("version: 1")

    assert split(root) == (root, None)


def test_every_mistake_has_its_place():
    for test, line, told in [
        ("[]", 3, "expected a mapping of tests by name"),
        ("\n  a: 1", 4, "a test is a mapping with input, events and expect"),
        ("\n  a: {input: app, events: []}", 4, "the key is missing"),
        ("\n  a: {input: app, events: [], expect: [], expet: 1}", 4, 'unknown key "expet" (did you mean "expect"?)'),
        ("\n  a: {input: ap, events: [], expect: []}", 4, 'there is no input "ap" (did you mean "app"?)'),
        ("\n  a: {input: 1, events: [], expect: []}", 4, "expected the name of an input"),
        ("\n  a: {input: app, events: x, expect: []}", 4, "expected a list of events"),
        ("\n  a: {input: app, events: [1], expect: []}", 4, "an event is a mapping of fields, or the text of its"),
        ("\n  a: {input: app, events: [], expect: [x]}", 4, "an event is a mapping of fields"),
        ("\n  a: {input: other, events: [], expect: {audit: []}}", 4, 'do not go to an output "audit"'),
        ("\n  a: {input: app, events: [], expect: [], exact: 1}", 4, "expected true or false"),
        ("\n  a: {input: app, events: [], expect: [], at: noon}", 4, "expected an instant with its zone"),
        ("\n  a: {input: app, events: [], expect: [], at: 2026-01-01}", 4, "expected an instant with its zone"),
        ("\n  '': {input: app, events: [], expect: []}", 4, "the name of a test has 1 to 200 printable characters"),
    ]:
        with pytest.raises(PolicyError) as refused:
            read(f"version: 1\n\ntests: {test}")

        assert refused.value.problems[0].line == line
        assert told in str(refused.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(PolicyError) as refused:
        read("tests:\n  a: 1\n  b: {input: no, events: 1, expect: 1}\n")

    assert len(refused.value.problems) == 4


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["app", "audit", "main", "", "x"])
KEYS = st.sampled_from(["input", "events", "expect", "exact", "at", "main", "audit", "x"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@given(TREES)
def test_any_section_is_read_or_refused(tree):
    section = document.read(document.write({"tests": {"a": tree}})).value["tests"]
    problems = []
    try:
        assert all(case.input in INPUTS for case in read_cases(section, INPUTS))
    except PolicyError as error:
        problems += error.problems

    assert all(problem.path.startswith("tests") for problem in problems)
