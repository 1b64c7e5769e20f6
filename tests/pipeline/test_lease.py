"""The lease: pure, on a clock that the test sets."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from shipper.pipeline.destination.lease import LONGEST_LOOK, Lease


class Clock:
    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_nobody_needs_a_lease_before_the_first_one() -> None:
    lease = Lease(Clock())

    assert lease.holds()
    assert lease.seconds is None


def test_who_needs_one_from_the_start_has_none_at_first() -> None:
    lease = Lease(Clock(), is_needed=True)

    assert not lease.holds()
    assert lease.seconds == 0


def test_it_holds_until_its_instant_and_not_in_it() -> None:
    clock = Clock()
    lease = Lease(clock)
    lease.renew(110)
    clock.now = math.nextafter(110, 0)
    assert lease.holds()
    clock.now = 110

    assert not lease.holds()
    assert lease.seconds == 0


def test_a_past_one_is_none_and_ends_the_one_that_holds() -> None:
    lease = Lease(Clock())
    lease.renew(200)
    lease.renew(99)

    assert not lease.holds()


def test_the_newest_word_counts_though_it_is_the_shorter_one() -> None:
    lease = Lease(Clock())
    lease.renew(200)
    lease.renew(150)

    assert lease.seconds == 50


def test_a_later_one_ends_a_lapse_and_none_ends_the_need() -> None:
    lease = Lease(Clock(), is_needed=True)
    lease.renew(101)
    assert lease.holds()
    lease.renew(None)

    assert lease.holds()
    assert lease.seconds is None


def test_one_that_holds_is_looked_at_when_it_may_have_lapsed_and_now_and_then_before() -> None:
    clock = Clock()
    lease = Lease(clock)
    assert lease.look_seconds == math.inf
    lease.renew(100.25)
    assert lease.look_seconds == 0.25
    lease.renew(10_000)
    assert lease.look_seconds == LONGEST_LOOK
    clock.now = 20_000

    assert lease.look_seconds == 0


words = st.one_of(st.none(), st.floats(-1e9, 1e9))


@given(st.booleans(), st.lists(st.tuples(words, st.floats(0, 1e6))))
def test_it_holds_exactly_before_the_last_word(is_needed: bool, said: list[tuple[float | None, float]]) -> None:
    clock = Clock()
    lease = Lease(clock, is_needed=is_needed)
    last: float | None = -math.inf if is_needed else None
    for until, passes in said:
        lease.renew(until)
        last = until
        clock.now += passes

    assert lease.holds() == (last is None or clock.now < last)
    assert (lease.seconds is None) == (last is None)
    assert lease.holds() == (lease.seconds != 0)
