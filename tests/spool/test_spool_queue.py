"""Batches: entered and settled in one transaction each, with their ids through every rest."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sdk.errors import Outdated
from shipper.sdk.event import Batch
from shipper.spool import queue, schema
from shipper.spool.dead_letters import Full, Letter, Limits
from shipper.spool.queue import Arrival, Entered, Packed, Settlement
from shipper.spool.schema import BATCH, REST, set_meta
from shipper.spool.seal import Damaged, Sealer
from shipper.values import Counts, Revision
from tests.databases import in_memory

AT = Revision(0, 1)
ORIGIN = b"0123456789abcdef"
LIMITS = Limits()


class Rows:
    def __init__(self) -> None:
        self.db = in_memory()
        schema.prepare(self.db)
        set_meta(self.db, "active", str(AT))
        self.sealer = Sealer(bytes(16), {}, bytes(32), lambda: (os.urandom(8), os.urandom(32)))
        for id in (1, 2):
            self.db.execute("INSERT INTO lane VALUES (?, 'main', 't', 'd', NULL, x'', 1, 1, 0, 0, '[]', 0)", (id,))

    def enter(self, *counts: int, lanes: tuple[int, ...] = (1, 2), **positions: bytes | None) -> list[Entered]:
        batches = [Batch.documents([b'{"n":%d}' % n for n in range(count)]) for count in counts]
        arrival = Arrival(AT, "in", lanes, [Packed(batch.count, batch.pack()) for batch in batches], positions)
        return queue.enter(self.db, self.sealer, ORIGIN, 5.0, arrival)

    def settle(self, lane: int, seq: int, settlement: Settlement, limits: Limits = LIMITS) -> queue.Settled | None:
        return queue.settle(self.db, self.sealer, lane, seq, settlement, limits, 6.0)

    def first(self, lane: int) -> tuple[queue.Entry, Batch]:
        (entry,) = queue.window(self.db, lane, 0, 1)
        return entry, queue.load(self.db, self.sealer, lane, entry)


@pytest.fixture
def rows() -> Rows:
    return Rows()


def test_each_batch_of_an_arrival_has_the_lanes_that_it_names(rows: Rows) -> None:
    batch = Batch.documents([b'{"n":1}'])
    packed = [Packed(1, batch.pack()), Packed(1, batch.pack(), (2,)), Packed(1, batch.pack(), (1,))]
    both, second, first = queue.enter(rows.db, rows.sealer, ORIGIN, 5.0, Arrival(AT, "in", (1, 2), packed))

    assert [entry.seq for entry in queue.window(rows.db, 1, 0, 9)] == [both.seq, first.seq]
    assert [entry.seq for entry in queue.window(rows.db, 2, 0, 9)] == [both.seq, second.seq]


def test_an_arrival_enters_only_if_the_positions_are_as_it_expects(rows: Rows) -> None:
    rows.enter(1, a=b"1")
    packed = [Packed(1, Batch.documents([b'{"n":1}']).pack())]

    for expect in ({"a": b"2"}, {"a": None}, {"a": b"1", "b": b"1"}):
        with pytest.raises(Outdated):
            queue.enter(
                rows.db, rows.sealer, ORIGIN, 5.0, Arrival(AT, "in", (1, 2), packed, {"a": b"9"}, expect=expect)
            )
    assert (len(queue.window(rows.db, 1, 0, 9)), queue.positions(rows.db, "in")) == (1, {"a": b"1"})

    queue.enter(
        rows.db, rows.sealer, ORIGIN, 5.0, Arrival(AT, "in", (1, 2), packed, {"a": b"2"}, {"a": b"1", "b": None})
    )
    assert (len(queue.window(rows.db, 1, 0, 9)), queue.positions(rows.db, "in")) == (2, {"a": b"2"})


def test_what_entered_is_read_by_every_lane_with_its_ids(rows: Rows) -> None:
    (entered,) = rows.enter(3, a=b"1")
    for lane in (1, 2):
        entry, batch = rows.first(lane)

        assert (entry.seq, entry.kind, entry.revision, entry.events, entry.at) == (entered.seq, BATCH, AT, 3, 5.0)
        assert (batch.origin, batch.seq, batch.count) == (ORIGIN, entered.seq, 3)
    assert queue.positions(rows.db, "in") == {"a": b"1"}


def test_places_rise_and_are_never_given_twice(rows: Rows) -> None:
    first, second = rows.enter(1, 1, lanes=(1,))
    rows.settle(1, second.seq, Settlement(Counts(delivered=1)))
    (third,) = rows.enter(1)

    assert first.seq < second.seq < third.seq


def test_a_position_of_none_is_removed(rows: Rows) -> None:
    rows.enter(a=b"1", b=b"2")
    rows.enter(a=None)

    assert queue.positions(rows.db, "in") == {"b": b"2"}


@given(st.sets(st.text("ab\x00\U0010ffff", max_size=4)), st.text("ab\x00\U0010ffff", max_size=2))
def test_positions_are_read_by_a_prefix_or_by_one_key(keys: set[str], prefix: str) -> None:
    rows = Rows()
    rows.enter(**{key: key.encode() for key in keys})

    assert queue.positions(rows.db, "in", prefix) == {k: k.encode() for k in keys if k.startswith(prefix)}
    assert queue.position(rows.db, "in", prefix) == (prefix.encode() if prefix in keys else None)
    assert queue.positions(rows.db, "other", prefix) == {}
    assert queue.position(rows.db, "other", prefix) is None


def test_of_a_prefix_no_other_positions_are_read(rows: Rows) -> None:
    rows.enter(**{f"{name}{n}": b"" for name in "abc" for n in range(5000)})
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    rows.db.set_progress_handler(count, 10)
    queue.positions(rows.db, "in", "b123")
    queue.position(rows.db, "in", "b1234")

    assert steps < 50


def test_a_body_goes_with_its_last_entry(rows: Rows) -> None:
    (entered,) = rows.enter(2)
    rows.settle(1, entered.seq, Settlement(Counts(delivered=2)))
    assert rows.db.execute("SELECT count(*) FROM batch").fetchone() == (1,)
    rows.settle(2, entered.seq, Settlement(Counts(duplicate=2)))

    assert rows.db.execute("SELECT count(*) FROM batch").fetchone() == (0,)


def test_what_is_left_is_small_and_does_not_keep_the_batch(rows: Rows) -> None:
    (entered,) = rows.enter(500, lanes=(1,))
    _, batch = rows.first(1)
    rows.settle(1, entered.seq, Settlement(Counts(delivered=499), rest=batch.pick([77])))
    entry, rest = rows.first(1)

    assert rows.db.execute("SELECT count(*) FROM batch").fetchone() == (0,)
    assert (entry.kind, entry.events) == (REST, 1)
    assert entry.size < entered.size
    assert (rest.items, rest.origin, rest.seq) == ([77], ORIGIN, entered.seq)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_a_batch_settled_in_parts_keeps_the_ids_of_its_rest(parts: list[int]) -> None:
    rows = Rows()
    (entered,) = rows.enter(20, lanes=(1,))
    left = list(range(20))
    for part in parts:
        if len(left) < 2:
            break
        _, batch = rows.first(1)
        assert list(batch.items or range(batch.count)) == left
        at = part % len(left)
        keep = [n for n in range(len(left)) if n != at]
        rows.settle(1, entered.seq, Settlement(Counts(delivered=1), rest=batch.pick(keep)))
        del left[at]
    assert [event["n"] for event in rows.first(1)[1].own()] == left


def test_a_settle_that_comes_twice_changes_nothing(rows: Rows) -> None:
    (entered,) = rows.enter(2)
    rows.settle(1, entered.seq, Settlement(Counts(delivered=2)))

    assert rows.settle(1, entered.seq, Settlement(Counts(delivered=2))) is None


def test_a_settle_that_forgets_an_event_is_a_bug(rows: Rows) -> None:
    (entered,) = rows.enter(2)

    with pytest.raises(AssertionError):
        rows.settle(1, entered.seq, Settlement(Counts(delivered=1)))


def test_a_full_store_of_dead_letters_refuses_the_settle(rows: Rows) -> None:
    (entered,) = rows.enter(1)
    letter = Letter(0, "id", b"{}", "main", "why")

    with pytest.raises(Full):
        rows.settle(1, entered.seq, Settlement(Counts(dead_letter=1), [letter]), Limits(1, "hold"))


@pytest.mark.parametrize("how", ["UPDATE batch SET body = zeroblob(90)", "DELETE FROM batch"])
def test_bytes_that_are_not_those_stored_are_damaged(rows: Rows, how: str) -> None:
    rows.enter(2)
    rows.db.execute(how)

    with pytest.raises(Damaged):
        rows.first(1)


def test_a_body_moved_to_another_place_is_damaged(rows: Rows) -> None:
    one, two = rows.enter(2, 3)
    rows.db.execute("UPDATE batch SET body = (SELECT body FROM batch WHERE seq = ?) WHERE seq = ?", (two.seq, one.seq))

    with pytest.raises(Damaged):
        rows.first(1)


def test_what_was_sealed_and_is_no_batch_is_damaged(rows: Rows) -> None:
    """A batch of a version that is not known, say: its seal opens."""
    (entered,) = rows.enter(1, lanes=(1,))
    sealed = rows.sealer.seal("batch", entered.seq, *AT, b"of another version")
    rows.db.execute("UPDATE batch SET body = ?", (sealed,))

    with pytest.raises(Damaged):
        rows.first(1)
