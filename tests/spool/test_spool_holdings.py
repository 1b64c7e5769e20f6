"""What another owner may have: its keys and its deletions are bounded, and what waits is never forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from shipper.sdk.state import Change, Kept, Quota
from shipper.spool import doubt, holdings, keyed, schema
from shipper.spool.keyed import Arrival
from shipper.spool.report import Report
from tests.databases import in_memory
from tests.spool.keyed import INPUT, NOW, Shelf, To

ONE, TWO = b'{"n":1}', b'{"n":2}'
FEW = Quota(2, 1 << 20)
MOST = 2 + 4
"""Keys of `FEW`, deleted or not."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "LEAST_DELETIONS", 4)
    monkeypatch.setattr(holdings, "PORTION", 2)


def keep(
    shelf: Shelf, owner: str, key: str, document: bytes | None, place: int, quota: Quota = FEW, *, awaited: bool = False
) -> Kept:
    change = Change("things", key, document, owner, place)
    arrival = Arrival(shelf.at, INPUT, list(shelf.lanes.values()), [change], quota=quota, awaited=awaited)
    (kept,) = keyed.keep(shelf.db, shelf.sealer, NOW, arrival).kept
    return kept


def put(shelf: Shelf, owner: str, key: str, document: bytes | None, place: int, quota: Quota = FEW) -> bool:
    """Whether it was let in."""
    return not keep(shelf, owner, key, document, place, quota).is_full


def deliver(shelf: Shelf) -> None:
    for lane in shelf.lanes.values():
        shelf.deliver_all(lane)


def places(shelf: Shelf) -> list[int]:
    """Of the keys that are known, deleted or not."""
    return [place for (place,) in shelf.db.execute("SELECT place FROM keyed ORDER BY place")]


def counted(shelf: Shelf) -> list[tuple[str, int, int, int]]:
    return shelf.db.execute("SELECT owner, keys, bytes, known FROM holding ORDER BY owner").fetchall()


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
    assert {owner: held.keys for owner, held in holdings.load(shelf.db).items()} == {"berlin": 2, "paris": 1}


def test_the_bytes_of_an_owner_are_bounded(shelf: Shelf) -> None:
    quota = Quota(100, 1000)
    while put(shelf, "berlin", f"k{shelf.count('keyed')}", ONE, 1, quota):
        pass

    (total,) = shelf.db.execute("SELECT sum(bytes) FROM keyed").fetchone()
    assert counted(shelf) == [("berlin", shelf.count("keyed"), total, shelf.count("keyed"))]
    assert 500 < total <= 1200


def test_deletions_of_keys_that_nobody_knows_do_not_grow_without_bound(shelf: Shelf) -> None:
    for number in range(1, 100):
        assert put(shelf, "berlin/mitte", f"k{number}", None, number)
        deliver(shelf)

    assert shelf.count("keyed") <= MOST
    assert counted(shelf) == [("berlin", 0, 0, shelf.count("keyed"))]


def test_keys_that_come_and_go_leave_no_more_than_the_newest_deletions(shelf: Shelf) -> None:
    for number in range(1, 100):
        assert put(shelf, "berlin", f"k{number}", ONE, 2 * number)
        assert put(shelf, "berlin", f"k{number}", None, 2 * number + 1)
        deliver(shelf)

    assert places(shelf) == [2 * number + 1 for number in range(100 - len(places(shelf)), 100)]
    assert MOST - 2 < len(places(shelf)) <= MOST


def test_while_the_destination_is_away_deletions_of_unknown_keys_are_full_at_the_bound(shelf: Shelf) -> None:
    given = [put(shelf, "berlin", f"k{number}", None, number) for number in range(1, 20)]

    assert given == [True] * MOST + [False] * (19 - MOST)
    assert not put(shelf, "berlin", "new", ONE, 30)
    assert put(shelf, "paris", "k", None, 1)
    assert places(shelf) == [1, *range(1, MOST + 1)]
    deliver(shelf)
    assert put(shelf, "berlin", "k19", None, 19)
    assert put(shelf, "berlin", "new", ONE, 30)


def test_a_key_that_is_there_may_be_deleted_changed_and_made_again_whatever_waits(shelf: Shelf) -> None:
    assert put(shelf, "berlin", "a", ONE, 1)
    for number in range(2, 20):
        put(shelf, "berlin", f"k{number}", None, number)

    assert not put(shelf, "berlin", "b", None, 30)
    assert put(shelf, "berlin", "a", TWO, 31)
    assert put(shelf, "berlin", "a", None, 32)
    assert put(shelf, "berlin", "a", None, 33)
    assert put(shelf, "berlin", "a", ONE, 34)
    assert put(shelf, "berlin", "k2", ONE, 35)
    assert shelf.count("keyed") == MOST


def test_a_key_beyond_the_quota_costs_no_deletion(shelf: Shelf) -> None:
    for number in range(1, MOST - 1):
        put(shelf, "berlin", f"k{number}", None, number)
    put(shelf, "berlin", "a", ONE, 10)
    put(shelf, "berlin", "b", ONE, 11)
    deliver(shelf)

    assert not put(shelf, "berlin", "c", ONE, 12)
    assert shelf.count("keyed") == MOST


def test_what_waits_on_any_lane_is_remembered_also_as_an_old_version(shelf: Shelf) -> None:
    """The oldest deletion waits on a lane that was retired, the next one where an output was added."""
    retired = shelf.lanes["main"]
    put(shelf, "berlin", "a", ONE, 1)
    shelf.activate(main=To("b"))
    put(shelf, "berlin", "a", None, 2)
    for number in range(3, MOST + 2):
        put(shelf, "berlin", f"k{number}", None, number)
    deliver(shelf)
    assert shelf.waiting(retired) == [("a", ONE)]
    assert put(shelf, "berlin", "b", None, 20)

    assert places(shelf) == [2, 5, 6, 7, 20]
    assert shelf.waiting(retired) == [("a", ONE)]
    shelf.activate(main=To("b"), other=To("c"))
    before = shelf.waiting(shelf.lanes["other"])
    assert put(shelf, "berlin", "c", None, 21)
    assert not put(shelf, "berlin", "d", None, 22)
    assert shelf.waiting(shelf.lanes["other"]) == [*before, ("c", None)]
    shelf.deliver_all(retired)
    deliver(shelf)
    assert put(shelf, "berlin", "d", None, 22)
    assert places(shelf) == [6, 7, 20, 21, 22]


def test_the_highest_place_of_an_owner_is_never_forgotten(shelf: Shelf) -> None:
    """Else its edge would find that this directory went back."""
    put(shelf, "berlin", "first", None, 100)
    deliver(shelf)
    for number in range(1, 20):
        put(shelf, "berlin", f"k{number}", None, number)

    assert max(places(shelf)) == 100
    assert not put(shelf, "berlin", "last", None, 50)


def test_deletions_at_one_place_give_way_too(shelf: Shelf) -> None:
    for number in range(1, 20):
        assert put(shelf, "berlin", f"k{number}", None, 5)
        deliver(shelf)

    assert shelf.count("keyed") <= MOST


def test_the_answers_for_a_deletion_are_forgotten_with_it(shelf: Shelf) -> None:
    for number in range(1, 20):
        assert keep(shelf, "berlin/mitte", f"k{number}", None, number, awaited=True).awaited
        deliver(shelf)

    assert shelf.count("awaited") == shelf.count("keyed") <= MOST


def test_a_deletion_that_was_forgotten_may_come_again_and_is_new(shelf: Shelf) -> None:
    for number in range(1, 20):
        put(shelf, "berlin", f"k{number}", None, number)
        deliver(shelf)

    kept = keep(shelf, "berlin", "k1", None, 1)
    assert (kept.is_new, kept.fenced) == (True, False)
    assert shelf.waiting(shelf.lanes["main"]) == [("k1", None)]


def test_deletions_of_one_owner_give_way_for_no_other(shelf: Shelf) -> None:
    for number in range(1, 4):
        put(shelf, "berlin", f"k{number}", None, number)
    deliver(shelf)
    for number in range(10, 30):
        put(shelf, "paris", f"k{number}", None, number)
        deliver(shelf)

    assert places(shelf)[:3] == [1, 2, 3]


def test_what_an_owner_has_is_counted_again_after_damage(shelf: Shelf) -> None:
    put(shelf, "berlin", "a", ONE, 1)
    for number in range(2, 5):
        put(shelf, "berlin", f"k{number}", None, number)
        deliver(shelf)
    put(shelf, "berlin", "waits", None, 7)
    before = counted(shelf)
    marked = "SELECT place FROM keyed WHERE settled = 'berlin' ORDER BY place"
    assert before[0][1:] == (1, before[0][2], 5)
    shelf.db.execute("DELETE FROM holding")
    shelf.db.execute("UPDATE keyed SET settled = NULL")
    Report(lost=Counter(holding=1)).store(shelf.db)
    doubt.act(shelf.db)

    assert counted(shelf) == before
    assert shelf.db.execute(marked).fetchall() == [(2,), (3,), (4,)]


def test_a_directory_of_an_earlier_version_is_counted_when_it_is_opened() -> None:
    shelf = Shelf()
    shelf.activate(main=To("a"))
    put(shelf, "berlin", "a", ONE, 1)
    for number in range(2, MOST):
        put(shelf, "berlin/mitte", f"k{number}", None, number)
    deliver(shelf)
    before = counted(shelf)
    for statement in (
        "DROP INDEX keyed_settled",
        "ALTER TABLE keyed DROP COLUMN settled",
        "ALTER TABLE holding DROP COLUMN known",
    ):
        shelf.db.execute(statement)
    schema.prepare(shelf.db)

    assert counted(shelf) == before == [("berlin", 1, before[0][2], MOST - 1)]
    for number in range(20, 30):
        assert put(shelf, "berlin", f"k{number}", None, number)
        deliver(shelf)
    assert shelf.count("keyed") <= MOST


def test_what_is_asked_for_each_change_costs_no_more_the_more_is_known() -> None:
    db = in_memory()
    schema.prepare(db)
    plan = db.execute(
        "EXPLAIN QUERY PLAN SELECT id, name, input, place FROM keyed WHERE settled = ?"
        " AND id != (SELECT id FROM keyed WHERE settled = ? ORDER BY place DESC LIMIT 1) ORDER BY place LIMIT 9",
        ("berlin", "berlin"),
    ).fetchall()

    steps = [step for *_, step in plan if step.startswith(("SEARCH", "SCAN", "USE TEMP"))]
    assert len(steps) == 2
    assert all("INDEX keyed_settled" in step for step in steps)
