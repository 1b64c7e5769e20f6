"""Memory for unpacked batches is lent to lanes: bounded, in order, and never kept from those that deliver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from shipper.pipeline.memory.loans import CAREFUL_REQUESTS, REQUEST_BYTES, Borrower, Lender, Loan

BIG = REQUEST_BYTES + 1


class Waiting:
    """Somebody who waits for a loan."""

    def __init__(self) -> None:
        self.loan: Loan | None = None
        self.is_over = False

    async def borrow(self, borrower: Borrower, size: int) -> None:
        self.loan = await borrower.borrow(size)
        self.is_over = True


async def lent(borrower: Borrower, size: int = REQUEST_BYTES) -> Loan:
    loan = await borrower.borrow(size)
    assert loan is not None
    return loan


@asynccontextmanager
async def waiting(borrower: Borrower, size: int = REQUEST_BYTES) -> AsyncIterator[Waiting]:
    """It waits when the block begins; at its end it is over, or cancelled."""
    who = Waiting()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(who.borrow, borrower, size)
        await trio.testing.wait_all_tasks_blocked()
        yield who
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_each_lane_has_one_ordinary_request_whatever_others_hold() -> None:
    lender = Lender(BIG)
    await lent(Borrower(lender), BIG)

    assert (await lent(Borrower(lender))).is_own
    assert lender.free == 0


async def test_further_requests_wait_in_their_order() -> None:
    lender = Lender(2 * BIG)
    first, second, third = (Borrower(lender) for _ in range(3))
    held = await lent(first, BIG)
    async with waiting(second, 2 * BIG) as large, waiting(third, BIG) as small:
        assert (second.is_waiting, third.is_waiting) == (True, True)
        held.give_back()
        await trio.testing.wait_all_tasks_blocked()
        assert (large.is_over, small.is_over) == (True, False)
        assert large.loan is not None
        large.loan.give_back()
        await trio.testing.wait_all_tasks_blocked()

        assert small.is_over
        assert not third.is_waiting


async def test_who_waits_for_shared_memory_gets_what_the_lane_has_for_itself_once_it_is_back() -> None:
    lender = Lender(BIG)
    await lent(Borrower(lender), BIG)
    lane = Borrower(lender)
    own = await lent(lane)
    async with waiting(lane) as further:
        assert not further.is_over
        own.give_back()
        await trio.testing.wait_all_tasks_blocked()

        assert further.loan is not None
        assert further.loan.is_own


async def test_what_is_larger_than_all_that_is_shared_goes_alone() -> None:
    lender = Lender(BIG)
    loan = await lent(Borrower(lender), 1000 * BIG)
    loan.hold(100 * BIG)

    assert lender.free == 0
    loan.give_back()
    assert lender.free == BIG


async def test_what_was_lent_in_excess_goes_back_after_loading() -> None:
    lender = Lender(10 * BIG)
    loan = await lent(Borrower(lender), 10 * BIG)
    loan.hold(BIG)

    assert lender.free == 9 * BIG
    loan.give_back()
    loan.give_back()
    assert lender.free == 10 * BIG


async def test_a_lane_without_answers_keeps_no_shared_memory_from_others_and_borrows_no_more() -> None:
    lender = Lender(BIG)
    silent = Borrower(lender)
    held = await lent(silent, BIG)
    async with waiting(Borrower(lender), BIG) as healthy, waiting(silent, BIG) as more:
        silent.set_aside()
        silent.set_aside()
        await trio.testing.wait_all_tasks_blocked()
        assert healthy.loan is not None
        healthy.loan.give_back()
        await trio.testing.wait_all_tasks_blocked()
        assert not more.is_over
        held.give_back()
        await trio.testing.wait_all_tasks_blocked()

        assert more.is_over
        assert lender.room_aside == BIG


async def test_no_more_is_set_aside_than_is_shared() -> None:
    lender = Lender(BIG)
    first, second = Borrower(lender), Borrower(lender)
    await lent(first, BIG)
    first.set_aside()
    await lent(second, BIG)
    second.set_aside()

    assert (lender.free, lender.room_aside) == (0, 0)


async def test_nothing_stays_lent_when_sessions_end_or_are_cancelled() -> None:
    lender = Lender(BIG)
    lane, other = Borrower(lender), Borrower(lender)
    await lent(lane, BIG)
    await lent(lane)
    async with waiting(other, BIG):
        pass
    async with waiting(other, BIG) as over:
        other.leave_queue()
        await trio.testing.wait_all_tasks_blocked()
        assert (over.is_over, over.loan) == (True, None)
    lane.set_aside()
    lane.give_back()

    assert (lender.free, lender.room_aside, lane.loans, other.loans) == (BIG, BIG, set(), set())


async def test_after_a_process_that_was_killed_the_first_requests_of_all_lanes_go_one_by_one() -> None:
    lender = Lender(10 * BIG, careful=True)
    first, second = Borrower(lender), Borrower(lender)
    for _ in range(CAREFUL_REQUESTS):
        loan = await lent(first)
        loan.hold(1)
        async with waiting(second) as other:
            assert not other.is_over
        loan.give_back()
    assert not first.is_careful

    assert (await lent(first)).is_own
    assert second.is_careful


async def test_a_lane_without_answers_is_alone_only_once() -> None:
    lender = Lender(BIG, careful=True)
    silent, healthy = Borrower(lender), Borrower(lender)
    loan = await lent(silent)
    loan.hold(10)
    async with waiting(healthy) as other:
        silent.set_aside()
        await trio.testing.wait_all_tasks_blocked()

        assert other.is_over
        assert not silent.is_careful
