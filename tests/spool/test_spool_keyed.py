"""Keyed state in rows: what a newer version does to those that wait, whom it fences, and who is fed."""

from __future__ import annotations

import pytest

from shipper.sdk.errors import Outdated
from shipper.sdk.state import Change, Version, digest_of, epoch_of, place_of
from shipper.spool import dead_letters, drain_orders, keyed, queue, revisions
from shipper.spool.drain_orders import Order
from shipper.spool.keyed import Arrival
from shipper.spool.queue import NotActive
from shipper.spool.schema import SLOT
from shipper.spool.seal import Damaged
from shipper.values import Counts, Revision
from tests.spool.keyed import INPUT, LIMITS, NOW, Shelf, To

ONE, TWO, THREE = b'{"n":1}', b'{"n":2}', b'{"n":3}'
A, B = To("a"), To("b")
AGAIN = To("a", "k2")


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    shelf.activate(main=A)
    return shelf


def test_a_version_waits_on_every_lane_of_its_input_with_its_place_and_digest(shelf: Shelf) -> None:
    shelf.activate(main=A, other=B)
    kept = shelf.keep("k", ONE)

    for lane in shelf.lanes.values():
        (entry,) = shelf.entries(lane)
        batch = shelf.load(lane, entry)
        assert (entry.kind, entry.events, entry.revision) == (SLOT, 1, shelf.at)
        assert entry.size > len(ONE)
        assert batch.body == ONE + b"\n"
        assert batch.versions == (Version("", "things", "k", kept.place, digest_of(ONE), False),)
    assert kept.is_new
    assert epoch_of(kept.place) == shelf.epoch


def test_an_id_of_a_version_is_that_of_its_key_and_place(shelf: Shelf) -> None:
    first = shelf.keep("k", ONE)
    (entry,) = shelf.entries(shelf.lanes["main"])
    batch = shelf.load(shelf.lanes["main"], entry)

    assert (batch.origin, batch.seq) == (keyed.name_of("", "things", "k"), first.place)


def test_a_key_of_another_owner_is_own_where_its_place_is_given_here(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    (kept,) = shelf.admit(Change("things", "k", ONE, "program")).kept
    (entry,) = shelf.entries(lane)
    shelf.answer(lane, entry.seq, kept.place, kept.place + 5)
    (again,) = shelf.entries(lane)
    (version,) = shelf.load(lane, again).versions or ()
    assert version is not None
    assert version.place > kept.place + 5
    shelf.admit(Change("things", "k", None, "program"))
    shelf.deliver_all(lane)

    assert shelf.count("keyed") == 0


def test_the_parts_of_a_name_do_not_run_together() -> None:
    names = [keyed.name_of(*parts) for parts in (("a", "b", "c"), ("ab", "", "c"), ("", "ab", "c"), ("a", "", "bc"))]

    assert len(set(names)) == 4
    assert {len(name) for name in names} == {16}


def test_the_same_document_is_no_new_version(shelf: Shelf) -> None:
    first = shelf.keep("k", ONE)
    shelf.deliver_all(shelf.lanes["main"])

    assert shelf.keep("k", ONE) == first._replace(is_new=False)
    assert shelf.entries(shelf.lanes["main"]) == []


def test_what_is_not_there_is_not_deleted(shelf: Shelf) -> None:
    assert not shelf.keep("k", None).is_new
    assert shelf.count("keyed") == 0


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


def test_an_own_key_is_forgotten_when_its_deletion_is_settled_everywhere(shelf: Shelf) -> None:
    shelf.activate(main=A, other=B)
    shelf.keep("k", ONE)
    for lane in shelf.lanes.values():
        shelf.deliver_all(lane)
    shelf.keep("k", None)

    assert shelf.deliver_all(shelf.lanes["main"]) == [("k", None)]
    assert shelf.count("keyed") == 1
    assert shelf.deliver_all(shelf.lanes["other"]) == [("k", None)]
    assert shelf.count("keyed") == 0


def test_a_deletion_of_what_was_never_sent_is_sent_all_the_same(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.keep("k", None)

    assert shelf.waiting(lane) == [("k", None)]
    shelf.keep("k", TWO)
    assert shelf.waiting(lane) == [("k", TWO)]


# -- fences ------------------------------------------------------------------------------------------------------------


def test_a_place_fences_older_versions_and_others_at_the_same_place(shelf: Shelf) -> None:
    def given(document: bytes | None, place: int) -> tuple[int, bool, bool]:
        (kept,) = shelf.admit(Change("things", "k", document, "berlin", place)).kept
        return kept.place, kept.is_new, kept.fenced

    assert given(ONE, 7) == (7, True, False)
    assert given(ONE, 7) == (7, False, False)
    assert given(TWO, 7) == (7, False, True)
    assert given(TWO, 6) == (7, False, True)
    assert given(None, 7) == (7, False, True)
    assert given(ONE, 8) == (8, True, False)
    assert shelf.waiting(shelf.lanes["main"]) == [("k", ONE)]


def test_a_deletion_of_another_owner_stays_as_a_fence(shelf: Shelf) -> None:
    shelf.admit(Change("things", "k", None, "berlin", 7))
    shelf.deliver_all(shelf.lanes["main"])

    (late,) = shelf.admit(Change("things", "k", ONE, "berlin", 6)).kept

    assert (late.place, late.fenced, shelf.count("keyed")) == (7, True, 1)


def test_owners_have_keys_of_their_own(shelf: Shelf) -> None:
    shelf.admit(Change("things", "k", ONE, "berlin", 7), Change("things", "k", TWO, "paris", 3))
    shelf.keep("k", THREE)

    assert [document for _, document in shelf.waiting(shelf.lanes["main"])] == [ONE, TWO, THREE]


def test_each_start_gives_places_above_all_before(shelf: Shelf) -> None:
    before = shelf.keep("k", ONE).place
    assert keyed.begin(shelf.db, 0.0) == shelf.epoch + 1
    after = shelf.keep("k", TWO).place

    assert after > before
    assert epoch_of(after) == shelf.epoch + 1


def test_places_begin_above_those_of_a_lost_counter(shelf: Shelf) -> None:
    place = shelf.keep("k", ONE).place
    shelf.db.execute("DELETE FROM meta WHERE key LIKE 'place%'")

    assert keyed.begin(shelf.db, 0.0) > epoch_of(place)


def test_a_sequence_that_is_used_up_begins_an_epoch(shelf: Shelf) -> None:
    shelf.db.execute("UPDATE meta SET value = ? WHERE key = 'place_sequence'", (2**31 - 2,))

    assert shelf.keep("k", ONE).place == place_of(shelf.epoch, 2**31 - 1)
    assert shelf.keep("k", TWO).place == place_of(shelf.epoch + 1, 1)


def test_a_fence_has_the_last_word_of_this_process_sent_again_above_it(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    kept = shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    fence = place_of(shelf.epoch + 5, 3)

    shelf.answer(lane, entry.seq, kept.place, fence)

    (again,) = shelf.entries(lane)
    batch = shelf.load(lane, again)
    assert batch.body == ONE + b"\n"
    assert batch.versions is not None
    assert batch.versions[0] is not None
    assert batch.versions[0].place > fence
    assert again.seq > entry.seq
    assert shelf.keep("k", ONE) == kept._replace(place=batch.versions[0].place, is_new=False)


def test_a_deletion_is_sent_again_above_a_fence_too(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.deliver_all(lane)
    kept = shelf.keep("k", None)
    (entry,) = shelf.entries(lane)

    shelf.answer(lane, entry.seq, kept.place, kept.place + 1)

    assert shelf.deliver_all(lane) == [("k", None)]
    assert shelf.count("keyed") == 0


def test_a_fence_supersedes_what_an_earlier_process_or_another_owner_said(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    earlier = shelf.keep("k", ONE)
    shelf.admit(Change("things", "k", ONE, "berlin", 7))
    shelf.epoch = keyed.begin(shelf.db, NOW)
    first, second = shelf.entries(lane)

    fence = place_of(shelf.epoch + 7, 1)
    assert shelf.answer(lane, first.seq, earlier.place, fence) == []
    assert shelf.answer(lane, second.seq, 7, 8) == []
    assert shelf.entries(lane) == []
    assert shelf.keep("l", ONE).place > fence


def test_a_fence_at_the_end_of_all_places_is_not_gone_above(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    kept = shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)

    assert shelf.answer(lane, entry.seq, kept.place, 2**63 - 1) == []
    assert shelf.entries(lane) == []
    assert shelf.keep("k", TWO).is_new


# -- other lanes, and barriers -----------------------------------------------------------------------------------------


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


def test_a_version_below_a_barrier_is_superseded_by_one_above_it(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("k", ONE)
    shelf.activate(main=B)
    shelf.activate(main=A)
    shelf.keep("k", TWO, fronts={lane: 0})

    assert [entry.is_barrier for entry in shelf.entries(lane)] == [True, False]
    shelf.deliver_all(lane)
    assert shelf.settled() == Counts(accepted=1, superseded=1)


def test_what_another_input_says_of_a_key_is_a_new_version(shelf: Shelf) -> None:
    """It was renamed, perhaps, and goes to other outputs since."""
    first = shelf.keep("k", ONE)
    shelf.admit(Change("things", "k", ONE, "berlin", 7))
    shelf.activate({"state/renamed": ("other",)}, main=A, other=B)
    shelf.lanes = {"other": shelf.lanes["other"]}

    own, other = shelf.admit(
        Change("things", "k", ONE), Change("things", "k", ONE, "berlin", 7), input="state/renamed"
    ).kept

    assert (own.is_new, own.place > first.place) == (True, True)
    assert (other.place, other.is_new, other.fenced) == (7, False, False)
    assert shelf.waiting(shelf.lanes["other"]) == [("k", ONE), ("k", ONE)]
    shelf.activate({"state/renamed": ("other",)}, other=To("c"))
    assert len(shelf.waiting(shelf.lanes["other"])) == 2


def test_nothing_enters_under_another_revision(shelf: Shelf) -> None:
    arrival = Arrival(Revision(0, 9), INPUT, [1], [Change("things", "k", ONE)], {"at": b"1"})

    with pytest.raises(NotActive):
        keyed.keep(shelf.db, shelf.sealer, NOW, arrival)
    assert queue.positions(shelf.db, INPUT) == {}


def test_positions_are_stored_with_versions_if_they_are_as_expected(shelf: Shelf) -> None:
    lanes = list(shelf.lanes.values())
    keyed.keep(shelf.db, shelf.sealer, NOW, Arrival(shelf.at, INPUT, lanes, (), {"at": b"1"}, {"at": None}))

    changes = [Change("things", "k", ONE)]
    with pytest.raises(Outdated):
        keyed.keep(shelf.db, shelf.sealer, NOW, Arrival(shelf.at, INPUT, lanes, changes, {"at": b"3"}, {"at": b"2"}))
    assert queue.positions(shelf.db, INPUT) == {"at": b"1"}
    assert shelf.count("keyed") == 0


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


# -- orders ------------------------------------------------------------------------------------------------------------


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


# -- damage ------------------------------------------------------------------------------------------------------------


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
    keyed.restore(shelf.db, shelf.at)

    assert shelf.waiting(lane) == [("k", ONE)]
