"""Takeover and fencing: every order of requests in a small world, and what goes wrong without one of the rules."""

from __future__ import annotations

from functools import partial

import pytest

from tests.kubernetes.summing import drained, model
from tests.kubernetes.summing.exploring import Found, explore

pytestmark = pytest.mark.walks

STEADY = model.State("ab", rounds=(1, 1), lapses=0)
WORLDS = {
    "two leaders and a new content": STEADY,
    "two leaders and a change of labels": model.State("abb", rounds=(1, 1), lapses=0),
    "two leaders and a content that comes back": model.State("aba", rounds=(1, 1), lapses=0),
    "a fence by the first leader": model.State("ab", rounds=(2, 1)),
    "a fence by the second leader": model.State("ab", rounds=(1, 2)),
    "a fence and a member that begins": model.State("ab", using=frozenset(), used=frozenset(), rounds=(2, 0)),
}
LEFT_OUT = {
    "announce": "two leaders and a content that comes back",
    "read again": "two leaders and a new content",
    "drop late": "two leaders and a new content",
    "heed": "a fence by the first leader",
    "begin anew": "a fence and a member that begins",
    "renew by swap": "a fence by the first leader",
    "secret first": "a fence and a member that begins",
    "oldest in use": "two leaders and a new content",
    "write the fence": "a fence by the first leader",
    "fence by swap": "a fence by the first leader",
    "write by swap": "two leaders and a new content",
}


def test_nothing_in_use_is_older_than_a_bound_in_any_order_of_requests():
    for world in WORLDS:
        start = WORLDS[world]
        states = explore(start, partial(model.successors, rules=model.RULES), model.wrong)

        assert max(state.bound for state in states) == len(start.contents)


def test_each_rule_of_a_release_is_needed():
    for rule in sorted(model.RULES):
        with pytest.raises(Found):
            explore(WORLDS[LEFT_OUT[rule]], partial(model.successors, rules=model.RULES - {rule}), model.wrong)


def test_a_leader_writes_nothing_after_a_later_one_has_concluded():
    states = explore(drained.State(), partial(drained.successors, rules=drained.RULES), drained.wrong)

    assert {state.status for state in states} >= {(1, True), (1, False), (2, True), (2, False)}


@pytest.mark.parametrize("rule", sorted(drained.RULES))
def test_each_rule_of_a_takeover_is_needed(rule: str):
    with pytest.raises(Found):
        explore(drained.State(), partial(drained.successors, rules=drained.RULES - {rule}), drained.wrong)
