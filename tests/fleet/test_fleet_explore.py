"""All that members, a publisher and a candidate may do, step by step, breaks no law; and each rule is needed.

`tests.prove.explorations` goes further.
"""

import pytest

from tests.fleet.explore import Exploration, Explored
from tests.fleet.model import Left, Rules, laws, start, steps

pytestmark = pytest.mark.walks

FIRST, SECOND = frozenset({"s1"}), frozenset({"s2"})
ROTATION = (FIRST, SECOND)
NOTHING = Left()


def explored(rules: Rules, *hold: bool, left: Left = NOTHING, most: int = 100_000) -> Explored:
    return Exploration(steps(rules), laws).explore(start(*hold, left=left), most)


@pytest.mark.parametrize(
    ("left", "pins"),
    [
        (Left(lapses=1), ROTATION),
        (Left(crashes=1), ROTATION),
        (Left(lost=1), ROTATION),
        (NOTHING, (FIRST, SECOND, FIRST)),
    ],
    ids=["a lease ends", "a crash", "a lost answer", "a secret is pinned again while its release is decided"],
)
def test_a_rotation_with_a_member_that_joins_at_any_time_breaks_no_law_in_any_state(left, pins):
    found = explored(Rules(pins), True, left=left)
    assert found.broken is None, str(found.broken)
    assert found.complete


def test_the_first_states_of_two_members_break_no_law():
    found = explored(Rules(ROTATION), True, False, most=20_000)
    assert found.broken is None, str(found.broken)


@pytest.mark.parametrize(
    ("rules", "left", "law"),
    [
        (Rules(ROTATION, create_first=False), NOTHING, "s1 is released, and a uses it"),
        (
            Rules(ROTATION, look_again=False),
            Left(lapses=1),
            "a may send under 1, and an answer for 2 named it as fenced",
        ),
        (Rules(ROTATION, head_first=False), NOTHING, "1 active is open, and a has not reached it"),
        (Rules((FIRST, SECOND, FIRST), compare=False), NOTHING, "s1 is released, and a uses it"),
    ],
    ids=["create first", "look again", "head first", "compare"],
)
def test_without_one_of_its_rules_the_protocol_breaks_a_law(rules, left, law):
    found = explored(rules, True, left=left)
    assert found.broken is not None
    assert found.broken.law == law
