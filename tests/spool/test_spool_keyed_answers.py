"""Awaited versions: each has the worst answer of the lanes that it was admitted for, until there is a newer one."""

from __future__ import annotations

from collections import Counter

import pytest

from shipper.sdk.answers import Outcome, Ranked
from shipper.sdk.state import Change, Kept, answers_key
from shipper.spool import audit, awaited, doubt, drain_orders, queue, waiting
from shipper.spool.awaited import Answered
from shipper.spool.drain_orders import Order
from shipper.spool.queue import Settlement
from shipper.spool.report import Report
from shipper.spool.schema import SLOT
from shipper.values import Counts
from tests.spool.keyed import INPUT, LIMITS, NOW, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'


@pytest.fixture
def shelf() -> Shelf:
    """Two outputs."""
    made = Shelf()
    made.activate(main=To(), other=To("b"))
    return made


def keep(shelf: Shelf, place: int, document: bytes | None = ONE, *, awaits: bool = True, **how: object) -> Kept:
    change = Change("things", "a", document, "berlin", place)
    (kept,) = shelf.admit(change, awaited=awaits, **how).kept  # type: ignore[arg-type]
    return kept


def key(place: int) -> str:
    return answers_key("berlin", "things", "a", place)


def said(shelf: Shelf, place: int) -> dict[str, bytes | None]:
    return awaited.answers(shelf.db, INPUT, [key(place)])


def settle(shelf: Shelf, output: str, **counts: int) -> Answered | None:
    """Note the answer for the first slot of a lane."""
    lane = shelf.lanes[output]
    change = shelf.settle(lane, shelf.entries(lane)[0].seq, **counts)
    assert change is not None
    return change.answered


def order(shelf: Shelf, name: drain_orders.Name, source: int, target: int | None = None) -> list[Answered | None]:
    """Carry an order out; what was answered by it."""
    standing = drain_orders.place(shelf.db, Order(name, source, 1 << 40, target))
    told: list[Answered | None] = []
    while not (step := drain_orders.step(shelf.db, shelf.sealer, standing, LIMITS, NOW)).done:
        told += [change.answered for _, change in step.settled]
    return told


def test_a_version_is_answered_with_the_worst_of_its_outputs_when_the_last_one_has_settled_it(shelf: Shelf) -> None:
    kept = keep(shelf, 5)
    first = settle(shelf, "main", dead_letter=1)
    before = said(shelf, 5)
    last = settle(shelf, "other", duplicate=1)

    assert (kept.is_new, kept.awaited, kept.final) == (True, True, None)
    assert (first, last) == (None, Answered(INPUT, key(5)))
    assert (before, said(shelf, 5)) == ({key(5): None}, {key(5): bytes([Ranked.DEAD_LETTER])})


def test_a_version_that_comes_again_has_the_answer_of_the_first_time(shelf: Shelf) -> None:
    keep(shelf, 5)
    open = keep(shelf, 5)
    settle(shelf, "main", dropped=1)
    settle(shelf, "other")
    final = [keep(shelf, 5, awaits=awaits) for awaits in (True, False)]

    assert (open.is_new, open.awaited, open.final) == (False, True, None)
    assert [(kept.is_new, kept.awaited, kept.final) for kept in final] == [(False, False, Ranked.DROPPED)] * 2
    assert shelf.entries(shelf.lanes["main"]) == []


def test_what_nobody_awaits_has_no_row(shelf: Shelf) -> None:
    keep(shelf, 5, awaits=False)
    settle(shelf, "main", dropped=1)

    assert shelf.count("awaited") == 0
    assert keep(shelf, 5, awaits=False) == keep(shelf, 5, awaits=False)._replace(awaited=False, final=None)


def test_without_outputs_a_version_is_answered_at_once() -> None:
    shelf = Shelf()
    shelf.activate({INPUT: ()})

    assert keep(shelf, 5).final is Ranked.DELIVERED


@pytest.mark.parametrize("is_handed_out", [False, True])
def test_the_answer_for_an_older_version_is_not_that_of_the_newer_one(shelf: Shelf, is_handed_out: bool) -> None:
    keep(shelf, 5)
    main = shelf.lanes["main"]
    (old,) = shelf.entries(main)
    keep(shelf, 6, TWO, fronts=dict.fromkeys(shelf.lanes.values(), old.seq if is_handed_out else 0))
    late = shelf.settle(main, old.seq, 5)
    settle(shelf, "other")

    assert late is None or late.is_renewed
    assert (said(shelf, 5), said(shelf, 6)) == ({}, {key(6): None})
    assert settle(shelf, "main") == Answered(INPUT, key(6))
    assert shelf.count("awaited") == 1


def test_an_older_version_of_a_retired_output_is_not_awaited_once_there_is_a_newer_one(shelf: Shelf) -> None:
    retired = shelf.lanes["other"]
    keep(shelf, 5)
    shelf.activate(main=To())
    keep(shelf, 6, TWO)
    (copy,) = [entry for entry in shelf.entries(retired) if entry.kind == SLOT]

    assert settle(shelf, "main") == Answered(INPUT, key(6))
    change = shelf.settle(retired, copy.seq, dropped=1)
    assert change is not None
    assert change.answered is None
    assert said(shelf, 6) == {key(6): b"\0"}


def test_a_newer_version_that_nobody_awaits_ends_the_row_of_the_older_one(shelf: Shelf) -> None:
    keep(shelf, 5)
    keep(shelf, 6, TWO, awaits=False)

    assert shelf.count("awaited") == 0
    assert settle(shelf, "main") is None


def test_orders_answer_as_destinations_do(shelf: Shelf) -> None:
    keep(shelf, 5)
    settle(shelf, "main")
    lane = shelf.lanes["other"]
    shelf.activate(main=To())

    assert order(shelf, "drop", lane) == [Answered(INPUT, key(5))]
    assert said(shelf, 5) == {key(5): bytes([Ranked.DROPPED])}


def test_what_moves_to_another_lane_is_open_until_it_is_settled_there(shelf: Shelf) -> None:
    keep(shelf, 5)
    settle(shelf, "main")
    retired = shelf.lanes["other"]
    shelf.activate({INPUT: ("main",)}, main=To(), other=To("c"))

    assert order(shelf, "forward", retired, shelf.lanes["other"]) == []
    assert said(shelf, 5) == {key(5): None}
    assert settle(shelf, "other", dead_letter=1) == Answered(INPUT, key(5))
    assert said(shelf, 5) == {key(5): bytes([Ranked.DEAD_LETTER])}


def test_of_two_slots_that_become_one_the_answer_of_that_one_counts(shelf: Shelf) -> None:
    keep(shelf, 5)
    settle(shelf, "main")
    retired, before = shelf.lanes["other"], said(shelf, 5)
    shelf.activate(main=To(), other=To("c"))  # which is fed with the version too
    told = order(shelf, "forward", retired, shelf.lanes["other"])

    assert before == {key(5): None}
    assert (told, said(shelf, 5)) == ([None], {key(5): None})
    assert settle(shelf, "other", dropped=1) == Answered(INPUT, key(5))
    assert said(shelf, 5) == {key(5): bytes([Ranked.DROPPED])}


def test_an_awaited_slot_that_gives_way_passes_that_on(shelf: Shelf) -> None:
    keep(shelf, 5, awaits=False)
    settle(shelf, "main")
    retired = shelf.lanes["other"]
    shelf.activate(main=To(), other=To("c"))
    keep(shelf, 5)
    settle(shelf, "main", duplicate=1)
    told = order(shelf, "forward", retired, shelf.lanes["other"])

    assert (told, said(shelf, 5)) == ([None], {key(5): None})
    assert settle(shelf, "other", dropped=1) == Answered(INPUT, key(5))
    assert said(shelf, 5) == {key(5): bytes([Ranked.DROPPED])}


def test_a_dead_letter_that_is_requeued_changes_no_answer(shelf: Shelf) -> None:
    keep(shelf, 5)
    for output in shelf.lanes:
        settle(shelf, output, dead_letter=1)
    id, place, size = shelf.db.execute("SELECT id, place, bytes FROM keyed").fetchone()
    waiting.insert(shelf.db, NOW, shelf.at, shelf.lanes["main"], (id, place, size))

    assert keep(shelf, 5).final is Ranked.DEAD_LETTER
    assert settle(shelf, "main") is None
    assert said(shelf, 5) == {key(5): bytes([Ranked.DEAD_LETTER])}


def test_a_version_whose_answers_are_lost_is_sent_once_more_when_it_comes_again(shelf: Shelf) -> None:
    keep(shelf, 5)
    settle(shelf, "main")
    shelf.db.execute("DELETE FROM todo WHERE lane = ?", (shelf.lanes["other"],))
    Report(lost=Counter(todo=1)).store(shelf.db)
    audit.audit(shelf.db, shelf.sealer)
    doubt.act(shelf.db)
    gone = said(shelf, 5)
    again = keep(shelf, 5)

    assert (gone, again.is_new, again.awaited) == ({}, False, True)
    for output in shelf.lanes:
        assert len(shelf.entries(shelf.lanes[output])) == 1
    settle(shelf, "main", duplicate=1)
    assert settle(shelf, "other") == Answered(INPUT, key(5))
    assert said(shelf, 5) == {key(5): bytes([Ranked.DUPLICATE])}


def test_a_version_that_cannot_be_read_is_answered_as_damaged(shelf: Shelf) -> None:
    keep(shelf, 5)
    settle(shelf, "main")
    lane = shelf.lanes["other"]
    change = shelf.settle(lane, shelf.entries(lane)[0].seq, damaged=1)

    assert change is not None
    assert change.answered == Answered(INPUT, key(5))
    assert said(shelf, 5) == {key(5): bytes([Ranked.DAMAGED])}


def test_the_answer_of_a_version_is_not_looked_for_by_its_place_in_the_request(shelf: Shelf) -> None:
    """What it was sent with has places of its own there."""
    keep(shelf, 5)
    settle(shelf, "main")
    lane = shelf.lanes["other"]
    answers = {17: Outcome.REJECTED}
    settlement = Settlement(Counts(dead_letter=1), answers=answers)
    queue.settle(shelf.db, shelf.sealer, lane, shelf.entries(lane)[0].seq, settlement, LIMITS, NOW)

    assert said(shelf, 5) == {key(5): bytes([Ranked.DEAD_LETTER])}
