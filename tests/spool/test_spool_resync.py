"""What is read of keyed state to compare it, what is sent again, and what an owner may have."""

from __future__ import annotations

import pytest

from shipper.sdk.state import Change, Mark, Quota, Version, digest_of, place_of, point_of
from shipper.spool import keyed, resync
from shipper.spool.keyed import Arrival
from tests.spool.keyed import INPUT, NOW, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    shelf.activate(main=To("a"))
    return shelf


def point(key: str) -> int:
    return point_of("things", key)


def put(shelf: Shelf, owner: str, key: str, document: bytes | None, place: int, quota: Quota | None = None) -> bool:
    """Whether it was let in."""
    change = Change("things", key, document, owner, place)
    arrival = Arrival(shelf.at, INPUT, list(shelf.lanes.values()), [change], quota=quota)
    (kept,) = keyed.keep(shelf.db, shelf.sealer, NOW, arrival).kept
    return not kept.is_full


def test_the_marks_of_a_lane_are_the_keys_of_its_inputs(shelf: Shelf) -> None:
    first, _ = shelf.keep("a", ONE), shelf.keep("b", ONE)
    last = shelf.keep("b", None)
    put(shelf, "berlin", "c", TWO, 7)

    assert resync.inputs_of(shelf.db, shelf.lanes["main"]) == [INPUT]
    assert resync.of_input(shelf.db, INPUT, 0) == (
        [
            Mark("", point("a"), first.place, digest_of(ONE), False),
            Mark("", point("b"), last.place, digest_of(None), True),
            Mark("berlin", point("c"), 7, digest_of(TWO), False),
        ],
        None,
    )


def test_the_marks_of_an_owner_are_read_page_by_page(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "PAGE", 3)
    for place, key in enumerate("abcdefghij", 1):
        put(shelf, "berlin", key, ONE, place)
    put(shelf, "paris", "k", ONE, 1)
    found, after = resync.of_owner(shelf.db, "berlin", None)
    while after is not None:
        more, after = resync.of_owner(shelf.db, "berlin", after)
        found += more

    assert {mark.point: mark.place for mark in found} == {point(key): n for n, key in enumerate("abcdefghij", 1)}
    assert len(found) == 10
    by_input, at = resync.of_input(shelf.db, INPUT, 0)
    assert len(by_input) == 3
    assert at is not None


@pytest.mark.parametrize("page", range(1, 8))
def test_the_owners_below_one_are_known_by_the_slash(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(resync, "PAGE", page)
    below = ("berlin/", "berlin/mitte", "berlin/mitte/x")
    for owner in ("berlin", *below, "berlin-2", "berlin.", "berlin0", "berli", "paris/berlin"):
        put(shelf, owner, "j", ONE, 1)
        put(shelf, owner, "k", ONE, 1)
    found, after = resync.of_owner(shelf.db, "berlin", None)
    while after is not None:
        more, after = resync.of_owner(shelf.db, "berlin", after)
        found += more

    assert sorted((mark.owner, mark.point) for mark in found) == sorted(
        (owner, point(key)) for owner in ("berlin", *below) for key in "jk"
    )


def test_versions_are_read_by_owner_and_point(shelf: Shelf) -> None:
    put(shelf, "berlin", "a", ONE, 5)
    put(shelf, "paris", "a", TWO, 6)
    put(shelf, "berlin", "gone", None, 7)
    keys = [("berlin", point("a")), ("berlin", point("gone")), ("berlin", point("unknown"))]

    assert resync.versions(shelf.db, shelf.sealer, keys) == [Version("berlin", "things", "a", 5, digest_of(ONE), False)]


def test_what_is_sent_again_waits_once_and_in_its_turn(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("a", ONE)
    shelf.deliver_all(lane)
    shelf.keep("b", ONE)
    moved = resync.send_again(shelf.db, NOW, lane, [("", point("a")), ("", point("b")), ("", point("no"))])

    assert [move.lane for move in moved] == [lane]
    assert shelf.waiting(lane) == [("b", ONE), ("a", ONE)]


def test_nothing_is_sent_again_to_a_lane_that_its_input_is_not_routed_to(shelf: Shelf) -> None:
    shelf.keep("a", ONE)
    lane = shelf.lanes["main"]
    shelf.deliver_all(lane)
    shelf.activate({}, main=To("a"))
    shelf.deliver_all(lane)

    assert resync.send_again(shelf.db, NOW, lane, [("", point("a"))]) == []


def test_a_surplus_key_is_deleted_above_the_place_that_it_has_there(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    there = Version("", "things", "a", place_of(shelf.epoch, 900), digest_of(ONE), False)
    resync.delete(shelf.db, shelf.sealer, NOW, lane, [there])
    (entry,) = shelf.entries(lane)
    (version,) = shelf.load(lane, entry).versions or ()

    assert version is not None
    assert (version.key, version.deleted) == ("a", True)
    assert version.place > there.place
    assert shelf.keep("b", ONE).place > version.place
    shelf.deliver_all(lane)
    assert list(shelf.db.execute("SELECT deleted FROM keyed")) == [(0,)]


def test_a_surplus_key_that_is_here_is_sent_again_and_that_of_another_owner_left(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("a", ONE)
    shelf.deliver_all(lane)
    surplus = [Version(owner, "things", "a", 1, digest_of(TWO), False) for owner in ("", "paris")]
    resync.delete(shelf.db, shelf.sealer, NOW, lane, surplus)

    assert shelf.waiting(lane) == [("a", ONE)]


def test_a_surplus_key_of_an_epoch_that_this_directory_has_not_given_is_left(shelf: Shelf) -> None:
    for epoch in (shelf.epoch - 1, shelf.epoch + 1):
        there = Version("", "things", "a", place_of(epoch, 1), digest_of(ONE), False)
        assert resync.delete(shelf.db, shelf.sealer, NOW, shelf.lanes["main"], [there]) == []


def test_an_owner_has_no_more_keys_than_its_quota_and_may_change_and_delete_those(shelf: Shelf) -> None:
    quota = Quota(2, 1 << 20)

    assert put(shelf, "berlin", "a", ONE, 1, quota)
    assert put(shelf, "berlin", "b", ONE, 2, quota)
    assert not put(shelf, "berlin", "c", ONE, 3, quota)
    assert not put(shelf, "berlin/mitte", "c", ONE, 3, quota)
    assert put(shelf, "berlin", "a", TWO, 4, quota)
    assert put(shelf, "paris", "c", ONE, 3, quota)
    assert put(shelf, "berlin", "b", None, 5, quota)
    assert put(shelf, "berlin", "c", ONE, 6, quota)
    assert not put(shelf, "berlin", "b", ONE, 7, quota)
    assert shelf.count("keyed") == 4


def test_the_bytes_of_an_owner_are_bounded_and_counted_again_after_damage(shelf: Shelf) -> None:
    quota = Quota(100, 1000)
    while put(shelf, "berlin", f"k{shelf.count('keyed')}", ONE, 1, quota):
        pass
    before = shelf.db.execute("SELECT * FROM holding").fetchall()

    (total,) = shelf.db.execute("SELECT sum(bytes) FROM keyed").fetchone()
    assert before == [("berlin", shelf.count("keyed"), total)]
    assert 500 < total <= 1200
    shelf.db.execute("UPDATE holding SET keys = 7")
    keyed.restore(shelf.db, shelf.at)
    assert shelf.db.execute("SELECT * FROM holding").fetchall() == before
