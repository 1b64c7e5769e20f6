"""Places above those of a destination: the last word of this process arrives, and no other."""

from __future__ import annotations

from shipper.sdk.state import Change, place_of
from shipper.spool import lifting, places
from shipper.spool.queue import Settlement
from shipper.values import Counts
from tests.spool.keyed import NOW, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'
A = To("a")


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
    shelf.epoch = places.begin(shelf.db, NOW)
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


def test_a_fence_of_what_does_not_open_is_not_gone_above(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    kept = shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    shelf.db.execute("UPDATE keyed SET body = x'00'")

    assert shelf.answer(lane, entry.seq, kept.place, kept.place + 1) == []


def test_an_answer_without_a_fence_sends_nothing_again(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    kept = shelf.keep("k", ONE)
    (entry,) = shelf.entries(lane)
    delivered = Settlement(Counts(delivered=1), place=kept.place)

    assert lifting.reissue(shelf.db, shelf.sealer, NOW, lane, entry.seq, delivered, shelf.epoch) == []
