"""The dead-letter store: sealed, bounded, one letter for an event however often it is written."""

from __future__ import annotations

import os
import sqlite3

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.spool import dead_letters, schema
from shipper.spool.dead_letters import Full, Letter, Limits
from shipper.spool.schema import set_meta
from shipper.spool.seal import Sealer
from shipper.values import DeadLetterReason, Revision
from tests.databases import in_memory

AT = Revision(1, 7)


@pytest.fixture
def db() -> sqlite3.Connection:
    db = in_memory()
    schema.prepare(db)
    return db


@pytest.fixture
def sealer() -> Sealer:
    return Sealer(bytes(16), {}, bytes(32), lambda: (os.urandom(8), os.urandom(32)))


def letter(item: int, size: int = 10) -> Letter:
    return Letter(item, f"id-{item}", b'{"n":"%s"}' % (b"x" * size), "main", "400 mapping")


def add(db: sqlite3.Connection, sealer: Sealer, *items: int, limits: Limits = Limits(), seq: int = 1) -> int:  # noqa: B008
    return dead_letters.add(db, sealer, 1, AT, seq, [letter(item) for item in items], limits, 100.0)


def test_a_letter_is_read_as_it_was_written(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 5)
    (read,) = dead_letters.page(db, sealer, 0, 10)
    event = orjson.loads(orjson.dumps(read.pop("event")))

    assert event == {"n": "x" * 10}
    assert read == {
        "id": 1,
        "output": "main",
        "at": 100.0,
        "revision": [1, 7],
        "reason": "400 mapping",
        "event_id": "id-5",
    }


def test_the_reasons_are_counted_by_output_the_most_frequent_first(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 1, 2)
    one = letter(3)._replace(output="copy", reason="404 index missing")
    dead_letters.add(db, sealer, 2, AT, 9, [one], Limits(), 104.0)

    assert dead_letters.reasons(db, 110.0) == [
        DeadLetterReason("main", "400 mapping", 2, 10.0),
        DeadLetterReason("copy", "404 index missing", 1, 6.0),
    ]


def test_of_many_reasons_a_few_are_read_whatever_is_stored(db: sqlite3.Connection, sealer: Sealer) -> None:
    """A destination may word each answer anew."""
    for number in range(50):
        one = letter(number)._replace(reason=f"{number} " + "x" * 5000)
        dead_letters.add(db, sealer, 1, AT, number, [one], Limits(), 100.0)
    found = dead_letters.reasons(db, 110.0)

    assert len(found) == dead_letters.MOST_REASONS
    assert {len(one.reason) for one in found} == {dead_letters.LONGEST_REASON}


def test_a_replay_writes_a_letter_once(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 1, 2)
    before = dead_letters.figures(db, 110.0)
    add(db, sealer, 1, 2)

    assert dead_letters.figures(db, 110.0) == before
    assert (before.events, before.oldest_seconds) == (2, 10.0)


def test_the_oldest_give_way_and_are_counted(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 1)
    size = dead_letters.figures(db, 0).bytes
    dropped = add(db, sealer, 2, 3, limits=Limits(2 * size))

    assert dropped == 1
    assert [read["event_id"] for read in dead_letters.page(db, sealer, 0, 10)] == ["id-2", "id-3"]


def test_where_nothing_may_give_way_it_is_full(db: sqlite3.Connection, sealer: Sealer) -> None:
    with pytest.raises(Full):
        add(db, sealer, 1, limits=Limits(10, "hold"))


@pytest.mark.parametrize("room", range(4))
def test_as_many_fit_as_are_added_without_being_refused(db: sqlite3.Connection, sealer: Sealer, room: int) -> None:
    add(db, sealer, 1)
    size = dead_letters.figures(db, 0).bytes
    limits = Limits((1 + room) * size + size - 1, "hold")
    fitting = dead_letters.fitting(db, [letter(item) for item in (2, 3, 4)], limits)

    assert fitting == room
    assert add(db, sealer, *(2, 3, 4)[:fitting], limits=limits) == 0


def test_where_the_oldest_give_way_all_fit(db: sqlite3.Connection) -> None:
    assert dead_letters.fitting(db, [letter(1), letter(2)], Limits(1)) == 2


def test_a_letter_larger_than_the_store_is_dropped_itself(db: sqlite3.Connection, sealer: Sealer) -> None:
    assert add(db, sealer, 1, limits=Limits(1)) == 1
    assert dead_letters.figures(db, 0).events == 0


def test_a_count_of_bytes_that_is_too_high_does_no_harm(db: sqlite3.Connection, sealer: Sealer) -> None:
    """A repair may have lost rows and kept the count."""
    set_meta(db, "dead_letter_bytes", 10_000)
    add(db, sealer, 1, limits=Limits(1000))


def test_deleted_letters_give_back_their_room(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 1, 2, 3)
    size = dead_letters.figures(db, 0).bytes // 3

    assert dead_letters.delete(db, 2) == 2
    assert dead_letters.delete(db, 2) == 0
    assert add(db, sealer, 8, 9, limits=Limits(3 * size, "hold"), seq=2) == 0


def test_pages_go_on_after_an_id(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, *range(5))

    assert [read["id"] for read in dead_letters.page(db, sealer, 2, 2)] == [3, 4]


def test_a_page_of_large_letters_is_shorter(db: sqlite3.Connection, sealer: Sealer) -> None:
    dead_letters.add(db, sealer, 1, AT, 1, [letter(n, dead_letters.PAGE_BYTES // 2) for n in range(5)], Limits(), 100.0)

    assert [read["id"] for read in dead_letters.page(db, sealer, 0, 200)] == [1, 2]
    assert [read["id"] for read in dead_letters.page(db, sealer, 4, 200)] == [5]
    assert dead_letters.page(db, sealer, 5, 200) == []


def test_a_damaged_letter_says_so_and_the_others_are_read(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 1, 2)
    db.execute("UPDATE dead_letter SET body = zeroblob(80) WHERE id = 1")
    first, second = dead_letters.page(db, sealer, 0, 10)

    assert first["damaged"]
    assert "event" not in first
    assert second["event_id"] == "id-2"


def test_events_are_not_on_disk_in_the_clear(db: sqlite3.Connection, sealer: Sealer) -> None:
    add(db, sealer, 1)

    assert b"xxxx" not in db.execute("SELECT body FROM dead_letter").fetchone()[0]


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 400), max_size=9)), st.integers(0, 3000))
def test_as_many_letters_fit_as_have_room_and_the_store_takes_them(sizes: dict[int, list[int]], limit: int) -> None:
    """None that is held would find room beside those that are taken, and their sizes are counted to the byte."""
    db, limits = in_memory(), Limits(limit, "hold")
    sealer = Sealer(bytes(16), {}, bytes(32), lambda: (os.urandom(8), os.urandom(32)))
    schema.prepare(db)
    wanted = {seq: [letter(item, size) for item, size in enumerate(all)] for seq, all in sizes.items()}
    try:
        dead_letters.check_room(db, wanted, limits)
        fits = {seq: range(len(all)) for seq, all in wanted.items()}
    except Full as full:
        fits = full.fits  # type: ignore[assignment]
    for seq, numbers in fits.items():
        dead_letters.add(db, sealer, 1, AT, seq, [wanted[seq][number] for number in numbers], limits, 1.0)

    room = limit - dead_letters.held_bytes(db)
    assert room == limit - dead_letters.figures(db, 1.0).bytes
    for seq, all in wanted.items():
        for number in set(range(len(all))).difference(fits[seq]):
            with pytest.raises(Full):
                dead_letters.check_room(db, {seq: [all[number]]}, limits)
