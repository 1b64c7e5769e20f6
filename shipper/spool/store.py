"""The store: durable transactions on one SQLite database, from trio.

    async with open_store(path, keys, prepare=schema.prepare) as store:
        seq = await store.do(lambda db: …)              # durable when it returns
        row = await store.read(lambda db: …)            # on a snapshot, beside the writer

Operations are pure functions of the database: one may run several times before a transaction with it is durable. All
waiting operations form one transaction (`writer.py`); readers have connections of their own. The tables belong to the
modules above, sealing to `seal.py`.

At start the database is not read as a whole: the WAL of a killed process is checked by its checksums, every body by its
seal, and damage is found by the read that meets it. (Rejected: `PRAGMA quick_check`, which reads 300 MB/s at best and
does not find a flipped bit in a body.) Damage is repaired at once, as a new generation: deleting a row with wrong
overflow pages could free those of its neighbours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import outcome
import trio

from shipper.process.environment import REAL, Environment, ToLoop
from shipper.sdk.codes import Code
from shipper.sdk.errors import Backpressure, ShipperError, anew
from shipper.spool import database
from shipper.spool.database import Prepare
from shipper.spool.disk import Disk, Opened
from shipper.spool.inbox import Operation
from shipper.spool.keys import StateKey
from shipper.spool.readers import Unreadable
from shipper.spool.report import Report
from shipper.spool.seal import Damaged
from shipper.spool.writer import FULL, GaveUp, Listener

__all__ = ["Damaged", "Report", "StateKey", "Store", "StoreFailed", "open_store"]

T = TypeVar("T")

_PATIENCE_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
_NEVER_GIVEN_BACK: list[ExitStack] = []
"""Directories whose writer thread hangs in a write: they stay locked until the process ends."""


class StoreFailed(ShipperError):
    """The store was closed while it could not commit; the operation may be durable or not."""

    code = Code.DISK_FAILED


class Store:
    """One database; made by `open_store`."""

    def __init__(self, opened: Opened) -> None:
        self.directory = opened.directory
        self.sealer = opened.sealer
        self.spool_id = opened.ring.spool_id
        self.local_state_key = opened.ring.local
        """Whether the directory is sealed by its own `state.key`; the caller logs it."""
        self.report = Report.load(opened.generation.db)
        """The losses by damage that were not handled yet, in this process or before, or None.

        The transaction that handles it runs `Report.forget(db)`.
        """
        self.problem: str | None = None
        """A sentence about the failure that blocks the store, or None."""
        self.code: str = Code.OK
        """The code of the problem."""
        self._on_problem: list[Callable[[str | None], None]] = []
        self._on_report: list[Callable[[Report], None]] = []
        self._waiting: dict[Operation, float] = {}
        self._ended = trio.Event()
        self._left: str | None = None

    # -- for the modules above -----------------------------------------------------------------------------------------

    async def do(self, op: Callable[[sqlite3.Connection], T], *, urgent: bool = False, patience: float = 0.0) -> T:
        """Runs `op` in a transaction; returns its result once it is durable, or raises its error.

        `op` is queued at once, cancelled or not, and cannot be withdrawn: a cancel takes effect after it. If `op` is
        not durable 5 s after a cancel, this raises Cancelled and `op` stays queued. Urgent ones go first; those with
        `patience` go with others, after so many seconds at most. Raises StoreFailed if the store closes before it could
        commit.
        """
        return cast(T, await self._submit(Operation(op, _resumption(), urgent=urgent, patience=patience)))

    async def append(
        self,
        op: Callable[[sqlite3.Connection], T],
        abandoned: Callable[[T], object] | None = None,
        *,
        wait: bool = True,
    ) -> T:
        """As `do`, but waits for room while the disk is full; a cancel withdraws an `op` that waits.

        If `wait` is false, this raises Backpressure instead, and during any other problem, and `op` does not run.
        `abandoned` is called with the result of an `op` that became durable after its caller was cancelled and gone.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not wait:
            self._require_no_problem()
        operation = Operation(op, _resumption(), abandoned=abandoned, needs_room=True, waits=wait)
        return cast(T, await self._submit(operation))

    def append_soon(self, op: Callable[[sqlite3.Connection], T], ended: Callable[[outcome.Outcome[T]], object]) -> None:
        """As `append` without `wait`, but returns at once; `ended` gets the result, and must not raise."""
        self._require_no_problem()
        self._begin(Operation(op, ended, needs_room=True, waits=False))

    def post(self, op: Callable[[sqlite3.Connection], object], *, urgent: bool = False, patience: float = 0.0) -> None:
        """As `do`, without waiting. `op` must not raise: `open_store` would end with its error."""
        self._hand_over(Operation(op, urgent=urgent, patience=patience))

    def hurry(self) -> None:
        """Has what `do` keeps waiting with patience committed now: somebody waits for it."""
        if any(operation.patience for operation in self._waiting):
            self.post(_nothing)

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Runs a query on a snapshot with every durable operation; it must return values, never a cursor.

        Where stored bytes are unreadable, the store is repaired and the query runs once more on the result; raises
        Damaged if that fails too. After a cancel the query may run on, and its result is ignored.
        """
        try:
            return await self._readers.read(query)
        except Unreadable as error:
            await self._repair(error.path)
        try:
            return await self._readers.read(query)
        except Unreadable as error:
            raise Damaged(str(error)) from error

    async def repair(self) -> None:
        """Copies readable rows to a new generation, such as before deleting a row with a broken seal."""
        await self._repair(self._readers.path)

    async def _repair(self, damaged: Path) -> None:
        await self._submit(Operation(_nothing, _resumption(), urgent=True, repairs=damaged))

    def on_problem(self, callback: Callable[[str | None], None]) -> None:
        """Registers a callback for changes of `problem`."""
        self._on_problem.append(callback)

    def on_report(self, callback: Callable[[Report], None]) -> None:
        """Registers a callback for reports of losses; it runs before the results of operations after the repair."""
        self._on_report.append(callback)

    def is_failing(self) -> bool:
        """Whether changes cannot be stored; false if only intake waits for room, since accepted events are durable
        then."""
        return self.problem not in (None, FULL)

    @property
    def unread(self) -> str | None:
        """A sentence about why queries wait, or None."""
        return self._readers.problem

    def stalled_seconds(self) -> float:
        """How long the oldest operation has waited to become durable; this shows a hanging disk first."""
        return trio.current_time() - min(self._waiting.values(), default=trio.current_time())

    def disk_bytes(self) -> int:
        """Returns the bytes of all files in the state directory."""
        return self.directory.disk_bytes()

    # -- between trio and the writer -----------------------------------------------------------------------------------

    async def _submit(self, operation: Operation) -> Any:
        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            if self._writer.withdraw(operation):
                self._waiting.pop(operation, None)
                return trio.lowlevel.Abort.SUCCEEDED
            trio.lowlevel.spawn_system_task(self._lose_patience, operation, raise_cancel)
            return trio.lowlevel.Abort.FAILED

        self._begin(operation)
        return await trio.lowlevel.wait_task_rescheduled(abort)

    def _require_no_problem(self) -> None:
        if self.problem is not None:
            raise Backpressure(self.problem, code=self.code)

    def _begin(self, operation: Operation) -> None:
        self._hand_over(operation)
        self._waiting[operation] = trio.current_time()

    def _hand_over(self, operation: Operation) -> None:
        if self._ended.is_set():
            raise StoreFailed("the store is closed")
        self._writer.put(operation)

    async def _lose_patience(self, operation: Operation, raise_cancel: Callable[[], Any]) -> None:
        await trio.sleep(_PATIENCE_SECONDS)
        self._resume(operation, outcome.capture(raise_cancel))

    def _resume(self, operation: Operation, result: outcome.Outcome[Any]) -> None:
        if self._waiting.pop(operation, None) is not None and operation.resume is not None:
            operation.resume(result)

    def _answered(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            result = operation.taken()
            if operation in self._waiting:
                self._resume(operation, result)
            elif operation.resume is not None:
                self._pass_on(operation, result)
            elif isinstance(result, outcome.Error):
                self._fail(result.error)

    def _pass_on(self, operation: Operation, result: outcome.Outcome[Any]) -> None:
        if operation.abandoned is not None and isinstance(result, outcome.Value):
            operation.abandoned(result.value)

    def _set_problem(self, problem: str | None, code: str = Code.OK) -> None:
        self.problem, self.code = problem, code
        if problem is not None:
            self._refuse(Backpressure(problem, code=code))
        for callback in self._on_problem:
            callback(problem)

    def _refuse(self, error: Backpressure) -> None:
        """Fails queued operations that do not wait for room."""
        for operation in list(self._waiting):
            if not operation.waits and self._writer.withdraw(operation):
                self._resume(operation, outcome.Error(anew(error)))

    def _reported(self, report: Report) -> None:
        self.report = report
        for callback in self._on_report:
            callback(report)

    def _writer_ended(self, left: int, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, GaveUp):
            self._fail(error)
        elif left:
            self._left = f"{left} operations were not committed: {error}"
        self._end(str(error))

    def _end(self, reason: str) -> None:
        self._ended.set()
        for operation in list(self._waiting):
            self._resume(operation, outcome.Error(StoreFailed(f"not committed: {reason}")))

    def _fail(self, error: BaseException) -> None:
        """A bug, here or in an operation that was posted: the whole store ends with it."""
        self._set_problem(f"failed: {type(error).__name__}", Code.INTERNAL_ERROR)
        self._nursery.start_soon(_raise, error)

    # -- from start to end ---------------------------------------------------------------------------------------------

    def _start(
        self, nursery: trio.Nursery, opened: Opened, prepare: Prepare, disk: Disk, environment: Environment
    ) -> None:
        self._nursery = nursery
        self._readers = disk.readers(opened, environment)
        self._readers.open_all()
        self._writer = disk.writer(opened, prepare, self._listener(environment.to_loop()), environment)
        self._writer.start()

    def _listener(self, soon: ToLoop) -> Listener:
        def renewed(path: Path, report: Report | None) -> None:
            self._readers.move(path)
            if report is not None:
                soon(self._reported, report)

        return Listener(
            answered=lambda operations: soon(self._answered, operations),
            problem=lambda problem, code: soon(self._set_problem, problem, code),
            renewed=renewed,
            ended=lambda left, error: soon(self._writer_ended, left, error),
        )

    async def _close(self) -> bool:
        """Commits queued operations; returns False if the disk hangs, so that the writer still runs."""
        self._readers.close()
        self._writer.stop()
        with trio.move_on_after(_CLOSE_SECONDS):
            await self._ended.wait()
            return True
        self._left = "the disk does not answer"
        self._end(self._left)
        return False


@asynccontextmanager
async def open_store(
    directory: Path,
    keys: Sequence[StateKey] | None,
    *,
    prepare: Prepare,
    sealed: Collection[tuple[str, str]] = (),
    disk: Disk | None = None,
    environment: Environment = REAL,
) -> AsyncIterator[Store]:
    """Owns a state directory, and keeps its newest generation open, while the block runs.

    `prepare` makes or migrates the tables; it runs inside a transaction, also on empty databases. `sealed` are the
    columns (table, column) that hold sealed values. A damaged database is repaired: `Store.report` lists the losses.
    Raises StateBusy, StateLocked or StartFailed before the block, and StoreFailed after it if queued operations could
    not be committed. Closing takes 10 s at most, even if the disk hangs.
    """
    prepare, disk = database.with_damage(prepare), disk or Disk()
    with ExitStack() as owned:
        opened = await environment.in_thread(disk.open, owned, directory, keys, prepare, sealed, environment.entropy)
        store = Store(opened)
        async with trio.open_nursery() as nursery:
            store._start(nursery, opened, prepare, disk, environment)
            try:
                yield store
            finally:
                with trio.CancelScope(shield=True):
                    if not await store._close():
                        _NEVER_GIVEN_BACK.append(owned.pop_all())
        if store._left:
            raise StoreFailed(store._left)


def _resumption() -> Callable[[outcome.Outcome[Any]], object]:
    """Returns what has the present task go on."""
    return partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())


def _nothing(db: sqlite3.Connection) -> None:
    """An empty operation, for its effects on the queue."""


async def _raise(error: BaseException) -> None:
    raise error
