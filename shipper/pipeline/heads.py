"""The two heads of a lane: one for log events, one for keyed state.

Each head moves through its own entries, in the order of the store. It has its own backlog, memory and requests, so
neither waits for what the other has under way or has left behind. Barriers lie among the log events; a barrier is
reached when both heads have passed it, and everything below it is settled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from shipper.pipeline.backlog import Backlog
from shipper.pipeline.loans import Borrower, Lender
from shipper.process.signal import Signal
from shipper.spool.queue import Window
from shipper.spool.spool import Spool

Read = Callable[[int, int], Awaitable[Window]]
"""Returns the next entries of a head above a place, at most so many."""


class Head:
    """One head; `news` is set when there may be something to do."""

    def __init__(self, read: Read, lender: Lender) -> None:
        self.read, self.loans, self.news = read, Borrower(lender), Signal()


class Backlogs:
    """What a lane keeps of both heads from one session to the next."""

    def __init__(self, backoff: Callable[[], Iterator[float]]) -> None:
        self.logs, self.state = Backlog(backoff), Backlog(backoff)

    def __iter__(self) -> Iterator[Backlog]:
        yield self.logs
        yield self.state

    def rewind(self) -> None:
        """Begins a session with nothing under way."""
        for backlog in self:
            backlog.rewind()

    def next_due(self) -> float:
        """Returns when something that was left behind is due."""
        return min(backlog.next_due() for backlog in self)

    def has_room(self, now: float) -> bool:
        """Notes that dead letters may have room; returns whether events that waited for it are due now."""
        logs, state = self.logs.has_room(now), self.state.has_room(now)
        return logs or state

    @property
    def barrier(self) -> int | None:
        """Returns the lowest barrier that the log events have passed."""
        return self.logs.barriers[0] if self.logs.barriers else None

    def problem(self) -> tuple[str | None, str]:
        """Returns why something was left behind, with its code; None if nothing was."""
        first = self.logs if self.logs.problem() else self.state
        return first.problem(), first.code()

    def barrier_is_reached(self) -> bool:
        """Whether both heads have settled everything below this place."""
        return self.logs.barrier_is_reached() and self.state.is_settled_below(self.logs.barriers[0])


class Heads:
    """The heads of one lane."""

    def __init__(self, lane: int, spool: Spool, lender: Lender) -> None:
        self.logs = Head(lambda after, limit: spool.window_of_logs(lane, after, limit), lender)
        self.state = Head(lambda after, limit: spool.window_of_state(lane, after, limit), lender)

    def __iter__(self) -> Iterator[Head]:
        yield self.logs
        yield self.state

    def wake(self) -> None:
        """Wakes both heads: there may be something to do."""
        for head in self:
            head.news.set()

    @property
    def is_waiting_for_memory(self) -> bool:
        return any(head.loans.is_waiting for head in self)

    def give_back(self) -> None:
        """Gives all memory back at the end of a session."""
        for head in self:
            head.loans.give_back()
