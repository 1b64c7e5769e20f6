"""Clocks of barriers, and of a deadline that was shortened."""

from __future__ import annotations

from shipper.spool import clock
from shipper.spool.clock import Clock
from shipper.values import Revision
from tests.spool.test_spool_doubt import draining
from tests.spool.test_spool_revisions import Spool

SECOND = clock.MICROSECONDS


def own(spool: Spool) -> dict[Clock, float]:
    """The clock of the deadline, if it has one."""
    return {one: seconds for one, seconds in clock.read(spool.db).clocks.items() if not one.lane}


def test_time_passes_for_the_clocks_that_are_named_and_still_there() -> None:
    spool = draining()
    clock.set_deadline(spool.db, 60.0)
    (barrier,) = clock.read(spool.db).barriers()
    gone = [Clock(barrier.lane, 10**6), Clock(77, barrier.seq), Clock(0, 3)]
    clock.advance(spool.db, {barrier: 1.5, Clock(0, 60 * SECOND): 2.5} | dict.fromkeys(gone, 9.0))
    reading = clock.advance(spool.db, {barrier: 0.25})

    assert reading == clock.read(spool.db)
    assert reading.active == Revision(0, 2)
    assert reading.clocks == {barrier: 1.75, Clock(0, 60 * SECOND): 2.5}


def test_a_deadline_that_is_shorter_has_a_clock_of_its_own() -> None:
    for deadlines, runs in [
        ([60.0], True),  # shorter than for ever
        ([60.0, 8.0], True),
        ([60.0, 60.0], False),
        ([60.0, 90.0], False),
        ([60.0, None], False),
        ([60.0, None, 90.0], True),
        ([None], False),
    ]:
        spool = Spool()
        for deadline in deadlines[:1]:
            clock.set_deadline(spool.db, deadline)
            clock.advance(spool.db, dict.fromkeys(own(spool), 60.0) if len(deadlines) > 1 else {})
        for deadline in deadlines[1:]:
            clock.set_deadline(spool.db, deadline)
        last = deadlines[-1]

        assert (list(own(spool).values()) == [0.0]) == runs
        assert last is None or clock.read(spool.db).effective(last) != runs


def test_a_revision_with_the_same_deadline_changes_nothing_of_its_clock() -> None:
    spool = Spool()
    for _ in range(3):
        clock.set_deadline(spool.db, 8.0)
        clock.advance(spool.db, dict.fromkeys(own(spool), 2.0))

    assert own(spool) == {Clock(0, 8 * SECOND): 6.0}


def test_a_longer_deadline_begins_anew_while_the_one_before_has_not_had_its_time() -> None:
    spool = Spool()
    for deadline in (60.0, 8.0, 10.0):
        clock.set_deadline(spool.db, deadline)
        clock.advance(spool.db, dict.fromkeys(own(spool), 2.0))

    assert own(spool) == {Clock(0, 10 * SECOND): 2.0}


def test_time_without_end_stays_sound() -> None:
    spool = Spool()
    clock.set_deadline(spool.db, 1e20)
    for _ in range(2):
        clock.advance(spool.db, dict.fromkeys(own(spool), 1e20))

    assert own(spool) == {Clock(0, 2**62 - 1): (2**62 - 1) / SECOND}
