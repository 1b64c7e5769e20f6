"""The store: durable transactions on one SQLite database, from trio.

    async with open_store(path, keys, prepare=schema.prepare) as store:
        seq = await store.do(lambda db: …)              # durable when it returns
        row = await store.read(lambda db: …)            # on a snapshot, beside the writer

Operations are functions of the database and of nothing else: they may run more than once before one transaction that
holds them is durable. All that wait are one transaction (`writer.py`), readers have connections of their own. What is
in the tables is the business of the modules above; what is sealed, of `seal.py`.

At start the database is not read as a whole: a WAL that a killed process left is checked by its checksums, every body
by its seal, and what is damaged is found where it is read. (Refused: `PRAGMA quick_check`, which reads 300 MB/s at
best and says nothing about a flipped bit in a body.) Damage that anybody meets is repaired at once, as a new
generation: deleting a row whose overflow pages are wrong could free those of its neighbours.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import outcome
import trio

from shipper.sdk.codes import Code
from shipper.sdk.errors import Backpressure, ShipperError
from shipper.spool import database
from shipper.spool.database import Connect, Generation, Prepare
from shipper.spool.directory import StateDirectory, own, starting
from shipper.spool.inbox import Operation
from shipper.spool.keys import Keyring, StateKey, open_keyring
from shipper.spool.opening import forget_unused_keys, open_newest, refuse_takeover
from shipper.spool.readers import Readers, Unreadable
from shipper.spool.report import Report
from shipper.spool.seal import Damaged, Sealer
from shipper.spool.writer import FULL, GaveUp, Listener, Writer

__all__ = ["Damaged", "Report", "StateKey", "Store", "StoreFailed", "open_store"]

T = TypeVar("T")

_PATIENCE_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
_NEVER_GIVEN_BACK: list[ExitStack] = []
"""Directories whose writer hangs in the disk: it may still write, so they are ours until the process ends."""


class StoreFailed(ShipperError):
    """The store was closed while it could not commit; what was asked for may be durable or not."""

    code = Code.DISK_FAILED


class Store:
    """One database; made by `open_store`."""

    def __init__(self, opened: _Opened) -> None:
        self.directory = opened.directory
        self.sealer = opened.sealer
        self.spool_id = opened.ring.spool_id
        self.local_state_key = opened.ring.local
        """Whether the directory is sealed by its own `state.key`, which deserves a line in the log."""
        self.report = Report.load(opened.generation.db)
        """What was lost to damage and not acted upon yet, in this process or before; None if nothing was.

        Whoever acts upon it runs `Report.forget(db)` in the same transaction.
        """
        self.problem: str | None = None
        """What keeps the store from doing its job, in a sentence, or None."""
        self.code: str = Code.OK
        """That of the problem."""
        self._on_problem: list[Callable[[str | None], None]] = []
        self._on_report: list[Callable[[Report], None]] = []
        self._waiting: dict[Operation, float] = {}
        self._ended = trio.Event()
        self._left: str | None = None

    # -- for the modules above -----------------------------------------------------------------------------------------

    async def do(self, op: Callable[[sqlite3.Connection], T], *, urgent: bool = False, patient: bool = False) -> T:
        """Run `op` in a transaction and return its result once that is durable; raises what `op` raised.

        It is handed over at once, cancelled or not, and cannot be taken back: a cancel is seen after it. Only if it
        is not durable 5 s after a cancel does the caller go, and `op` stays in line. Urgent ones go first, patient
        ones with what comes within 5 ms.
        Raises StoreFailed if the store closes before it could commit.
        """
        return cast(T, await self._submit(Operation(op, trio.lowlevel.current_task(), urgent=urgent, patient=patient)))

    async def append(
        self, op: Callable[[sqlite3.Connection], T], unheard: Callable[[T], object] | None = None, *, wait: bool = True
    ) -> T:
        """As `do`, but while the disk is full it waits for room; a cancel withdraws what waits, and it never runs.

        If `wait` is false it raises Backpressure, then and while there is any other problem, and has not run.
        `unheard` is called with the result of an `op` that became durable after its caller lost patience.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not wait and self.problem is not None:
            raise Backpressure(self.problem, code=self.code)
        task = trio.lowlevel.current_task()
        return cast(T, await self._submit(Operation(op, task, unheard=unheard, needs_room=True, waits=wait)))

    def post(self, op: Callable[[sqlite3.Connection], object], *, urgent: bool = False) -> None:
        """As `do`, but nobody waits. `op` must not raise: that ends `open_store` with its error."""
        self._hand_over(Operation(op, urgent=urgent))

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on a snapshot that holds all that was done; it returns values, never a cursor.

        Where stored bytes cannot be read, the store is repaired and the query runs once more, on what is left; raises
        Damaged if that does not help. On cancel, the query may run on for nobody.
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
        """Copy what can be read to a new generation, as before deleting a row whose seal does not open."""
        await self._repair(self._readers.path)

    async def _repair(self, damaged: Path) -> None:
        await self._submit(Operation(_nothing, trio.lowlevel.current_task(), urgent=True, repairs=damaged))

    def on_problem(self, callback: Callable[[str | None], None]) -> None:
        """Have `problem` told whenever it changes."""
        self._on_problem.append(callback)

    def on_report(self, callback: Callable[[Report], None]) -> None:
        """Have `report` told when a repair lost something; before any operation is answered that ran after it."""
        self._on_report.append(callback)

    def is_failing(self) -> bool:
        """Whether something cannot be noted; not if only intake waits for room: what was accepted is durable then."""
        return self.problem not in (None, FULL)

    @property
    def unread(self) -> str | None:
        """What keeps queries waiting, in a sentence, or None."""
        return self._readers.problem

    def stalled_seconds(self) -> float:
        """How long the oldest operation has waited to become durable; a disk that hangs shows here first."""
        return trio.current_time() - min(self._waiting.values(), default=trio.current_time())

    def disk_bytes(self) -> int:
        """Bytes of everything in the state directory."""
        return self.directory.disk_bytes()

    # -- between trio and the writer -----------------------------------------------------------------------------------

    async def _submit(self, operation: Operation) -> Any:
        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            if self._writer.withdraw(operation):
                self._waiting.pop(operation, None)
                return trio.lowlevel.Abort.SUCCEEDED
            trio.lowlevel.spawn_system_task(self._lose_patience, operation, raise_cancel)
            return trio.lowlevel.Abort.FAILED

        self._hand_over(operation)
        self._waiting[operation] = trio.current_time()
        return await trio.lowlevel.wait_task_rescheduled(abort)

    def _hand_over(self, operation: Operation) -> None:
        if self._ended.is_set():
            raise StoreFailed("the store is closed")
        self._writer.put(operation)

    async def _lose_patience(self, operation: Operation, raise_cancel: Callable[[], Any]) -> None:
        await trio.sleep(_PATIENCE_SECONDS)
        self._resume(operation, outcome.capture(raise_cancel))

    def _resume(self, operation: Operation, result: outcome.Outcome[Any]) -> None:
        if operation in self._waiting:
            del self._waiting[operation]
            trio.lowlevel.reschedule(operation.waiter, result)

    def _answered(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if operation in self._waiting:
                self._resume(operation, operation.result)
            elif operation.waiter is not None:
                self._tell_of(operation)
            elif isinstance(operation.result, outcome.Error):
                self._fail(operation.result.error)

    def _tell_of(self, operation: Operation) -> None:
        if operation.unheard is not None and isinstance(operation.result, outcome.Value):
            operation.unheard(operation.result.value)

    def _told(self, problem: str | None, code: str = Code.OK) -> None:
        self.problem, self.code = problem, code
        if problem is not None:
            self._turn_away(Backpressure(problem, code=code))
        for callback in self._on_problem:
            callback(problem)

    def _turn_away(self, error: Backpressure) -> None:
        """Answer what does not wait and is still in line."""
        for operation in list(self._waiting):
            if not operation.waits and self._writer.withdraw(operation):
                self._resume(operation, outcome.Error(error))

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
        self._told(f"failed: {type(error).__name__}", Code.INTERNAL_ERROR)
        self._nursery.start_soon(_raise, error)

    # -- from start to end ---------------------------------------------------------------------------------------------

    def _start(self, nursery: trio.Nursery, opened: _Opened, prepare: Prepare, connect: Connect) -> None:
        self._nursery = nursery
        self._readers = Readers(opened.generation.path, connect)
        self._readers.open_all()
        self._writer = Writer(self.directory, opened.generation, prepare, connect, self._listener())
        self._writer.start()

    def _listener(self) -> Listener:
        token = trio.lowlevel.current_trio_token()

        def soon(function: Callable[..., object], *args: Any) -> None:
            with contextlib.suppress(trio.RunFinishedError):  # then the process is ending, and nobody waits any more
                token.run_sync_soon(function, *args)

        def renewed(path: Path, report: Report | None) -> None:
            self._readers.move(path)
            if report is not None:
                soon(self._reported, report)

        return Listener(
            answered=lambda operations: soon(self._answered, operations),
            problem=lambda problem, code: soon(self._told, problem, code),
            renewed=renewed,
            ended=lambda left, error: soon(self._writer_ended, left, error),
        )

    async def _close(self) -> bool:
        """Commit what was handed over; False if the disk hangs, so that the writer is still there."""
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
    connect: Connect = database.connect,
) -> AsyncIterator[Store]:
    """Own a state directory, open its newest generation and keep it open for as long as the block runs.

    `prepare` makes or migrates the tables; it runs inside a transaction, also on empty databases. `sealed` are the
    columns (table, column) that hold sealed values. Any content of the database
    opens: `Store.report` says what had to be left behind. Raises StateBusy, StateLocked or StartFailed before
    the block, and StoreFailed after it if something that was handed over could not be committed. Closing takes 10 s at
    most, whatever the disk does.
    """
    prepare = database.with_damage(prepare)
    with ExitStack() as owned:
        opened = await trio.to_thread.run_sync(_open, owned, directory, keys, prepare, connect, sealed)
        store = Store(opened)
        async with trio.open_nursery() as nursery:
            store._start(nursery, opened, prepare, connect)
            try:
                yield store
            finally:
                with trio.CancelScope(shield=True):
                    if not await store._close():
                        _NEVER_GIVEN_BACK.append(owned.pop_all())
        if store._left:
            raise StoreFailed(store._left)


@dataclass(frozen=True, slots=True)
class _Opened:
    directory: StateDirectory
    ring: Keyring
    sealer: Sealer
    generation: Generation


def _open(
    owned: ExitStack,
    path: Path,
    keys: Sequence[StateKey] | None,
    prepare: Prepare,
    connect: Connect,
    sealed: Collection[tuple[str, str]],
) -> _Opened:
    directory = owned.enter_context(own(path))
    with starting(directory.path):
        ring = open_keyring(directory, keys)
        generation = open_newest(directory, prepare, connect, locked_out=ring.fresh)
        try:
            if ring.takes_over:
                refuse_takeover(ring, generation.db, sealed)
            forget_unused_keys(directory, ring, generation.db)
            return _Opened(directory, ring, ring.sealer(), generation)
        except BaseException:
            generation.close(failed=True)
            raise


def _nothing(db: sqlite3.Connection) -> None:
    """The operation of who waits for something else."""


async def _raise(error: BaseException) -> None:
    raise error
