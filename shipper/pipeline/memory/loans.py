"""Loans: memory for unpacked batches, which lanes borrow before they load and return once answers are noted.

The spool knows only the sealed size of a batch, and DEFLATE may unpack a byte to 1032. So a request first borrows what
an ordinary request takes, and loads as many of its batches as fit. A batch that does not fit alone borrows the most
that it can become, or everything: then it goes alone. After loading, the excess is returned.

    its own   of each lane: one ordinary request, always; so a lane waits for others only with its further requests
    shared    by all lanes, first come, first served: further requests, and large batches

A lane that has had no answer for a while keeps its requests, but its shared memory is set aside: it no longer counts,
and until it is returned the lane borrows no more of it. As much as is shared can be set aside. So all lanes together
hold at most twice the shared memory, their own, and one batch that is larger than that.

After a process that was killed, perhaps for its memory, the first requests of each lane are single batches that borrow
everything: whatever the batch is, it has the whole process, and each start takes some of them off the queue.
"""

from __future__ import annotations

import trio

from shipper.sdk.feeding import MOST_BYTES

REQUEST_BYTES = MOST_BYTES
"""What an ordinary request takes, and what each lane has as its own."""
SHARED_BYTES = 32 << 20
CAREFUL_REQUESTS = 32
"""Careful requests of each lane after a process that was killed; more than are under way at once."""
MOST_UNPACKED = 1032
"""The most bytes that one byte of DEFLATE becomes (https://zlib.net/zlib_tech.html)."""


class Lender:
    """The memory that the lanes of a process share; `careful` after a process that was killed."""

    def __init__(self, shared: int | None = None, *, careful: bool = False) -> None:
        self.shared = self.free = self.room_aside = SHARED_BYTES if shared is None else shared
        self.careful_requests = CAREFUL_REQUESTS if careful else 0
        self._queue: list[Loan] = []

    def ask(self, loan: Loan) -> bool:
        """Queues a loan; returns whether it was lent at once."""
        self._queue.append(loan)
        self.serve()
        return loan.lent.is_set()

    def serve(self) -> None:
        """Lends to those that wait, in order; a loan that must wait blocks only later loans of shared memory."""
        is_held_up = False
        for loan in list(self._queue):
            borrower = loan.borrower
            if loan.is_ordinary and not borrower.has_own:
                self._lend(loan, own=True)
            elif not borrower.has_aside:
                is_held_up = is_held_up or loan.size > self.free
                if not is_held_up:
                    self._lend(loan, own=False)

    def _lend(self, loan: Loan, *, own: bool) -> None:
        self._queue.remove(loan)
        loan.is_own = own
        if not own:
            self.free -= loan.size
        loan.lent.set()

    def leave(self, loan: Loan) -> None:
        """Takes a loan out of the queue."""
        self._queue.remove(loan)


class Borrower:
    """A lane."""

    def __init__(self, lender: Lender) -> None:
        self.lender = lender
        self.loans: set[Loan] = set()
        """The loans that were lent, and those that wait."""
        self._careful = lender.careful_requests
        self._waiting: set[trio.CancelScope] = set()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_careful(self) -> bool:
        """Whether requests are single batches that borrow everything."""
        return self._careful > 0

    @property
    def has_own(self) -> bool:
        """Whether it has borrowed its own memory."""
        return any(loan.is_own for loan in self.loans)

    @property
    def has_aside(self) -> bool:
        """Whether some of its memory was set aside and is not returned."""
        return any(loan.aside for loan in self.loans)

    async def borrow(self, size: int = REQUEST_BYTES) -> Loan | None:
        """Waits for memory; returns None after `leave_queue`."""
        loan = Loan(self, self.lender.shared if self.is_careful else min(size, self.lender.shared))
        loan.is_ordinary = size <= REQUEST_BYTES and not self.is_careful
        self.loans.add(loan)
        return loan if self.lender.ask(loan) or await self._is_lent(loan) else None

    async def _is_lent(self, loan: Loan) -> bool:
        """Waits for the loan's turn; returns False after `leave_queue`. On cancel, nothing is lent."""
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                await loan.lent.wait()
            except trio.Cancelled:
                loan.give_back()
                raise
            finally:
                self._waiting.discard(scope)
            return True
        return False

    def leave_queue(self) -> None:
        """Ends the waits for memory, without any."""
        for scope in self._waiting:
            scope.cancel("the session ends")

    def set_aside(self) -> None:
        """Sets the lane's shared memory aside for others, as far as there is room for that.

        From now on its requests are not careful: a lane without answers would keep all the others waiting again.
        """
        self._careful = 0
        for loan in self.loans:
            loan.set_aside()
        self.lender.serve()

    def came_back(self, loan: Loan) -> None:
        """Counts a careful request; if it held memory, the process survived it."""
        self.loans.discard(loan)
        if loan.lent.is_set():
            self._careful = max(0, self._careful - 1)

    def give_back(self) -> None:
        """Gives all memory back at the end of a session."""
        for loan in list(self.loans):
            loan.give_back()


class Loan:
    """The memory of one request."""

    def __init__(self, borrower: Borrower, size: int) -> None:
        self.borrower, self.size = borrower, size
        self.is_ordinary = self.is_own = False
        self.lent = trio.Event()
        self.aside = 0
        self._held = size

    def hold(self, size: int) -> None:
        """Keeps what was loaded and returns the rest, unless the request must go alone."""
        self._held = min(size, self.size)
        if not self.borrower.is_careful:
            self._shrink()
            self.borrower.lender.serve()

    def set_aside(self) -> None:
        """Sets the loan aside, if there is room; see `Borrower.set_aside`."""
        self._shrink()
        lender = self.borrower.lender
        if self._is_shared and 0 < self.size <= lender.room_aside:
            self.aside = self.size
            lender.room_aside -= self.size
            lender.free += self.size

    @property
    def _is_shared(self) -> bool:
        return self.lent.is_set() and not (self.is_own or self.aside)

    def _shrink(self) -> None:
        if self._is_shared:
            self.borrower.lender.free += self.size - self._held
            self.size = self._held

    def give_back(self) -> None:
        """Gives the memory back; harmless if that was done already."""
        if self not in self.borrower.loans:
            return
        lender = self.borrower.lender
        self.borrower.came_back(self)
        if not self.lent.is_set():
            lender.leave(self)
        elif self._is_shared:
            lender.free += self.size
        else:
            lender.room_aside += self.aside
        lender.serve()
