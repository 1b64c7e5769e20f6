"""How long the store takes for a call, and whether that is too long for a lease."""

from __future__ import annotations

from shipper.fleet.member.steps import Look
from shipper.fleet.membership.pace import Pace
from shipper.membership.steps import Rest

LEASE = 18.0


def after(*seconds: float) -> str | None:
    """Returns the problem after looks whose calls took so long."""
    pace = Pace(LEASE)
    for each in seconds:
        pace.took(Look(0), 3 * each)
    return pace.problem


def test_it_is_too_slow_from_two_slow_steps_until_two_fast_ones() -> None:
    for seconds, is_slow in [
        ((2.1,), False),
        ((2.1, 0.1, 2.1), False),
        ((2.0, 2.0), False),
        ((2.1, 2.1), True),
        ((2.1, 2.1, 1.5, 1.5), True),
        ((2.1, 2.1, 0.1), True),
        ((2.1, 2.1, 0.1, 0.1), False),
    ]:
        assert (after(*seconds) is not None) is is_slow


def test_the_problem_keeps_the_worst_so_that_its_words_stay_while_the_store_wavers() -> None:
    first, later = after(4.0, 4.0), after(4.0, 4.0, 3.0, 2.5, 1.5)

    assert first == later
    assert first is not None
    assert "4.0 s a call" in first
    assert "a `lease` of 36s or more" in first


def test_what_makes_no_call_says_nothing() -> None:
    pace = Pace(LEASE)
    for _ in range(3):
        pace.took(Rest(None), 1000.0)

    assert pace.problem is None
