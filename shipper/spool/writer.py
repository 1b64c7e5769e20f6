"""The writer: one thread with one connection commits all waiting operations as one transaction.

    inbox ──> group ──BEGIN, (SAVEPOINT, operation, RELEASE)…, COMMIT──> answers

What happens when a group fails:

- An operation raises: only it is rolled back, and its caller gets the error. (A single operation needs no savepoint:
  the transaction is rolled back.)
- The disk is full: nothing was committed. Operations that need room are parked, and the others run again. For them the
  WAL is emptied, which needs no room (`upkeep`), and then the ballast is given up in steps. Once the ballast can be
  allocated again, the parked ones continue in their order. Those that do not wait fail with Backpressure at once, also
  while another process locks the database.
- Anything else (I/O error, damage): the outcome is unknown, since a COMMIT that raised may be found after a crash. So
  no operation is answered and the file is never written again: a second fsync may succeed without having written.
  Intact rows are copied, through this connection, into a new generation, where the group runs again and is answered.
  The copy is retried until it succeeds, and everything waits meanwhile.

The writer makes checkpoints, by size of the WAL and when idle; a failed one counts as a failed commit.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import outcome

from shipper.process.environment import Environment
from shipper.sdk.codes import Code
from shipper.sdk.errors import Backpressure
from shipper.sdk.retry import backoff
from shipper.spool import database
from shipper.spool.directory import StateDirectory, is_no_room
from shipper.spool.inbox import Inbox, Operation
from shipper.spool.repair import renew, retire
from shipper.spool.report import Report
from shipper.spool.upkeep import Upkeep

IDLE_SECONDS = 1.0
FULL = "disk full: intake waits"
"""The problem while everything but intake still has room."""
LOCKED = "another process keeps the database locked"
FULL_SECONDS = 1.0
_PATIENT_ATTEMPTS = 3


class NoRoom(Exception):
    """The disk is full; nothing was committed."""


class Busy(Exception):
    """Another process has locked the database; nothing was committed."""


class Broken(Exception):
    """The database or its disk failed; whether the group was committed is unknown."""


class GaveUp(Exception):
    """The store is closing, and waiting operations cannot be committed."""


class Listener(msgspec.Struct, frozen=True):
    """Callbacks of the writer; they run in its thread."""

    answered: Callable[[Sequence[Operation]], None]
    problem: Callable[[str | None, str], None]
    """Gets a new problem, or None, and its code."""
    renewed: Callable[[Path, Report | None], None]
    """Gets a new generation, before its operations are answered, and a report if anything was lost."""
    ended: Callable[[int, BaseException | None], None]
    """Gets the number of uncommitted operations and the reason, when the thread ends."""


class Writer:
    """Runs operations in its thread, in groups; each is durable before it is answered."""

    def __init__(
        self,
        directory: StateDirectory,
        generation: database.Generation,
        prepare: database.Prepare,
        connect: database.Connect,
        listener: Listener,
        environment: Environment,
    ) -> None:
        self._directory = directory
        self._generation = generation
        self._upkeep = Upkeep(generation.db, generation.path)
        self._prepare = prepare
        self._connect = connect
        self._listener = listener
        self._environment = environment
        self._inbox = Inbox(environment.monotonic)
        self._group: list[Operation] = []
        self._look_at = 0.0
        self._dirty = True
        self._emptied = False
        """Whether the WAL was emptied since the last commit, for lack of room."""
        self._problem: str | None = None

    # -- from any thread -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread."""
        self._environment.start_thread(self._run, "spool writer")

    def put(self, operation: Operation) -> None:
        """Adds an operation to the next group."""
        self._inbox.put(operation)

    def withdraw(self, operation: Operation) -> bool:
        """Withdraws an operation that still waits for room; returns True if it never ran and never will."""
        return self._inbox.withdraw(operation)

    def stop(self) -> None:
        """Commits the queued operations, then ends; `Listener.ended` is called."""
        self._inbox.close()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while self._next_group():
                self._commit_group()
            self._careful(self._upkeep.checkpoint)
        except BaseException as error:
            failure = error
        self._generation.close(failed=failure is not None)
        self._upkeep.close()
        self._listener.ended(len(self._group) + len(self._inbox.left()), failure)

    def _next_group(self) -> bool:
        """Claims the next group into `_group`; returns False if there will be none."""
        inbox = self._inbox
        while True:
            if inbox.full and self._environment.monotonic() >= self._look_at:
                self._look_for_room()
            if not inbox.receive(inbox.patience(self._pause())):
                self._idle()
            self._group = inbox.claim()
            if self._group:
                return True
            if inbox.closing.is_set() and inbox.is_empty:
                if inbox.has_parked:
                    raise GaveUp("the disk is full")
                return False

    def _pause(self) -> float | None:
        """Returns how long to wait for operations before upkeep or a look for room, in seconds; None: for ever."""
        if self._inbox.full:
            return FULL_SECONDS
        return IDLE_SECONDS if self._dirty else None

    # -- a group -------------------------------------------------------------------------------------------------------

    def _commit_group(self) -> None:
        if any(operation.repairs == self._generation.path for operation in self._group):
            self._renew("damage was found")
        while self._group:
            try:
                self._transaction(self._group)
            except Busy:
                self._say(LOCKED, Code.STORE_LOCKED)
                self._group = self._refuse(LOCKED, Code.STORE_LOCKED)
                if not self._group:
                    self._say(None)  # the next operation finds out whether it is over
                elif self._inbox.closing.is_set():
                    raise GaveUp(LOCKED) from None
            except NoRoom:
                self._make_room()
            except Broken as broken:
                self._renew(f"a commit failed: {broken}")
            else:
                self._committed()

    def _committed(self) -> None:
        done, self._group = self._group, []
        self._listener.answered(done)
        self._dirty, self._emptied = True, False
        self._say_if_full()
        if self._upkeep.is_due():
            self._careful(self._upkeep.checkpoint)

    def _transaction(self, group: Sequence[Operation]) -> None:
        db = self._generation.db
        try:
            db.execute("BEGIN IMMEDIATE")
            if len(group) == 1 and not self._run_one(db, group[0]):
                db.execute("ROLLBACK")
                return
            for operation in group if len(group) > 1 else ():
                self._run_beside(db, operation)
            if not self._upkeep.reserve():
                raise NoRoom
            db.execute("COMMIT")
        except (sqlite3.Error, NoRoom) as error:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            if isinstance(error, NoRoom):
                raise
            raise self._translated(error) from error

    def _run_beside(self, db: sqlite3.Connection, operation: Operation) -> None:
        db.execute("SAVEPOINT operation")
        if not self._run_one(db, operation):
            db.execute("ROLLBACK TO operation")
        db.execute("RELEASE operation")

    def _run_one(self, db: sqlite3.Connection, operation: Operation) -> bool:
        """Runs an operation; returns False if it failed and must be rolled back."""
        try:
            operation.result = outcome.Value(operation.run(db))
        except Exception as error:
            if isinstance(error, sqlite3.Error) and (database.is_broken(error) or database.is_full(error)):
                raise
            operation.result = outcome.Error(error)
            return False
        return True

    def _translated(self, error: sqlite3.Error) -> Exception:
        if database.is_busy(error):
            return Busy()
        if database.is_full(error):
            return NoRoom()
        if database.is_io(error) and self._over_quota():
            return NoRoom()  # SQLite tells a full disk from a failed one, but not an exhausted quota
        return Broken(database.name(error))

    def _over_quota(self) -> bool:
        try:
            return not self._directory.has_room()
        except OSError:
            return False

    # -- a full disk ---------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Parks operations that need room; if there are none, frees the WAL or ballast for the others, or waits."""
        self._inbox.full = True
        self._look_at = self._environment.monotonic() + FULL_SECONDS
        self._say(FULL, Code.DISK_FULL)
        came = len(self._group)
        self._group = self._inbox.park(self._refuse(FULL, Code.DISK_FULL))
        if len(self._group) < came or self._empty_wal() or self._give_ballast():
            return
        self._say("disk full: nothing can be stored", Code.DISK_FULL)
        if self._inbox.closing.wait(FULL_SECONDS):
            raise GaveUp("the disk is full")

    def _refuse(self, why: str, code: str) -> list[Operation]:
        """Fails the operations of the uncommitted group that do not wait; returns the others."""
        refused = [operation for operation in self._group if not operation.waits]
        for operation in refused:
            operation.result = outcome.Error(Backpressure(why, code=code))
        self._listener.answered(refused)
        return [operation for operation in self._group if operation.waits]

    def _empty_wal(self) -> bool:
        """Frees the room of the WAL, once between two commits."""
        if not self._emptied:
            self._emptied = self._careful(lambda: self._upkeep.checkpoint(cut=True))
            return self._emptied
        return False

    def _give_ballast(self) -> bool:
        try:
            return self._directory.ballast.give()
        except OSError:
            return False

    def _look_for_room(self) -> None:
        """Allocates the ballast again; if that succeeds, queues the parked operations."""
        self._look_at = self._environment.monotonic() + FULL_SECONDS
        try:
            self._inbox.full = not self._directory.ballast.restore()
        except OSError:
            return
        if not self._inbox.full and not self._inbox.unpark():
            self._say(None)

    # -- a failed disk -------------------------------------------------------------------------------------------------

    def _renew(self, why: str) -> None:
        """Continues in a new generation; retries until that succeeds."""
        attempts, waits = 0, backoff(1.0, 30.0)
        while True:
            attempts += 1
            self._say(f"{why}, copying to a new generation", Code.DISK_FAILED)
            try:
                self._switch(patient=attempts <= _PATIENT_ATTEMPTS)
                self._say_if_full()
                return
            except (sqlite3.Error, OSError) as error:
                text = f"{why}, and a copy to a new generation failed: {database.name(error)}"
                self._say(text, Code.DISK_FAILED)
                if is_no_room(error) and self._give_ballast():
                    continue
            if self._inbox.closing.wait(next(waits)):
                raise GaveUp(why)

    def _switch(self, *, patient: bool) -> None:
        old, upkeep = self._generation, self._upkeep
        new, report = renew(self._directory, old.number, old.db, self._prepare, self._connect, patient=patient)
        self._generation, self._upkeep = new, Upkeep(new.db, new.path)
        with contextlib.suppress(OSError):  # the next start removes it
            retire(self._directory, new, report)
        self._listener.renewed(new.path, None if report.intact else Report.load(new.db))
        old.close(failed=True)
        upkeep.close()

    # -- when idle -----------------------------------------------------------------------------------------------------

    def _idle(self) -> None:
        while self._inbox.is_empty and self._careful(lambda: self._upkeep.vacuum(all_of_it=self._inbox.full)):
            pass
        if self._inbox.is_empty:
            self._dirty = not self._careful(lambda: self._upkeep.checkpoint(cut=True))

    def _careful(self, step: Callable[[], bool]) -> bool:
        """Runs a step of upkeep; a failure counts as that of a commit, except that a full disk is ignored."""
        try:
            return step()
        except sqlite3.Error as error:
            failure = self._translated(error)
            if isinstance(failure, Broken):
                self._renew(f"upkeep failed: {failure}")
        return False

    def _say_if_full(self) -> None:
        """Updates the problem after a successful commit."""
        if self._inbox.full:
            self._say(FULL, Code.DISK_FULL)
        else:
            self._say(None)

    def _say(self, problem: str | None, code: str = Code.OK) -> None:
        if problem != self._problem:
            self._problem = problem
            self._listener.problem(problem, code)
