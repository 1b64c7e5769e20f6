"""Loads what todos of a lane hold: from memory or disk, and no more than there is memory for.

Todos are put together by what they take sealed; what that unpacks to is known only when it was loaded. So an ordinary
request borrows its share of memory first and takes as many todos as fit, and a todo that does not fit goes alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate

from shipper.event import Batch
from shipper.loans import MOST_UNPACKED, REQUEST_BYTES, Borrower, Loan
from shipper.recent import Recent
from shipper.spool.queue import Todo
from shipper.spool.schema import BATCH
from shipper.spool.spool import Spool

Loaded = list[tuple[Todo, Batch]]


class Loading:
    """For the lane with the id `lane`. `is_ending` says whether the session ends, and nothing is to be sent any more.

    `on_damage` is called for a todo that stays unreadable after a repair; it is left out.
    """

    def __init__(
        self,
        *,
        lane: int,
        spool: Spool,
        recent: Recent,
        loans: Borrower,
        is_ending: Callable[[], bool],
        on_damage: Callable[[Todo], Awaitable[None]],
    ) -> None:
        self._lane, self._spool, self._recent, self._loans = lane, spool, recent, loans
        self._is_ending, self._on_damage = is_ending, on_damage

    async def load(self, todos: Sequence[Todo]) -> tuple[Loan | None, Loaded, Sequence[Todo]]:
        """As many of the todos as an ordinary request has memory for, else one alone; none if the session ends.

        Returns the loan, the todos with their batches, and the todos that are left.
        """
        loan, loaded, left = None, Loaded(), todos
        if not self._loans.is_careful and not self._is_ending() and (loan := await self._loans.borrow()) is not None:
            loaded, left = await self._load(todos, REQUEST_BYTES)
            if len(left) == len(todos):
                loan.give_back()
        if len(left) == len(todos) and not self._is_ending():
            loan = await self._loans.borrow(max(todos[0].size * MOST_UNPACKED, REQUEST_BYTES + 1))
            if loan is not None:
                (loaded, _), left = await self._load(todos[:1], None), todos[1:]
        if loan is not None:
            loan.hold(sum(len(batch.body) for _, batch in loaded))
        return loan, loaded, left

    async def _load(self, todos: Sequence[Todo], limit: int | None) -> tuple[Loaded, Sequence[Todo]]:
        """From memory or disk, and the todos from the first on that goes beyond `limit` bytes.

        What cannot be read is repaired first, and only what stays damaged counts as that.
        """
        every = todos
        found = {todo.seq: batch for todo in todos if (batch := self._recently(todo)) is not None}
        for repaired in (False, True):
            missing = [todo for todo in todos if todo.seq not in found]
            if not missing:
                break
            if repaired:
                await self._spool.repair_once()
            loaded, beyond = await self._spool.load_all(self._lane, missing, limit)
            found |= loaded
            todos = todos[: todos.index(beyond[0])] if beyond else todos
        todos = fitting(todos, found, limit)
        left = every[len(todos) :]
        for todo in left:
            if todo.seq in found and todo.kind == BATCH:
                self._recent.keep(self._lane, todo.seq, found[todo.seq])
        for todo in todos:
            if todo.seq not in found:
                await self._on_damage(todo)
        return [
            (await self._counted(todo, found[todo.seq]), found[todo.seq]) for todo in todos if todo.seq in found
        ], left

    def _recently(self, todo: Todo) -> Batch | None:
        return self._recent.take(self._lane, todo.seq) if todo.kind == BATCH else None

    async def _counted(self, todo: Todo, batch: Batch) -> Todo:
        if batch.count == todo.events:
            return todo
        return await self._spool.recount(self._lane, todo, batch.count)


def fitting(todos: Sequence[Todo], found: Mapping[int, Batch], limit: int | None) -> list[Todo]:
    """The first todos, as many as have `limit` bytes together; those that were not found have none."""
    sizes = accumulate(len(found[todo.seq].body) if todo.seq in found else 0 for todo in todos)
    return [todo for todo, size in zip(todos, sizes, strict=True) if limit is None or size <= limit]
