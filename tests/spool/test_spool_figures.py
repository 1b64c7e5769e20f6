"""Figures: sums over routes, the same counted beside the rows and from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from shipper.sdk.peers import Waits
from shipper.spool import queue, schema
from shipper.spool.figures import Amount, Figures
from shipper.spool.queue import Settlement
from shipper.values import Counts, Revision
from tests.databases import in_memory
from tests.spool.test_spool_revisions import LIMITS, Spool, new_sealer

ONE, TWO = Revision(0, 1), Revision(0, 2)


def figures() -> Figures:
    made = Figures(Counter(), Counter())
    made.add(ONE, frozenset({1, 2}), 10, 100)
    made.add(ONE, frozenset({1}), 3, 30)
    made.add(TWO, frozenset({2}), 5, 50)
    return made


def test_an_event_counts_once_however_many_lanes_hold_its_batch() -> None:
    assert figures().total() == Amount(18, 180)


def test_sums_by_lane_and_revision() -> None:
    assert figures().of_lanes([1]) == Amount(13, 130)
    assert figures().of_lanes([1, 2]) == Amount(18, 180)
    assert figures().only_of([2]) == Amount(5, 50)
    assert figures().waits(1) == Waits(13, 0)
    assert [(*pair, figures().of_pair(*pair)) for pair in figures().pairs([2, 1])] == [
        (ONE, 1, Amount(13, 130)),
        (ONE, 2, Amount(10, 100)),
        (TWO, 2, Amount(5, 50)),
    ]


def test_what_waits_is_listed_though_its_count_was_damaged_to_nought() -> None:
    """An order must find it: a barrier waits for it."""
    made = Figures.none()
    made.add(ONE, frozenset({1}), 0, 30)

    assert (made.pairs([1]), made.of_pair(ONE, 1)) == ([(ONE, 1)], Amount(0, 30))


class Watched(Counter):
    """Counts how often one of its counts is read."""

    reads = 0

    def __getitem__(self, group):
        self.reads += 1
        return super().__getitem__(group)

    def __iter__(self):
        for group in super().__iter__():
            self.reads += 1
            yield group

    def items(self):
        for pair in super().items():
            self.reads += 1
            yield pair


def test_each_group_is_read_a_few_times_only_however_many_lanes_are_held() -> None:
    """Every revision of a dead destination leaves a lane behind, and all of them are looked at for each `observed`."""
    events = Watched({(Revision(0, number), frozenset({number})): 7 for number in range(200)})
    held = Figures(events, Counter(dict.fromkeys(dict(events), 70)))
    events.reads = 0

    assert len([held.of_pair(*pair) for pair in held.pairs(range(200))]) == 200
    assert len(held.revisions({(Revision(0, number), number) for number in range(200)})) == 200
    assert events.reads <= 10 * 200
    events.reads = 0

    assert [held.of_lanes([number]) for number in range(200)] == [Amount(7, 70)] * 200
    assert (held.total(), len(held.lanes())) == (Amount(1400, 14000), 200)
    assert events.reads <= 2 * 200


def test_the_sum_of_a_revision_counts_an_event_once_however_many_of_the_lanes_hold_it() -> None:
    every = {(revision, lane) for revision in (ONE, TWO) for lane in (1, 2)}

    assert figures().revisions(every) == {ONE: Amount(13, 130), TWO: Amount(5, 50)}
    assert figures().revisions({(ONE, 2), (TWO, 1)}) == {ONE: Amount(10, 100)}


def test_a_batch_of_three_lanes_of_which_the_middle_one_holds_a_rest_is_counted_once() -> None:
    db = in_memory()
    schema.prepare(db)
    rows = [(1, 7, schema.BATCH, 4, 40), (2, 7, schema.REST, 1, 9), (3, 7, schema.BATCH, 4, 40)]
    db.executemany("INSERT INTO todo VALUES (?, ?, ?, 0, 1, ?, ?, 0, 0)", rows)

    counted = Figures.of(db, new_sealer())

    assert counted.events == {(ONE, frozenset({1, 3})): 4, (ONE, frozenset({2})): 1}
    assert counted.total().events == 4


def test_what_goes_to_zero_leaves_no_group() -> None:
    made = figures()
    made.add(TWO, frozenset({2}), -5, -50)

    assert (TWO, frozenset({2})) not in made.events
    assert (TWO, frozenset({2})) not in made.bytes


def test_an_event_counts_once_though_each_lane_has_left_a_rest_of_its_batch() -> None:
    spool = Spool()
    a, b, c = spool.activate(1, a=None, b=None, c=None).values()
    seq = spool.enter(1, [a, b, c], count=9)
    made = Figures.of(spool.db, spool.sealer)
    waiting = []
    for lane, left in ((a, (0, 3, 6)), (b, (3, 4)), (a, (0, 6)), (c, (0, 8)), (b, (3,)), (a, ()), (b, ()), (c, ())):
        settle(spool, made, lane, seq, left)
        assert made == Figures.of(spool.db, spool.sealer)
        waiting.append(made.total().events)

    assert waiting == [9, 9, 9, 5, 4, 3, 2, 0]
    assert made == Figures.none()


def settle(spool: Spool, figures: Figures, lane: int, seq: int, left: Sequence[int]) -> None:
    """All but some of what a lane has left of a batch is delivered."""
    (entry,) = [entry for entry in spool.entries(lane) if entry.seq == seq]
    batch = queue.load(spool.db, spool.sealer, lane, entry)
    numbers = batch.items or range(batch.count)
    rest = batch.pick([at for at, number in enumerate(numbers) if number in left]) if left else None
    settlement = Settlement(Counts(delivered=entry.events - len(left)), rest=rest)
    change = queue.settle(spool.db, spool.sealer, lane, seq, settlement, LIMITS, 1.0)
    assert change is not None
    figures.settled(lane, change)


def two_rests(left: Sequence[int], other: Sequence[int]) -> tuple[Spool, Figures, int, int, int]:
    """A spool and its figures, two lanes that have left these events of one batch, and its place."""
    spool = Spool()
    a, b = spool.activate(1, a=None, b=None).values()
    seq = spool.enter(1, [a, b], count=4)
    made = Figures.of(spool.db, spool.sealer)
    settle(spool, made, a, seq, left)
    settle(spool, made, b, seq, other)
    return spool, made, a, b, seq


@pytest.mark.parametrize("damaged", ["zeroblob(80)", "CAST(x'ff00fe' AS TEXT)"])
def test_a_rest_that_is_damaged_shares_no_events(damaged: str) -> None:
    """A flipped bit in the header of a row makes a text of its bytes, which Python refuses to decode."""
    spool, _, a, _, _ = two_rests((0, 1), (1, 2))
    spool.db.execute(f"UPDATE rest SET body = {damaged} WHERE lane = ?", (a,))

    assert queue.items(spool.db, spool.sealer, a, spool.entries(a)[0]) == frozenset()
    assert Figures.of(spool.db, spool.sealer).total().events == 2


def test_damage_to_a_rest_that_was_counted_is_forgotten_with_the_last_event() -> None:
    spool, made, a, b, seq = two_rests((1, 2), (1, 3))
    spool.db.execute("UPDATE rest SET body = zeroblob(80) WHERE lane = ?", (b,))
    settle(spool, made, a, seq, ())
    (entry,) = spool.entries(b)
    change = queue.settle(spool.db, spool.sealer, b, seq, Settlement(Counts(damaged=entry.events)), LIMITS, 1.0)
    assert change is not None
    made.settled(b, change)

    assert (made.total(), made.again) == (Amount(0, 0), 0)


def test_of_lanes_for_which_nothing_waits_nothing_is_kept_and_one_that_is_filled_again_has_changed() -> None:
    made, one = Figures.none(), frozenset({1})
    marks = set()
    for _ in range(3):
        made.add(Revision(0, 1), one, 2, 100)
        marks.add(made.changes[1])
        made.add(Revision(0, 1), one, -2, -100)
        assert made.changes == {}

    assert len(marks) == 3
