"""What comes in a stream is read at once after a rest, and in turns while a little keeps coming."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from shipper_plugins.journald.pace import Pace
from shipper_plugins.tail.pace import MUCH, TURN


def reads(pauses: list[float]) -> Iterator[tuple[float, list[float]]]:
    """Each instant at which is read, and those at which it came."""
    pace, now, coming = Pace(), 0.0, list(accumulate(pauses))
    while coming:
        now = max(now + pace.left(now), coming[0])
        here = [at for at in coming if at <= now]
        pace.count(now, 100)
        yield now, here
        coming = coming[len(here) :]


@given(st.lists(st.floats(0, 1), max_size=60))
def test_a_little_waits_for_no_longer_than_a_turn_and_is_read_in_turns(pauses: list[float]) -> None:
    read = list(reads(pauses))

    assert all(now - came[0] <= TURN + 1e-9 for now, came in read)
    assert all(later - earlier >= TURN - 1e-9 for (earlier, _), (later, _) in pairwise(read))


def test_much_is_read_without_a_wait_also_in_the_turn_after_it() -> None:
    pace = Pace()
    pace.count(0.0, MUCH)
    assert pace.left(0.1) == 0
    pace.count(TURN, 100)
    assert pace.left(TURN) == 0
    pace.count(2 * TURN, 100)

    assert pace.left(2 * TURN) == TURN
