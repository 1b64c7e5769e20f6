"""All that members, people and a leader may do, step by step, breaks no law and comes to an end; each rule is needed.

Laws: nobody uses a content of before a bound that differs from the one at it; no member runs an older generation than
one that is drained; nothing is offered twice in a row. In the end: each bound comes to the newest version, the newest
generation is drained, and nobody waits.
"""

from __future__ import annotations

import pytest

from tests.kubernetes.model.exploration import explore
from tests.kubernetes.model.starts import STARTS
from tests.kubernetes.model.walking import BEGINNINGS, Walker, run

RULES: frozenset[str] = frozenset()
STATES = 400
"""Of each start in CI; give more by hand."""


@pytest.mark.parametrize("start", STARTS)
def test_whatever_comes_next_breaks_no_law_and_comes_to_an_end(start):
    found = explore(STARTS[start](RULES), most=STATES, ends=20)
    assert not found.broken, found.broken


@pytest.mark.parametrize(
    ("rule", "start"),
    [
        ("announce", "offered"),
        ("read after the announcement", "announced"),
        ("list what drains", "rotation"),
        ("heed the bounds", "fenced"),
        ("doubt after a lapse", "removed_while_down"),
        ("write labels-only versions", "labels_only"),
        ("ask again what was denied", "denied"),
        ("introduce a policy", "handed_over"),
        ("read a policy that is new", "handed_over"),
    ],
)
def test_without_one_of_its_rules_a_law_is_broken(rule, start):
    found = explore(STARTS[start](frozenset({rule})), most=5000, ends=20)
    assert found.broken


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_walks_through_all_that_may_happen_break_no_law_and_come_to_an_end(beginning):
    for seed in range(8):
        outcome = run(Walker(beginning, seed))
        assert not outcome.violations, f"seed {seed}: {outcome}"
