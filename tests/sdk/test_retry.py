"""Waits between attempts."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.retry import Refusals, backoff, hasty


@given(st.floats(0.001, 10), st.floats(1, 100), st.randoms(use_true_random=False))
def test_a_wait_is_within_a_bound_that_doubles_up_to_the_longest(
    first: float, factor: float, draw: random.Random
) -> None:
    longest = first * factor

    for n, wait in enumerate(islice(backoff(first, longest, draw=draw), 20)):
        bound = min(longest, first * 2**n)
        assert bound / 10 * 0.999 <= wait <= bound * 1.001


def test_waits_go_on_for_ever_and_never_become_a_hot_loop() -> None:
    waits = list(islice(backoff(1, 60), 5000))

    assert min(waits[10:]) >= 6
    assert max(waits) <= 60


def test_two_that_fail_together_do_not_come_back_together() -> None:
    assert len({next(backoff(1, 60)) for _ in range(100)}) > 90


def test_what_somebody_else_did_first_is_tried_again_at_once_and_then_after_pauses() -> None:
    first, *others = islice(hasty(), 1000)

    assert first == 0
    assert min(others) > 0
    assert sum(others) > 300


def test_only_a_refusal_after_another_one_is_repeated() -> None:
    refusals = Refusals()

    assert [refusals.is_repeated(what) for what in ("a", "b", "a", "a")] == [False, False, True, True]
    refusals.over("a")
    assert [refusals.is_repeated(what) for what in ("a", "b")] == [False, True]
