"""Keyed state in rows: which versions are new, and whom a place fences."""

from __future__ import annotations

import pytest

from shipper.sdk.errors import Outdated
from shipper.sdk.state import Change, Version, digest_of, epoch_of
from shipper.spool import keyed, queue, slots
from shipper.spool.keyed import Arrival
from shipper.spool.queue import NotActive
from shipper.spool.schema import SLOT
from shipper.values import Revision
from tests.spool.keyed import INPUT, NOW, Shelf, To

ONE, TWO, THREE = b'{"n":1}', b'{"n":2}', b'{"n":3}'
A, B = To("a"), To("b")


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

    assert (batch.origin, batch.seq) == (slots.name_of("", "things", "k"), first.place)


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
    names = [slots.name_of(*parts) for parts in (("a", "b", "c"), ("ab", "", "c"), ("", "ab", "c"), ("a", "", "bc"))]

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
