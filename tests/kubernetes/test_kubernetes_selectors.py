"""Label selectors, as those of Kubernetes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.kubernetes.kinds import Requirement, Selector
from shipper.kubernetes.selectors import matches

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"))
VALUES = st.lists(st.sampled_from("xy"), unique=True).map(tuple)


@given(LABELS)
def test_an_empty_selector_selects_all(labels):
    assert matches(Selector(), labels)


@given(LABELS, LABELS)
def test_match_labels_are_all_to_be_there(wanted, labels):
    assert matches(Selector(match_labels=wanted), labels) == (wanted.items() <= labels.items())


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ("x", "y"), [{"a": "x"}]),
        ("NotIn", ("x",), [{"a": "z"}, {}]),
        ("Exists", (), [{"a": "x"}, {"a": "z"}]),
        ("DoesNotExist", (), [{}]),
    ],
)
def test_each_operator(operator, values, selected):
    selector = Selector(match_expressions=(Requirement(key="a", operator=operator, values=values),))
    assert [labels for labels in ({"a": "x"}, {"a": "z"}, {}) if matches(selector, labels)] == selected


@given(LABELS, st.sampled_from("abc"), VALUES)
def test_in_and_not_in_are_opposites(labels, key, values):
    one = Selector(match_expressions=(Requirement(key=key, operator="In", values=values),))
    other = Selector(match_expressions=(Requirement(key=key, operator="NotIn", values=values),))
    assert matches(one, labels) != matches(other, labels)


@given(LABELS, LABELS, st.sampled_from("abc"))
def test_labels_and_expressions_have_to_hold_both(labels, wanted, key):
    exists = Requirement(key=key, operator="Exists")
    both = matches(Selector(match_labels=wanted, match_expressions=(exists,)), labels)
    assert both == (matches(Selector(match_labels=wanted), labels) and key in labels)
