"""What is read of keyed state to compare it, and what is sent again."""

from __future__ import annotations

import pytest

from shipper.sdk.state import Change, Mark, Version, digest_of, place_of, point_of
from shipper.spool import keyed, lifting, places, resync
from shipper.spool.keyed import Arrival
from shipper.spool.queue import Moved
from shipper.spool.resync import Claim, Decision
from tests.spool.keyed import INPUT, NOW, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'


def point(key: str) -> int:
    return point_of("things", key)


def put(shelf: Shelf, owner: str, key: str, document: bytes | None, place: int) -> None:
    change = Change("things", key, document, owner, place)
    arrival = Arrival(shelf.at, INPUT, list(shelf.lanes.values()), [change])
    keyed.keep(shelf.db, shelf.sealer, NOW, arrival)


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


def test_a_version_is_gone_from_a_lane_where_its_slot_has_another_one_or_was_settled(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    for key, place in (("a", 5), ("b", 6), ("c", 7)):
        put(shelf, "berlin", key, ONE, place)
    shelf.settle(lane, shelf.entries(lane)[1].seq)
    put(shelf, "berlin", "c", TWO, 8)
    those = [Version("berlin", "things", key, place, b"", False) for place, key in enumerate("abcd", 5)]

    assert [version.key for version in resync.gone(shelf.db, lane, those)] == ["b", "c", "d"]
    assert resync.gone(shelf.db, lane + 1, those[:1]) == those[:1]


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


def test_the_marks_of_an_owner_are_read_in_the_order_in_which_they_lie(shelf: Shelf) -> None:
    """To read a hundred thousand of them in the order of their points took twice as long."""
    statements: list[str] = []
    shelf.db.set_trace_callback(statements.append)
    resync.of_owner(shelf.db, "berlin", ("berlin", 7))
    shelf.db.set_trace_callback(None)
    plans = [[step for *_, step in shelf.db.execute(f"EXPLAIN QUERY PLAN {one}")] for one in statements]

    assert plans == [
        ["SEARCH keyed USING INDEX keyed_owner (owner=? AND rowid>?)"],
        ["SEARCH keyed USING INDEX keyed_owner (owner>? AND owner<?)"],
    ]


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


SOURCE, UNREAD, ADOPT = Claim(INPUT, "source"), Claim(INPUT, "unread"), Claim(INPUT, "adopt")


def decide(shelf: Shelf, version: Version, claim: Claim | None = None) -> Decision:
    """What is decided of one version that the destination has; `shelf` has been started again since all before."""
    since = places.begin(shelf.db, NOW)
    return resync.decide(shelf.db, shelf.sealer, NOW, shelf.lanes["main"], [(version, claim)], since)


def waiting(shelf: Shelf) -> list[Version]:
    """The versions that wait for the destination."""
    lane = shelf.lanes["main"]
    found = [shelf.load(lane, entry).versions for entry in shelf.entries(lane)]
    return [version for versions in found for version in versions or () if version is not None]


def there(place: int, document: bytes | None = TWO, owner: str = "", key: str = "a") -> Version:
    return Version(owner, "things", key, place, digest_of(document), document is None)


def foreign(shelf: Shelf) -> int:
    """A place of a newer copy of this directory."""
    return place_of(shelf.epoch + 100, 7)


@pytest.mark.parametrize("claim", [None, SOURCE, UNREAD, ADOPT])
def test_a_surplus_key_that_this_directory_gave_is_deleted_above_the_place_that_it_has_there(
    shelf: Shelf, claim: Claim | None
) -> None:
    kept = shelf.keep("a", ONE)
    shelf.keep("a", None)
    shelf.deliver_all(shelf.lanes["main"])
    assert shelf.count("keyed") == 0
    decision = decide(shelf, there(kept.place, ONE), claim)

    [version] = waiting(shelf)
    assert (version.key, version.deleted, decision.wanted, decision.waits) == ("a", True, [], False)
    assert version.place > kept.place
    assert shelf.keep("b", ONE).place > version.place
    shelf.deliver_all(shelf.lanes["main"])
    assert list(shelf.db.execute("SELECT deleted FROM keyed")) == [(0,)]


def test_a_surplus_key_that_is_here_is_sent_again_and_that_of_another_owner_left(shelf: Shelf) -> None:
    lane = shelf.lanes["main"]
    shelf.keep("a", ONE)
    shelf.deliver_all(lane)
    for owner in ("", "paris"):
        decide(shelf, there(1, owner=owner))

    assert shelf.waiting(lane) == [("a", ONE)]


def test_a_place_that_another_shipper_gave_in_the_same_second_was_not_given_here(shelf: Shelf) -> None:
    place = shelf.admit(Change("things", "a", ONE, "programs")).kept[0].place
    put(shelf, "berlin", "a", ONE, place - 1)
    for owner in ("berlin", "paris"):
        version = there(place, owner=owner, key="b")
        assert decide(shelf, version, ADOPT).wanted == [version]
    gone = decide(shelf, there(place, owner="programs", key="b"), ADOPT)

    assert (gone.wanted, waiting(shelf)[-1].deleted) == ([], True)


def test_the_deletion_of_a_key_that_is_not_here_goes_where_the_key_may_be(shelf: Shelf) -> None:
    shelf.keep("a", None)
    shelf.admit(Change("things", "a", None, "programs"))
    [version] = waiting(shelf)

    assert (version.owner, version.deleted) == ("programs", True)
    shelf.deliver_all(shelf.lanes["main"])
    assert shelf.count("keyed") == 0


@pytest.mark.parametrize("document", [None, ONE])
@pytest.mark.parametrize("claim", [None, UNREAD])
def test_what_a_newer_copy_gave_stays_while_nobody_has_the_word(
    shelf: Shelf, claim: Claim | None, document: bytes | None
) -> None:
    if document is not None:
        shelf.keep("a", document)
        shelf.deliver_all(shelf.lanes["main"])
    decision = decide(shelf, there(foreign(shelf)), claim)

    assert (decision.wanted, decision.waits, waiting(shelf)) == ([], claim is UNREAD, [])


def test_a_source_that_has_read_all_deletes_what_it_does_not_have_and_has_the_last_word_of_what_it_has(
    shelf: Shelf,
) -> None:
    shelf.keep("b", ONE)
    shelf.deliver_all(shelf.lanes["main"])
    for key in "ab":
        decide(shelf, there(foreign(shelf), key=key), SOURCE)

    assert [(version.key, version.deleted) for version in waiting(shelf)] == [("a", True), ("b", False)]
    assert min(version.place for version in waiting(shelf)) > foreign(shelf)
    assert shelf.waiting(shelf.lanes["main"])[1] == ("b", ONE)


@pytest.mark.parametrize("document", [None, ONE])
def test_what_came_by_a_door_is_wanted_where_there_is_nothing_or_an_older_version_here(
    shelf: Shelf, document: bytes | None
) -> None:
    if document is not None:
        shelf.admit(Change("things", "a", document, "local"))
    newer = there(foreign(shelf), owner="local")

    assert decide(shelf, newer, ADOPT).wanted == [newer]


def test_the_last_word_of_this_process_is_not_given_up(shelf: Shelf) -> None:
    lane, since = shelf.lanes["main"], shelf.epoch
    shelf.keep("a", ONE)
    surplus = [(there(foreign(shelf)), claim) for claim in (ADOPT, SOURCE)]
    decision = resync.decide(shelf.db, shelf.sealer, NOW, lane, surplus, since)

    assert (decision.wanted, decision.moved) == ([], [])


def adopt(shelf: Shelf, place: int, document: bytes | None = TWO, claim: Claim = ADOPT) -> list[Moved]:
    change = Change("things", "a", document, "local", place)
    return resync.adopt(shelf.db, shelf.sealer, NOW, shelf.lanes["main"], [(change, claim)])


def test_what_is_adopted_has_its_place_and_goes_to_the_other_lanes(shelf: Shelf) -> None:
    shelf.activate(main=To("a"), other=To("b"))
    moved = adopt(shelf, foreign(shelf))

    assert [move.lane for move in moved] == [shelf.lanes["other"]]
    assert (waiting(shelf), shelf.waiting(shelf.lanes["other"])) == ([], [("a", TWO)])
    assert lifting.here(shelf.db, there(0, owner="local")) == lifting.Here(INPUT, foreign(shelf), is_own=False)


def test_an_older_version_is_not_adopted_nor_one_that_is_another_inputs_now(shelf: Shelf) -> None:
    newest = foreign(shelf) + 1
    adopt(shelf, newest)
    for claim in (ADOPT, SOURCE):
        assert adopt(shelf, newest - 1, ONE, claim) == []
    assert adopt(shelf, newest + 1, ONE, SOURCE) == []

    assert shelf.db.execute("SELECT place, digest FROM keyed").fetchall() == [(newest, digest_of(TWO))]


def test_the_deletion_of_a_key_that_was_adopted_is_remembered(shelf: Shelf) -> None:
    """Else a destination that goes back after that would have it adopted again."""
    adopt(shelf, foreign(shelf))
    shelf.admit(Change("things", "a", None, "local"))
    shelf.deliver_all(shelf.lanes["main"])
    decision = decide(shelf, there(foreign(shelf), owner="local"), ADOPT)

    assert decision.wanted == []
    assert [version.deleted for version in waiting(shelf)] == [True]


def test_documents_are_read_up_to_a_size_and_one_at_least(shelf: Shelf) -> None:
    for key in "abc":
        put(shelf, "berlin", key, ONE, 5)
    keys = [("berlin", point(key)) for key in "abxc"]
    for most, count, read in ((0, 1, 1), (2 * len(ONE) + 2, 2, 3), (1000, 3, 4)):
        found, number = resync.documents(shelf.db, shelf.sealer, keys, most)

        assert (len(found), number) == (count, read)
        assert {document for _, document in found} == {ONE}


@pytest.mark.parametrize("document", [None, ONE])
def test_above_the_last_of_all_places_no_key_is_deleted_or_lifted(shelf: Shelf, document: bytes | None) -> None:
    if document is not None:
        shelf.keep("a", document)
        shelf.deliver_all(shelf.lanes["main"])

    assert decide(shelf, there(2**63 - 1), SOURCE).moved == []


def test_nothing_is_sent_again_or_decided_while_no_revision_is_active(shelf: Shelf) -> None:
    shelf.keep("a", ONE)
    shelf.deliver_all(shelf.lanes["main"])
    shelf.db.execute("DELETE FROM meta WHERE key = 'active'")

    assert resync.send_again(shelf.db, NOW, shelf.lanes["main"], [("", point("a"))]) == []
    assert decide(shelf, there(1)) == Decision([], [], waits=False)
