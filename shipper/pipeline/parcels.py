"""Which entries of a lane are sent together, and for how long they wait for more. No I/O.

Small ones go together: a log that trickled into the spool leaves it in few requests. A barrier stands alone, and
nothing waits below one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shipper.pipeline.backlog import Question
from shipper.spool.queue import Entry

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
    """Entries that are sent together; with a `question`, a few events of its target are sent, and no others."""

    entries: Sequence[Entry]
    question: Question | None = None


def gathers_until(entries: Sequence[Entry], handed: float, flush: float) -> float:
    """Until when these entries wait for more to be sent with them, if the last ones were handed out at `handed`.

    So what comes after a pause goes at once, and under load no more than one request in `flush` is not a full one. To
    wait from the first event on was refused: each lone line would be late by `flush`. A barrier never waits.
    """
    if not entries:
        return math.inf
    events, size = sum(entry.events for entry in entries), sum(entry.size for entry in entries)
    is_full = events >= GATHERED_EVENTS or size >= GATHERED_BYTES or len(entries) >= WINDOW
    return -math.inf if is_full or any(entry.is_barrier for entry in entries) else handed + flush


def of(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries in their order, small ones together; a barrier stands alone."""
    parcel: list[Entry] = []
    events = size = 0
    for entry in entries:
        events, size = events + entry.events, size + entry.size
        alone = entry.is_barrier or (parcel and parcel[-1].is_barrier)
        if parcel and (alone or events > TOGETHER_EVENTS or size > TOGETHER_BYTES):
            yield parcel
            parcel, events, size = [], entry.events, entry.size
        parcel.append(entry)
    if parcel:
        yield parcel
