"""What a lane does next while its output is closed, and what a session leaves behind."""

from __future__ import annotations

from itertools import repeat

import pytest

from shipper.pipeline.attempts.attempt import Trouble
from shipper.pipeline.delivery.machine import Held, Idle, Machine, Open, Stand, Step
from shipper.pipeline.delivery.session import Rest, Settle
from shipper.sdk.codes import Code, Why
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry
from shipper.spool.schema import BARRIER
from tests.pipeline.test_backlog import entry

NOW = 100.0
MISSING, LAPSED = Why("it is missing", Code.CREDENTIAL_MISSING), Why("it has lapsed", Code.LEASE_LAPSED)


def machine(*, active: bool = True, open_idle: bool = False) -> Machine:
    return Machine(Feeding(is_open_idle=open_idle), lambda: repeat(5.0), active=active)


def ended(lane: Machine, trouble: Trouble | None, *, answered: bool = True) -> None:
    """A session, and its end."""
    session = lane.begin()
    session.end(trouble)
    session.answered = NOW if answered else session.answered
    lane.ended(NOW)


@pytest.mark.parametrize(
    ("first", "hold", "step"),
    [
        (entry(3, BARRIER), LAPSED, Settle(3)),
        (entry(3), LAPSED, Held(LAPSED)),
        (None, LAPSED, Held(LAPSED)),
        (entry(3), MISSING, Held(MISSING)),
        (None, MISSING, Idle()),
        (None, None, Idle()),
        (entry(3), None, Open(drains=False)),
    ],
)
def test_a_barrier_comes_first_and_then_what_holds_the_events(
    first: Entry | None, hold: Why | None, step: Step
) -> None:
    assert machine().next(NOW, first, hold) == step


def test_an_order_comes_before_everything() -> None:
    lane = machine()
    lane.quiets = 1

    assert lane.next(NOW, entry(3, BARRIER), LAPSED) == Stand()


@pytest.mark.parametrize("active", [True, False])
def test_an_output_that_wants_it_is_open_without_events_while_its_lane_is_active(active: bool) -> None:
    assert isinstance(machine(active=active, open_idle=True).next(NOW, None, None), Open if active else Idle)


def test_after_trouble_the_lane_rests_and_asks_once_that_is_over() -> None:
    lane = machine()
    ended(lane, Trouble("503"))

    assert lane.next(NOW, entry(3), None) == Rest(NOW + 5.0)
    assert lane.next(NOW + 5.0, entry(3), None) == Open(drains=False)
    lane.poke()
    assert lane.next(NOW, entry(3), None) == Open(drains=False)


def test_a_destination_that_answered_when_it_was_last_asked_is_drained_at_once() -> None:
    lane = machine(active=False)
    ended(lane, None, answered=False)
    assert lane.next(NOW, entry(3), None) == Open(drains=False)
    ended(lane, None)
    assert lane.next(NOW, entry(3), None) == Open(drains=True)


def test_a_batch_fails_since_the_first_of_its_failures_in_a_row() -> None:
    lane = machine()
    for batch, now in ((7, NOW), (7, NOW + 9), (8, NOW + 10)):
        session = lane.begin()
        session.end(Trouble("a bug", batch=batch))
        lane.ended(now)
        assert lane.failing == (batch, NOW if batch == 7 else now)

    ended(lane, Trouble("503"))
    assert lane.failing is None


def test_room_for_dead_letters_ends_the_wait_of_a_lane_that_has_stopped_for_it() -> None:
    lane = machine()
    ended(lane, Trouble("full", code=Code.DEAD_LETTERS_FULL))

    assert lane.has_room(NOW)
    assert lane.next(NOW, entry(3), None) == Open(drains=False)
    ended(lane, Trouble("503"))
    assert not lane.has_room(NOW)


def test_a_lane_to_which_nothing_is_routed_opens_only_for_what_waits() -> None:
    lane = machine(open_idle=True)
    assert lane.next(NOW, None, None) == Open(drains=False)
    lane.is_fed = False

    assert lane.next(NOW, None, None) == Idle()
    assert lane.next(NOW, entry(3), None) == Open(drains=False)
