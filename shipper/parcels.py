"""Which todos of a lane are sent together, and for how long they wait for more. No I/O.

Small ones go together: a log that trickled into the spool leaves it in few requests. A barrier stands alone, and
nothing waits below one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shipper.backlog import Question
from shipper.spool.queue import Todo

WINDOW = 512
TOGETHER_EVENTS = 4000
TOGETHER_BYTES = 256 << 10
"""Of sealed bodies. What is sent in one request though it entered in several batches (with 500 events at most, ten
thousand files of 200 lines took 1.5 times the CPU). What it unpacks to is counted as it is loaded (`loans`)."""
GATHERED_EVENTS = 1000
GATHERED_BYTES = 64 << 10
"""For which nothing waits to become more. To put large batches together costs more than the requests that it saves: an
input at full speed lost a quarter of its events a second."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Todos that are sent together; with a `question`, a few events of its place are sent, and no others."""

    todos: Sequence[Todo]
    question: Question | None = None


def gathers_until(todos: Sequence[Todo], handed: float, flush: float) -> float:
    """Until when these todos wait for more to be sent with them, if the last ones were handed out at `handed`.

    So what comes after a pause goes at once, and under load no more than one request in `flush` is not a full one. To
    wait from the first event on was refused: each lone line would be late by `flush`. A barrier never waits.
    """
    if not todos:
        return math.inf
    events, size = sum(todo.events for todo in todos), sum(todo.size for todo in todos)
    is_full = events >= GATHERED_EVENTS or size >= GATHERED_BYTES or len(todos) >= WINDOW
    return -math.inf if is_full or any(todo.is_barrier for todo in todos) else handed + flush


def of(todos: Sequence[Todo]) -> Iterator[list[Todo]]:
    """Todos in their order, small ones together; a barrier stands alone."""
    parcel: list[Todo] = []
    events = size = 0
    for todo in todos:
        events, size = events + todo.events, size + todo.size
        alone = todo.is_barrier or (parcel and parcel[-1].is_barrier)
        if parcel and (alone or events > TOGETHER_EVENTS or size > TOGETHER_BYTES):
            yield parcel
            parcel, events, size = [], todo.events, todo.size
        parcel.append(todo)
    if parcel:
        yield parcel
