"""What a head hands out in a session, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
import trio

from shipper.pipeline.feed import Feed
from shipper.pipeline.heads import Head
from shipper.pipeline.parcels import Parcel
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry, Window
from shipper.spool.schema import BARRIER
from tests.pipeline.test_backlog import entry, left_at


class Shown:
    """A head that shows the same entries whatever is asked."""

    def __init__(self, *entries: Entry) -> None:
        self.news, self._entries = trio.Event(), list(entries)

    async def read(self, after: int, limit: int) -> Window:
        return Window(self._entries, after)


@pytest.mark.parametrize(
    ("found", "under_way", "lowest"), [((entry(3, BARRIER),), (), 4), ((entry(4),), (4,), 4), ((), (), 6)]
)
async def test_a_question_whose_entry_cannot_be_sent_now_ends_without_an_answer(
    found: Sequence[Entry], under_way: Sequence[int], lowest: int, autojump_clock: trio.testing.MockClock
) -> None:
    """At a barrier, or where a request is under way with it; and where nothing is left, its target is forgotten."""
    backlog = left_at("a", 3, 5, now=trio.current_time())
    backlog.hand_out([entry(seq) for seq in under_way])
    told: list[str] = []
    feed = Feed(
        cast(Head, Shown(*found)),
        backlog,
        Feeding(),
        lingers=lambda: False,
        on_nothing_asked=lambda: told.append("nothing asked"),
    )

    async def hand_out(parcel: Parcel) -> bool:
        raise AssertionError("nothing is to be sent")

    await trio.sleep(60)
    assert await feed._ask_target(hand_out)
    assert told == ["nothing asked"]
    assert backlog.lowest() == lowest
    assert list(backlog.closed) == (["a"] if found else [])


async def test_an_entry_that_nobody_takes_any_more_stays_behind_for_its_target(
    autojump_clock: trio.testing.MockClock,
) -> None:
    backlog = left_at("a", 3, 5, now=trio.current_time())
    head = cast(Head, Shown(entry(3)))
    feed = Feed(head, backlog, Feeding(), lingers=lambda: False, on_nothing_asked=lambda: None)

    async def hand_out(parcel: Parcel) -> bool:
        backlog.hand_out(parcel.entries)
        return False

    await trio.sleep(60)
    assert await feed._ask_target(hand_out)
    assert not backlog.outstanding
    assert (backlog.lowest(), list(backlog.closed)) == (3, ["a"])
