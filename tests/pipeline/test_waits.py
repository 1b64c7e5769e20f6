"""The clock of a lane's waits."""

from __future__ import annotations

from itertools import count, repeat

from shipper.pipeline.delivery.waits import PASSED, Waits

NOW = 100.0


def failed(waits: Waits, *, held: bool = False, wanted: float | None = None, left: float | None = None) -> float:
    """The instant of the next try after trouble now."""
    waits.after_trouble(NOW, held=held, wanted=wanted, left=left)
    return waits.destination


def test_waits_grow_until_events_have_final_answers() -> None:
    waits = Waits(lambda: map(float, count(1)))

    assert [failed(waits), failed(waits)] == [101.0, 102.0]
    waits.progressed()
    assert failed(waits) == 101.0


def test_a_destination_is_not_asked_before_it_wants_that_nor_after_what_was_left_is_due() -> None:
    waits = Waits(lambda: repeat(5.0))

    assert failed(waits, wanted=60.0) == 160.0
    assert failed(waits, wanted=1.0) == 105.0
    assert failed(waits, left=102.0) == 102.0


def test_what_changed_during_a_session_waives_the_wait_after_it() -> None:
    waits = Waits(lambda: repeat(5.0))
    waits.begin()
    waits.waive()

    assert failed(waits) == PASSED
    waits.begin()
    assert failed(waits) == 105.0


def test_another_lane_hastens_a_lane_once_in_a_row() -> None:
    waits = Waits(lambda: repeat(5.0))
    failed(waits)

    assert waits.hasten()
    assert waits.destination == PASSED
    assert failed(waits) == 105.0
    assert not waits.hasten()
    failed(waits)
    assert waits.hasten()


def test_another_lane_hastens_none_that_was_refused_or_asked_to_wait() -> None:
    waits = Waits(lambda: repeat(5.0))

    failed(waits, held=True)
    assert not waits.hasten()
    failed(waits, wanted=9.0)
    assert not waits.hasten()


def test_room_for_what_was_left_ends_a_wait_for_that_alone() -> None:
    waits = Waits(lambda: repeat(5.0))

    failed(waits)
    waits.left_is_due()
    assert waits.destination == 105.0
    failed(waits, left=102.0)
    waits.left_is_due()
    assert waits.destination == PASSED
