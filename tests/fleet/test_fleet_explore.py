"""All that two members, a publisher and a candidate may do, step by step, breaks no law; and each rule is needed."""

import pytest

from tests.fleet.explore import Exploration, Explored
from tests.fleet.model import Left, Rules, laws, start, steps

pytestmark = [pytest.mark.timeout(180), pytest.mark.walks]

FIRST, SECOND = frozenset({"s1"}), frozenset({"s2"})
ROTATION = (FIRST, SECOND)


def explored(rules: Rules, *hold: bool, left: Left, most: int) -> Explored:
    return Exploration(steps(rules), laws).explore(start(*hold, left=left), most)


def test_a_rotation_with_a_member_that_joins_at_any_time_breaks_no_law_in_any_state():
    found = explored(Rules(ROTATION), True, False, left=Left(), most=200_000)
    assert found.broken is None, str(found.broken)
    assert found.complete


@pytest.mark.parametrize(
    "left", [Left(lapses=1), Left(crashes=1), Left(lost=1)], ids=["a lease ends", "a crash", "a lost answer"]
)
def test_the_first_states_with_a_fault_break_no_law(left):
    found = explored(Rules(ROTATION), True, False, left=left, most=15_000)
    assert found.broken is None, str(found.broken)


def test_a_secret_that_is_pinned_again_while_its_release_is_decided_breaks_no_law():
    found = explored(Rules((FIRST, SECOND, FIRST)), True, False, left=Left(), most=15_000)
    assert found.broken is None, str(found.broken)


@pytest.mark.parametrize(
    ("rules", "left", "law"),
    [
        (Rules(ROTATION, create_first=False), Left(), "s1 is released, and b uses it"),
        (
            Rules(ROTATION, look_again=False),
            Left(lapses=1),
            "a may send under 1, and an answer for 2 named it as fenced",
        ),
        (Rules(ROTATION, head_first=False), Left(), "1 active is open, and a has not reached it"),
        (Rules((FIRST, SECOND, FIRST), compare=False), Left(), "s1 is released, and b uses it"),
    ],
    ids=["create first", "look again", "head first", "compare"],
)
def test_without_one_of_its_rules_the_protocol_breaks_a_law(rules, left, law):
    found = explored(rules, True, False, left=left, most=200_000)
    assert found.broken is not None
    assert found.broken.law == law
