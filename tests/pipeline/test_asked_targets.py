"""What a lane hands out in a session, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import pytest

from shipper.pipeline.delivery.backlog import Backlog
from shipper.pipeline.delivery.feed import Feed, Read
from shipper.pipeline.delivery.parcels import Parcel
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry
from shipper.spool.schema import BARRIER
from tests.pipeline.test_backlog import entry, left_at

NOW = 60.0


def asking(backlog: Backlog) -> tuple[Feed, Read]:
    """A feed that has seen all above its front, and wants to read the entry to ask with."""
    feed = Feed(backlog, Feeding(), lambda: repeat(1.0))
    read = feed.next(NOW)
    assert isinstance(read, Read)
    assert not feed.read(read, [], NOW)
    read = feed.next(NOW)
    assert isinstance(read, Read)
    assert (read.after, read.limit, read.what) == (2, 1, "question")
    return feed, read


@pytest.mark.parametrize(
    ("found", "under_way", "lowest"), [((entry(3, BARRIER),), (), 4), ((entry(4),), (4,), 4), ((), (), 6)]
)
def test_a_question_whose_entry_cannot_be_sent_now_ends_without_an_answer(
    found: Sequence[Entry], under_way: Sequence[int], lowest: int
) -> None:
    """At a barrier, or where a request is under way with it; and where nothing is left, its target is forgotten."""
    backlog = left_at("a", 3, 5, now=0.0)
    backlog.hand_out([entry(seq) for seq in under_way])
    feed, read = asking(backlog)

    assert feed.read(read, list(found), NOW)
    assert backlog.lowest() == lowest
    assert list(backlog.closed) == (["a"] if found else [])


def test_an_entry_that_nobody_takes_any_more_stays_behind_for_its_target() -> None:
    backlog = left_at("a", 3, 5, now=0.0)
    feed, read = asking(backlog)
    assert not feed.read(read, [entry(3)], NOW)
    assert isinstance(feed.next(NOW), Parcel)
    feed.give_up(NOW)

    assert not backlog.outstanding
    assert (backlog.lowest(), list(backlog.closed)) == (3, ["a"])
