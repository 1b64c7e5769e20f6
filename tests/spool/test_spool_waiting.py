"""Slots of keyed state: what a newer version, an order and damage do to those that wait."""

from __future__ import annotations

import pytest

from shipper.sdk.event import Batch
from shipper.spool import dead_letters, drain_orders, revisions, slots, waiting
from shipper.spool.drain_orders import Order
from shipper.spool.schema import SLOT
from shipper.spool.seal import Damaged
from shipper.values import Counts
from tests.spool.keyed import LIMITS, NOW, Shelf, To

ONE, TWO, THREE = b'{"n":1}', b'{"n":2}', b'{"n":3}'
A, B = To("a"), To("b")
AGAIN = To("a", "k2")


def test_many_updates_of_a_key_leave_one_slot_which_keeps_its_turn(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("hot", ONE)
    shelf.keep("cold", ONE)
    places = [shelf.keep("hot", b'{"n":%d}' % n, fronts={lane: 0}).place for n in range(2, 100)]

    assert shelf.waiting(lane) == [("hot", b'{"n":99}'), ("cold", ONE)]
    assert places == sorted(places)
    assert shelf.count("slot") == shelf.count("todo") == 2


def test_what_was_handed_out_is_superseded_by_a_slot_at_the_end(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    first = shelf.keep("k", ONE)
    shelf.keep("other", ONE)
    (handed_out, _) = shelf.entries(lane)
    shelf.keep("k", TWO, fronts={lane: handed_out.seq})

    assert shelf.waiting(lane) == [("other", ONE), ("k", TWO)]
    assert shelf.settle(lane, handed_out.seq, first.place) is None
    assert shelf.waiting(lane) == [("other", ONE), ("k", TWO)]


def test_an_answer_for_a_version_that_was_replaced_in_its_slot_settles_nothing(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    first = shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    second = shelf.keep("k", TWO, fronts={lane: 0})

    settled = shelf.settle(lane, entry.seq, first.place)
    assert settled is not None
    assert settled.is_renewed
    assert shelf.waiting(lane) == [("k", TWO)]

    settled = shelf.settle(lane, entry.seq, second.place)
    assert settled is not None
    assert not settled.is_renewed
    assert shelf.entries(lane) == []
    assert shelf.count("slot") == 0
    assert shelf.count("keyed") == 1


def test_a_newer_version_under_another_credential_supersedes_what_a_retired_lane_holds(shelf: Shelf) -> None:
    old = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.keep("untouched", ONE)
    shelf.activate(main=AGAIN)
    shelf.keep("k", TWO)

    assert shelf.waiting(old) == [("untouched", ONE)]
    assert shelf.deliver_all(old) == [("untouched", ONE)]
    shelf.deliver_all(old)
    assert shelf.settled() == Counts(accepted=2, delivered=1, superseded=1)
    assert shelf.waiting(shelf.lanes["main"]) == [("k", TWO)]


def test_a_retired_lane_of_another_destination_delivers_what_stood_there(shelf: Shelf) -> None:
    old = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.activate(main=B)
    shelf.keep("k", TWO)
    shelf.keep("k", THREE)

    assert shelf.waiting(old) == [("k", ONE)]
    assert shelf.waiting(shelf.lanes["main"]) == [("k", THREE)]
    shelf.deliver_all(old)
    assert shelf.settled() == Counts(accepted=1, delivered=1)


def test_a_version_below_a_barrier_is_superseded_by_one_above_it(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.activate(main=B)
    shelf.activate(main=A)
    shelf.keep("k", TWO, fronts={lane: 0})

    assert [entry.is_barrier for entry in shelf.entries(lane)] == [True, False]
    shelf.deliver_all(lane)
    assert shelf.settled() == Counts(accepted=1, superseded=1)


def order(shelf: Shelf, name: drain_orders.Name, lane: int, target: int | None = None) -> None:
    upto = max(entry.seq for entry in shelf.entries(lane) if entry.is_barrier)
    placed = drain_orders.place(shelf.db, Order(name, lane, upto, target))
    while not drain_orders.step(shelf.db, shelf.sealer, placed, LIMITS, NOW).done:
        pass


def test_an_order_drops_versions_and_counts_them(shelf: Shelf) -> None:
    old = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.keep("l", ONE)
    shelf.activate(main=B)
    order(shelf, "drop", old)
    shelf.deliver_all(old)

    assert shelf.settled() == Counts(accepted=2, dropped=2)
    assert len(shelf.waiting(shelf.lanes["main"])) == 2


def test_an_order_writes_versions_to_the_dead_letters_with_their_keys(shelf: Shelf) -> None:
    old = shelf.lanes["main"]
    kept = shelf.keep("k", ONE)
    shelf.activate(main=B)
    order(shelf, "dead_letter", old)
    shelf.deliver_all(old)
    (letter,) = dead_letters.page(shelf.db, shelf.sealer, 0, 10)

    assert shelf.settled() == Counts(accepted=1, dead_letter=1)
    assert letter["state"] == {
        "owner": "",
        "collection": "things",
        "key": "k",
        "place": kept.place,
        "deleted": False,
    }


def test_a_rebind_moves_versions_to_the_lane_of_the_other_credential(shelf: Shelf) -> None:
    old = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.keep("changed", ONE)
    shelf.activate(main=AGAIN)
    new = shelf.lanes["main"]
    shelf.keep("changed", TWO)
    order(shelf, "rebind", old, new)
    shelf.deliver_all(old)

    assert shelf.waiting(new) == [("k", ONE), ("changed", TWO)]
    shelf.deliver_all(new)
    assert shelf.settled() == Counts(accepted=2, delivered=1, superseded=1)


def test_a_forward_gives_no_version_to_a_destination_that_was_fed_with_it_or_with_a_newer_one(shelf: Shelf) -> None:
    old = shelf.lanes["main"]
    for key in ("waits", "was delivered", "changed", "changed and delivered"):
        shelf.keep(key, ONE)
    shelf.activate(main=B)
    new = shelf.lanes["main"]
    shelf.keep("changed", TWO)
    shelf.keep("changed and delivered", TWO)
    for entry in shelf.entries(new):
        if shelf.load(new, entry).versions[0].key.endswith("delivered"):  # type: ignore[index,union-attr]
            shelf.settle(new, entry.seq)
    order(shelf, "forward", old, new)
    shelf.deliver_all(old)

    assert shelf.waiting(new) == [("waits", ONE), ("changed", TWO)]
    assert shelf.settled() == Counts(accepted=3, duplicate=1, superseded=2), "a version that waits has its answer"
    shelf.deliver_all(new)
    assert shelf.settled() == Counts(accepted=4, delivered=1, duplicate=1, superseded=2)


def test_a_version_that_was_moved_or_changed_does_not_open(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.db.execute("UPDATE slot SET place = place + 1")
    shelf.db.execute("UPDATE keyed SET place = place + 1")

    with pytest.raises(Damaged):
        shelf.load(lane, shelf.entries(lane)[0])


@pytest.mark.parametrize("table", ["keyed", "slot"])
def test_a_version_that_was_lost_is_settled_as_damaged(shelf: Shelf, table: str) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    shelf.activate(main=B)
    shelf.db.execute(f"DELETE FROM {table}")

    with pytest.raises(Damaged):
        shelf.load(lane, entry)
    shelf.settle(lane, entry.seq, damaged=1)
    assert revisions.settle_barrier(shelf.db, lane, shelf.entries(lane)[0].seq) == "gone"
    assert shelf.settled() == Counts(accepted=1, damaged=1)


def test_a_slot_that_is_gone_holds_nothing(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    shelf.settle(lane, entry.seq)

    assert shelf.load(lane, entry).count == 0


def test_an_entry_that_was_lost_comes_back_for_its_slot(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.db.execute("DELETE FROM todo")
    waiting.restore(shelf.db, shelf.at)

    assert shelf.waiting(lane) == [("k", ONE)]


def test_where_an_older_version_waits_it_gives_way_to_the_one_that_moves(shelf: Shelf) -> None:
    first = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.activate(main=B)
    second = shelf.lanes["main"]
    shelf.activate(main=A)
    shelf.keep("k", TWO)
    (newer,) = (entry for entry in shelf.entries(first) if entry.kind == SLOT)

    answer, gave_way = waiting.make_way(shelf.db, first, second, newer.seq)

    assert answer is None
    assert gave_way is not None
    assert shelf.waiting(second) == []


def test_nothing_gives_way_to_a_slot_that_was_lost(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    shelf.db.execute("DELETE FROM slot")

    assert waiting.make_way(shelf.db, lane, lane + 1, entry.seq) == (None, None)


@pytest.mark.parametrize("packed", [b"x", Batch.documents([ONE]).pack(), Batch.documents([]).pack()])
def test_what_is_sealed_in_place_of_a_version_and_is_none_does_not_open(shelf: Shelf, packed: bytes) -> None:
    sealed = shelf.sealer.seal("keyed", slots._row(b"name", 1), 0, 0, packed)

    with pytest.raises(Damaged):
        slots.unseal(shelf.sealer, b"name", 1, sealed)
