"""What waits to be committed: who goes first, who waits for company, and who waits for room."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from shipper.spool.inbox import GROUP_LIMIT, PATIENT_SECONDS, Inbox, Operation


def operation(**kind: Any) -> Operation:
    return Operation(run, **kind)


def run(db: sqlite3.Connection) -> None:
    """Nothing."""


def filled(*operations: Operation) -> Inbox:
    inbox = Inbox()
    for each in operations:
        inbox.put(each)
    return inbox


def test_urgent_operations_go_first_and_patient_ones_last() -> None:
    patient, ordinary, urgent = operation(patience=PATIENT_SECONDS), operation(), operation(urgent=True)
    inbox = filled(patient, ordinary, urgent)

    assert inbox.receive(None)
    assert inbox.claim() == [urgent, ordinary, patient]


def test_a_patient_operation_goes_with_the_next_one_that_comes() -> None:
    patient, ordinary = operation(patience=PATIENT_SECONDS), operation()
    inbox = filled(patient)

    assert inbox.receive(None)
    assert inbox.claim() == []
    inbox.put(ordinary)
    assert inbox.receive(inbox.patience(None))
    assert inbox.claim() == [ordinary, patient]


def test_patient_operations_alone_wait_for_a_few_milliseconds_only() -> None:
    first, second = operation(patience=PATIENT_SECONDS), operation(patience=PATIENT_SECONDS)
    inbox, begun = filled(first), time.monotonic()

    assert inbox.receive(None)
    inbox.put(second)
    group: list[Operation] = []
    while not group:
        inbox.receive(inbox.patience(None))
        group = inbox.claim()
    assert group == [first, second]
    assert time.monotonic() - begun >= PATIENT_SECONDS


def test_the_least_patience_of_all_counts() -> None:
    patient, less = operation(patience=3600.0), operation(patience=0.001)
    inbox = filled(patient, less)

    assert inbox.receive(None)
    assert 0 <= (inbox.patience(None) or 0) <= 0.001
    while not (group := inbox.claim()):
        inbox.receive(inbox.patience(None))
    assert group == [patient, less]


def test_a_closed_inbox_gives_out_patient_operations_at_once() -> None:
    patient = operation(patience=PATIENT_SECONDS)
    inbox = filled(patient)
    inbox.close()

    assert inbox.receive(inbox.patience(None))
    assert inbox.claim() == [patient]
    assert inbox.patience(None) == 0


def test_nothing_that_came_for_so_long_is_told() -> None:
    assert not Inbox().receive(0.001)
    assert Inbox().receive(0)


def test_a_wait_that_is_over_when_it_begins_ends() -> None:
    """Not for ever, as with a queue that reckons what is left of its wait, and takes less than nothing for no end."""
    assert not any(Inbox().receive(1e-9) for _ in range(20_000))


def test_a_group_has_a_bound() -> None:
    inbox = filled(*(operation() for _ in range(GROUP_LIMIT + 1)))

    inbox.receive(None)
    assert [len(inbox.claim()), len(inbox.claim()), len(inbox.claim())] == [GROUP_LIMIT, 1, 0]


def test_what_needs_room_waits_until_there_is_some_and_keeps_its_order() -> None:
    first, second, third = (operation(needs_room=True) for _ in range(3))
    other = operation()
    inbox = filled(first, other, second)
    inbox.receive(None)
    group = inbox.claim()
    inbox.full = True

    assert inbox.park(group) == [other]
    inbox.put(third)
    inbox.receive(None)
    assert inbox.claim() == []
    assert inbox.has_parked
    inbox.full = False
    assert inbox.unpark()
    assert inbox.claim() == [first, second, third]
    assert not inbox.has_parked


def test_only_what_needs_room_and_was_not_claimed_can_be_withdrawn() -> None:
    ordinary, waiting, claimed = operation(), operation(needs_room=True), operation(needs_room=True)
    inbox = filled(claimed)
    inbox.receive(None)
    inbox.claim()
    inbox.put(waiting)
    inbox.put(ordinary)

    assert [inbox.withdraw(each) for each in (ordinary, waiting, claimed)] == [False, True, False]
    inbox.receive(None)
    assert inbox.left() == [ordinary]
    assert inbox.claim() == [ordinary]
