"""Places: each start gives higher ones, and what this directory has given is known."""

from __future__ import annotations

from shipper.sdk.state import epoch_of, place_of
from shipper.spool import places
from tests.spool.keyed import NOW, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'
A = To("a")


def test_each_start_gives_places_above_all_before(shelf: Shelf) -> None:
    before = shelf.keep("k", ONE).place
    assert places.begin(shelf.db, 0.0) == shelf.epoch + 1
    after = shelf.keep("k", TWO).place

    assert after > before
    assert epoch_of(after) == shelf.epoch + 1


def test_places_begin_above_those_of_a_lost_counter(shelf: Shelf) -> None:
    place = shelf.keep("k", ONE).place
    shelf.db.execute("DELETE FROM meta WHERE key LIKE 'place%'")

    assert places.begin(shelf.db, 0.0) > epoch_of(place)


def test_a_sequence_that_is_used_up_begins_an_epoch(shelf: Shelf) -> None:
    shelf.db.execute("UPDATE meta SET value = ? WHERE key = 'place_sequence'", (2**31 - 2,))

    assert shelf.keep("k", ONE).place == place_of(shelf.epoch, 2**31 - 1)
    assert shelf.keep("k", TWO).place == place_of(shelf.epoch + 1, 1)


def test_a_place_was_given_by_this_directory_up_to_the_last_one_of_its_epoch(shelf: Shelf) -> None:
    place = shelf.keep("a", ONE).place
    for _ in range(2):
        assert places.has_given(shelf.db, "", place)
        assert not places.has_given(shelf.db, "", place + 1)
        shelf.epoch = places.begin(shelf.db, NOW)
    assert not places.has_given(shelf.db, "", place_of(shelf.epoch + 1, 1))


def test_a_key_without_a_place_gets_none_of_an_epoch_that_is_used_up(shelf: Shelf) -> None:
    shelf.db.execute("UPDATE meta SET value = ? WHERE key = 'place_sequence'", (2**31 - 1,))

    assert places.next_place(shelf.db, 0) == place_of(shelf.epoch + 1, 1)
