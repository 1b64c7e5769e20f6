"""Variables in policies of objects: refused, unless a host's own settings allow them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.kubernetes.merging import tree_of
from shipper.kubernetes.trees import PolicyTree, without_variables
from shipper.policy.document import plain
from shipper.sdk.errors import PolicyError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet="ab{}", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="ab", min_size=1), inner, max_size=3),
)


@given(VALUES)
def test_what_has_no_dollar_stays_as_it_is(value: object) -> None:
    tree = tree_of({"a": value})

    assert without_variables(tree, None) == tree
    assert without_variables(tree, {"a": "b"}) == tree


def test_two_dollars_are_one() -> None:
    assert plain(without_variables(tree_of({"a": "$$b $${c}"}), None)) == {"a": "$b ${c}"}


def test_every_variable_is_refused_at_its_place() -> None:
    with pytest.raises(PolicyError) as caught:
        PolicyTree(tree_of({"a": ["x", "${HOME}"], "b": {"c": "${USER:-me}"}})).read({"HOME": "/root"})

    assert [problem.path for problem in caught.value.problems] == ["a[1]", "b.c"]
    assert all("may not read variables" in problem.message for problem in caught.value.problems)


def test_a_host_may_allow_them_and_a_number_is_a_number() -> None:
    origin = PolicyTree(tree_of({"a": "${PORT}", "b": "x-${NAME:-me}"}), allows_host=True)

    assert plain(origin.read({"PORT": "9200"}).tree) == {"a": 9200, "b": "x-me"}
