"""Operations that wait to be committed, in four queues.

    put ──> urgent, ordinary, patient ──> group
               └─ while the disk is full, those that need room ──> parked

During a commit the next group gathers. No timer delays a commit, except that patient operations alone wait for others,
as long as each of them says: so answers are stored in the commit of the next batch that enters.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import outcome

from shipper.process.environment import REAL, Clock

GROUP_LIMIT = 512
PATIENT_SECONDS = 0.005
"""For which a patient operation waits on a busy host, where others come soon."""

_PENDING: outcome.Outcome[Any] = outcome.Value(None)


class Operation(msgspec.Struct, eq=False):
    """A function to run in a transaction. `resume` takes the result, in the event loop; None: nobody waits for it.

    `abandoned` is called with the result if who waited was cancelled before it was durable.

    One that `needs_room` is parked while the disk is full, or fails with Backpressure unless it `waits`. Urgent ones go
    first; those with `patience` go with others, or after so many seconds. One that `repairs` a database has it copied
    to a new generation first, unless that was done already.
    """

    run: Callable[[sqlite3.Connection], Any]
    resume: Callable[[outcome.Outcome[Any]], object] | None = None
    abandoned: Callable[[Any], object] | None = None
    urgent: bool = False
    patience: float = 0.0
    needs_room: bool = False
    waits: bool = True
    claimed: bool = False
    withdrawn: bool = False
    repairs: Path | None = None
    result: outcome.Outcome[Any] = _PENDING

    def taken(self) -> outcome.Outcome[Any]:
        """Returns its result, and keeps none: the frames that an error has passed hold the operation."""
        result, self.result = self.result, _PENDING
        return result


class Inbox:
    """Operations are put from any thread, and claimed by one."""

    def __init__(self, clock: Clock = REAL.monotonic) -> None:
        self._clock = clock
        self.closing = threading.Event()
        self.full = False
        """Whether the disk is full: then operations that need room are parked."""
        self._arrivals: deque[Operation | None] = deque()
        self._bell = threading.Lock()
        """Released when something has arrived. A `SimpleQueue` waits for ever where its timeout ends as it begins."""
        self._bell.acquire()
        self._urgent: deque[Operation] = deque()
        self._ordinary: deque[Operation] = deque()
        self._patient: deque[Operation] = deque()
        self._patient_until = 0.0
        self._parked: deque[Operation] = deque()
        self._lock = threading.Lock()

    # -- from any thread -----------------------------------------------------------------------------------------------

    def put(self, operation: Operation) -> None:
        """Adds an operation to the next group."""
        self._arrive(operation)

    def withdraw(self, operation: Operation) -> bool:
        """Withdraws an operation that still waits for room; returns True if it never ran and never will."""
        with self._lock:
            operation.withdrawn = operation.needs_room and not operation.claimed
            return operation.withdrawn

    def close(self) -> None:
        """Ends the inbox: nothing is put after this."""
        self.closing.set()
        self._arrive(None)

    def _arrive(self, operation: Operation | None) -> None:
        self._arrivals.append(operation)
        if self._bell.locked():
            with suppress(RuntimeError):  # another thread was faster
                self._bell.release()

    # -- from the writer's thread --------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether every operation that was put was received."""
        return not self._arrivals

    def patience(self, otherwise: float | None) -> float | None:
        """Returns how long to wait for the next operation, in seconds; None: for ever."""
        if self._urgent or self._ordinary or self.closing.is_set():
            return 0
        if self._patient:
            return max(0, self._patient_until - self._clock())
        return otherwise

    def receive(self, patience: float | None) -> bool:
        """Sorts arrived operations into queues; returns False if there were none within `patience` seconds."""
        if not self._arrives(patience):
            return not patience or bool(self._patient)
        for operation in self._drain():
            self._line_up(operation)
        return True

    def _arrives(self, patience: float | None) -> bool:
        """Returns whether something is there, at the latest after `patience` seconds."""
        self._bell.acquire(blocking=False)  # what has rung before may be taken already
        if not self._arrivals and patience != 0:
            self._bell.acquire(timeout=-1 if patience is None else patience)
        return bool(self._arrivals)

    def claim(self) -> list[Operation]:
        """Returns the next group; empty while there are only patient operations that can wait longer."""
        group: list[Operation] = []
        if not (self._urgent or self._ordinary or self.closing.is_set() or self._clock() >= self._patient_until):
            return group
        with self._lock:
            for line in (self._urgent, self._ordinary, self._patient):
                while line and len(group) < GROUP_LIMIT:
                    operation = line.popleft()
                    if not operation.withdrawn:
                        operation.claimed = True
                        group.append(operation)
        return group

    def park(self, group: list[Operation]) -> list[Operation]:
        """Parks operations that need room, in their order; returns the others."""
        with self._lock:
            parked = [operation for operation in group if operation.needs_room]
            for operation in parked:
                operation.claimed = False
        self._parked.extendleft(reversed(parked))
        return [operation for operation in group if not operation.needs_room]

    def unpark(self) -> bool:
        """Queues the parked operations again; returns whether there were any."""
        self._ordinary.extendleft(reversed(self._parked))
        self._parked.clear()
        return bool(self._ordinary)

    @property
    def has_parked(self) -> bool:
        """Whether operations wait for room."""
        return any(not operation.withdrawn for operation in self._parked)

    def left(self) -> list[Operation]:
        """Returns all operations that wait."""
        waiting = [*self._urgent, *self._ordinary, *self._patient, *self._parked, *self._drain()]
        return [operation for operation in waiting if not operation.withdrawn]

    def _drain(self) -> list[Operation]:
        arrived = [self._arrivals.popleft() for _ in range(len(self._arrivals))]
        return [operation for operation in arrived if operation is not None]

    def _line_up(self, operation: Operation) -> None:
        if operation.needs_room and self.full:
            self._parked.append(operation)
        elif operation.patience:
            until = self._clock() + operation.patience
            self._patient_until = min(self._patient_until, until) if self._patient else until
            self._patient.append(operation)
        else:
            (self._urgent if operation.urgent else self._ordinary).append(operation)
