"""What waits to be committed, in four lines.

    put ──> urgent, ordinary, patient ──> group
               └─ what needs room, while there is none ──> parked

While a commit is under way the next group gathers. No timer delays a commit, except that patient operations alone wait
5 ms for company: answers are noted in the commit of the next batch that enters, instead of one of their own.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outcome

GROUP_LIMIT = 512
PATIENT_SECONDS = 0.005

_PENDING: outcome.Outcome[Any] = outcome.Value(None)


@dataclass(eq=False, slots=True)
class Operation:
    """Something to run in a transaction. `waiter` is whoever waits for the result; None: nobody does.

    `unheard` gets the result if the waiter has gone before it was durable.

    One that `needs_room` is put aside while there is none, or answered Backpressure if it does not wait. Urgent ones go
    first; patient ones go with others, or after 5 ms. One that `repairs` a database has it copied to a
    new generation first, unless that was done meanwhile.
    """

    run: Callable[[sqlite3.Connection], Any]
    waiter: Any = None
    unheard: Callable[[Any], object] | None = None
    urgent: bool = False
    patient: bool = False
    needs_room: bool = False
    waits: bool = True
    claimed: bool = False
    withdrawn: bool = False
    repairs: Path | None = None
    result: outcome.Outcome[Any] = _PENDING


class Inbox:
    """Filled from any thread, emptied by one."""

    def __init__(self) -> None:
        self.closing = threading.Event()
        self.full = False
        """Whether the disk is: then what needs room is parked."""
        self._arrivals: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._urgent: deque[Operation] = deque()
        self._ordinary: deque[Operation] = deque()
        self._patient: deque[Operation] = deque()
        self._patient_until = 0.0
        self._parked: deque[Operation] = deque()
        self._lock = threading.Lock()

    # -- from any thread -----------------------------------------------------------------------------------------------

    def put(self, operation: Operation) -> None:
        """Hand an operation over; it is in the next group."""
        self._arrivals.put(operation)

    def withdraw(self, operation: Operation) -> bool:
        """Take back an operation that needs room and still waits for it; True if it never ran and never will."""
        with self._lock:
            operation.withdrawn = operation.needs_room and not operation.claimed
            return operation.withdrawn

    def close(self) -> None:
        """Nothing will be put any more."""
        self.closing.set()
        self._arrivals.put(None)

    # -- from the thread that empties it -------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing has arrived that was not received."""
        return self._arrivals.empty()

    def patience(self, otherwise: float | None) -> float | None:
        """How long to wait for the next operation, in seconds; None: for ever."""
        if self._urgent or self._ordinary or self.closing.is_set():
            return 0
        if self._patient:
            return max(0, self._patient_until - time.monotonic())
        return otherwise

    def receive(self, patience: float | None) -> bool:
        """Line up what arrives; False if nothing waited, and nothing came for so long."""
        try:
            first = self._arrivals.get(patience != 0, patience or None)
        except queue.Empty:
            return not patience or bool(self._patient)
        for operation in (first, *self._drain()):
            if operation is not None:
                self._line_up(operation)
        return True

    def claim(self) -> list[Operation]:
        """The next group; empty while there are only patient operations, and they have time."""
        group: list[Operation] = []
        if not (self._urgent or self._ordinary or self.closing.is_set() or time.monotonic() >= self._patient_until):
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
        """Put what needs room aside, in its order; returns the others."""
        with self._lock:
            parked = [operation for operation in group if operation.needs_room]
            for operation in parked:
                operation.claimed = False
        self._parked.extendleft(reversed(parked))
        return [operation for operation in group if not operation.needs_room]

    def unpark(self) -> bool:
        """There is room again; returns whether something waited for it."""
        self._ordinary.extendleft(reversed(self._parked))
        self._parked.clear()
        return bool(self._ordinary)

    @property
    def has_parked(self) -> bool:
        """Whether something waits for room."""
        return any(not operation.withdrawn for operation in self._parked)

    def left(self) -> list[Operation]:
        """All that waits."""
        waiting = [*self._urgent, *self._ordinary, *self._patient, *self._parked, *self._drain()]
        return [operation for operation in waiting if not operation.withdrawn]

    def _drain(self) -> Iterator[Operation]:
        with contextlib.suppress(queue.Empty):
            while True:
                operation = self._arrivals.get_nowait()
                if operation is not None:
                    yield operation

    def _line_up(self, operation: Operation) -> None:
        if operation.needs_room and self.full:
            self._parked.append(operation)
        elif operation.patient:
            if not self._patient:
                self._patient_until = time.monotonic() + PATIENT_SECONDS
            self._patient.append(operation)
        else:
            (self._urgent if operation.urgent else self._ordinary).append(operation)
