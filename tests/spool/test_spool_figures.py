"""Figures: sums over routes, the same counted beside the rows and from them."""

from __future__ import annotations

import sqlite3
from collections import Counter

from shipper.messages import Revision
from shipper.spool import schema
from shipper.spool.figures import Amount, Figures

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
    assert list(figures().by_revision([2, 1])) == [
        (ONE, 1, Amount(13, 130)),
        (ONE, 2, Amount(10, 100)),
        (TWO, 2, Amount(5, 50)),
    ]


def test_what_waits_is_listed_though_its_count_was_damaged_to_nought() -> None:
    """An order must find it: a barrier waits for it."""
    made = Figures.none()
    made.add(ONE, frozenset({1}), 0, 30)

    assert list(made.by_revision([1])) == [(ONE, 1, Amount(0, 30))]


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

    assert len(list(held.by_revision(range(200)))) == 200
    assert len(held.revisions({(Revision(0, number), number) for number in range(200)})) == 200
    assert events.reads <= 10 * 200


def test_the_sum_of_a_revision_counts_an_event_once_however_many_of_the_lanes_hold_it() -> None:
    every = {(revision, lane) for revision in (ONE, TWO) for lane in (1, 2)}

    assert figures().revisions(every) == {ONE: Amount(13, 130), TWO: Amount(5, 50)}
    assert figures().revisions({(ONE, 2), (TWO, 1)}) == {ONE: Amount(10, 100)}


def test_a_batch_of_three_lanes_of_which_the_middle_one_holds_a_rest_is_counted_once() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.prepare(db)
    rows = [(1, 7, schema.BATCH, 4, 40), (2, 7, schema.REST, 1, 9), (3, 7, schema.BATCH, 4, 40)]
    db.executemany("INSERT INTO todo VALUES (?, ?, ?, 0, 1, ?, ?, 0)", rows)

    assert Figures.of(db).events == {(ONE, frozenset({1, 3})): 4, (ONE, frozenset({2})): 1}


def test_what_goes_to_zero_leaves_no_group() -> None:
    made = figures()
    made.add(TWO, frozenset({2}), -5, -50)

    assert (TWO, frozenset({2})) not in made.events
    assert (TWO, frozenset({2})) not in made.bytes
