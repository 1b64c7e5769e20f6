"""Loans: memory for unpacked batches, which lanes borrow before they load and give back once answers are noted.

The spool knows the sealed size of a batch alone, and DEFLATE makes up to 1032 bytes of one. So a request first borrows
what an ordinary one takes, and loads as many of its batches as fit. A batch that does not fit by itself borrows the
most that it can become, or all that there is: then it goes alone. What was lent in excess goes back after loading.

    its own   of each head of a lane (`heads`): one ordinary request, always; so it waits for others with its further
              requests alone
    shared    by all lanes, first come, first served: further requests, and large batches

A lane that has had no answer for a while keeps its requests, but what it holds of the shared memory is set aside: it
counts no longer, and until it is back the lane borrows no more of that. As much can be set aside as is shared. So all
lanes hold at most twice what is shared, their own, and one batch that is larger than that.

After a process that was killed, perhaps for its memory, the first requests of each head are single batches that borrow
all that is shared: whatever the batch is, it had the whole process, and each start takes some off the queue.
"""

from __future__ import annotations

import trio

REQUEST_BYTES = 2 << 20
"""What an ordinary request takes, and each lane has for itself."""
SHARED_BYTES = 32 << 20
CAREFUL_REQUESTS = 32
"""Of each lane, after a process that was killed; more than are under way at once."""
MOST_UNPACKED = 1032
"""Bytes that one of DEFLATE becomes at most (https://zlib.net/zlib_tech.html)."""


class Lender:
    """What the lanes of a process share; `careful` after one that was killed."""

    def __init__(self, shared: int | None = None, *, careful: bool = False) -> None:
        self.shared = self.free = self.room_aside = SHARED_BYTES if shared is None else shared
        self.careful_requests = CAREFUL_REQUESTS if careful else 0
        self._queue: list[Loan] = []

    async def lend(self, loan: Loan) -> None:
        """Wait for its turn. On cancel, nothing is lent."""
        self._queue.append(loan)
        self.serve()
        try:
            if not loan.lent.is_set():
                await loan.lent.wait()
        except trio.Cancelled:
            loan.give_back()
            raise

    def serve(self) -> None:
        """Lend to those that wait, in their order; what cannot be lent now holds up nothing but shared memory."""
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
        """It waits no longer."""
        self._queue.remove(loan)


class Borrower:
    """One head of a lane; below, that is what is called a lane."""

    def __init__(self, lender: Lender) -> None:
        self.lender = lender
        self.loans: set[Loan] = set()
        """Those that were lent, and those that wait."""
        self._careful = lender.careful_requests
        self._waiting: set[trio.CancelScope] = set()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_careful(self) -> bool:
        """Whether requests are to be single batches that borrow all."""
        return self._careful > 0

    @property
    def has_own(self) -> bool:
        """Whether it holds what it has for itself."""
        return any(loan.is_own for loan in self.loans)

    @property
    def has_aside(self) -> bool:
        """Whether something of it was set aside and is not back."""
        return any(loan.aside for loan in self.loans)

    async def borrow(self, size: int = REQUEST_BYTES) -> Loan | None:
        """Wait for memory; None after `leave_queue`."""
        loan = Loan(self, self.lender.shared if self.is_careful else min(size, self.lender.shared))
        loan.is_ordinary = size <= REQUEST_BYTES and not self.is_careful
        self.loans.add(loan)
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                await self.lender.lend(loan)
            finally:
                self._waiting.discard(scope)
            return loan
        return None

    def leave_queue(self) -> None:
        """Whoever waits for memory goes on without."""
        for scope in self._waiting:
            scope.cancel("the session ends")

    def set_aside(self) -> None:
        """Let others have what this lane holds of the shared memory, as far as it may be set aside.

        From now on its requests need not be alone: a lane without answers would keep all the others waiting again.
        """
        self._careful = 0
        for loan in self.loans:
            loan.set_aside()
        self.lender.serve()

    def came_back(self, loan: Loan) -> None:
        """One request less; if it held memory, the process lived through it."""
        self.loans.discard(loan)
        if loan.lent.is_set():
            self._careful = max(0, self._careful - 1)

    def give_back(self) -> None:
        """All of it: the session is over."""
        for loan in list(self.loans):
            loan.give_back()


class Loan:
    """What one request holds."""

    def __init__(self, borrower: Borrower, size: int) -> None:
        self.borrower, self.size = borrower, size
        self.is_ordinary = self.is_own = False
        self.lent = trio.Event()
        self.aside = 0
        self._held = size

    def hold(self, size: int) -> None:
        """So much was loaded; the rest goes back, if the request need not be alone."""
        self._held = min(size, self.size)
        if not self.borrower.is_careful:
            self._shrink()
            self.borrower.lender.serve()

    def set_aside(self) -> None:
        """It counts no longer, if there is room aside; see `Borrower.set_aside`."""
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
        """Let others have it; harmless where it is back already."""
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
