"""The cut and keyed state: who is fed, and whose keys are deleted."""

from __future__ import annotations

from shipper.spool import revisions
from shipper.values import Counts
from tests.spool.keyed import INPUT, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'
A, B = To("a"), To("b")
AGAIN = To("a", "k2")


def test_a_moved_output_is_fed_with_every_key_and_a_rotated_one_with_none(shelf: Shelf) -> None:
    for n in range(5):
        shelf.keep(f"k{n}", ONE)
    shelf.deliver_all(shelf.lanes["main"])

    rotated = shelf.activate(main=AGAIN)
    assert rotated.fed == []
    assert shelf.entries(shelf.lanes["main"]) == []

    moved = shelf.activate(main=B)
    assert [(fed.lane, fed.events) for fed in moved.fed] == [(shelf.lanes["main"], 5)]
    assert shelf.waiting(shelf.lanes["main"]) == [(f"k{n}", ONE) for n in range(5)]
    assert [entry.revision for entry in shelf.entries(shelf.lanes["main"])] == [shelf.at] * 5


def test_an_added_output_is_fed_and_the_others_are_not(shelf: Shelf) -> None:
    shelf.keep("k", ONE)
    shelf.deliver_all(shelf.lanes["main"])
    shelf.activate(main=A, other=B)

    assert shelf.waiting(shelf.lanes["main"]) == []
    assert shelf.waiting(shelf.lanes["other"]) == [("k", ONE)]


def test_an_output_is_fed_with_the_keys_of_an_input_that_is_routed_to_it(shelf: Shelf) -> None:
    shelf.keep("k", ONE)
    shelf.deliver_all(shelf.lanes["main"])
    shelf.activate({INPUT: ()}, main=A)
    assert shelf.entries(shelf.lanes["main"]) == []

    shelf.activate({"state/other": ("main",)}, main=A)
    assert shelf.entries(shelf.lanes["main"]) == []

    shelf.activate({INPUT: ("main",)}, main=A)
    assert shelf.waiting(shelf.lanes["main"]) == [("k", ONE)]


def test_a_lane_that_is_active_again_gets_the_current_versions_in_place_of_its_old_ones(shelf: Shelf) -> None:
    first = shelf.lanes["main"]
    shelf.keep("changed", ONE)
    shelf.keep("same", ONE)
    shelf.activate(main=B)
    shelf.keep("changed", TWO)
    shelf.keep("new", ONE)

    cut = shelf.activate(main=A)

    assert shelf.lanes["main"] == first
    assert [(fed.lane, fed.events, len(fed.gone)) for fed in cut.fed] == [(first, 2, 1)]
    assert shelf.waiting(first) == [("same", ONE), ("changed", TWO), ("new", ONE)]
    shelf.deliver_all(first)
    assert shelf.settled() == Counts(accepted=2, delivered=1, superseded=1)


def test_the_keys_of_an_input_that_is_removed_stay_or_are_deleted_as_it_wanted(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("stays", ONE)
    shelf.deliver_all(lane)
    assert shelf.activate({}, main=A).retracted == []
    assert shelf.entries(lane) == []

    shelf.activate(retracts=True, main=A)
    shelf.keep("goes", ONE)
    shelf.keep("gone", None)
    retracted = shelf.activate({}, main=AGAIN).retracted

    assert {moved.lane for moved in retracted} == {lane}
    assert sorted(shelf.waiting(lane)) == [("goes", None), ("stays", None)]
    shelf.deliver_all(lane)
    assert shelf.settled() == Counts(accepted=2, delivered=2)
    assert shelf.count("keyed") == 0


def test_an_input_that_is_routed_nowhere_is_not_removed(shelf: Shelf) -> None:
    shelf.activate(retracts=True, main=A)
    shelf.keep("k", ONE)
    assert shelf.activate({INPUT: ()}, retracts=True, main=A).retracted == []
    shelf.deliver_all(shelf.lanes["main"])

    shelf.activate({}, main=A)
    assert shelf.count("keyed") == 0


def test_a_key_that_does_not_open_is_not_deleted_with_its_input(shelf: Shelf) -> None:
    shelf.activate(retracts=True, main=A)
    shelf.keep("k", ONE)
    shelf.db.execute("UPDATE keyed SET body = x'00'")

    assert shelf.activate({}, main=A).retracted == []


def test_a_lane_of_keyed_state_knows_whether_an_input_is_routed_to_it() -> None:
    shelf = Shelf()
    cut = shelf.activate({INPUT: ("one",)}, one=To("a"), two=To("b"))

    assert [row.is_fed for row in cut.lanes] == [True, False]
    assert revisions.lanes(shelf.db, shelf.sealer) == cut.lanes
