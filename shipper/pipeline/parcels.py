"""Which entries of a lane are sent together, and for how long they wait for more. No I/O.

Small ones go together: a log that trickled into the spool leaves it in few requests. A barrier goes alone, and nothing
below a barrier waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shipper.pipeline.backlog import Question
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry
from shipper.spool.schema import SLOT

WINDOW = 512
TOGETHER_BYTES = 256 << 10
"""Sealed bytes of entries that are sent in one request though they entered in several batches, unless the output wants
less (with 500 events at most, ten thousand files of 200 lines took 1.5 times the CPU). `loading` counts what they
unpack to."""
GATHERED_EVENTS = 1000
GATHERED_BYTES = 64 << 10
"""An entry of so many bytes waits for no more. Combining large batches costs more than the saved requests: an input at
full speed lost a quarter of its events a second."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Entries that are sent together; with a `question`, only a few events of its target are sent."""

    entries: Sequence[Entry]
    question: Question | None = None


def gathers_until(entries: Sequence[Entry], handed: float, feeding: Feeding) -> float:
    """Returns until when these entries wait for more to be sent with them, if the last ones were handed out at
    `handed`.

    So an event after a pause goes at once, and under load at most one request in `linger` is not full. Waiting from the
    first event on would delay each single line. A barrier never waits.
    """
    if not entries:
        return math.inf
    events, size = sum(entry.events for entry in entries), sum(entry.size for entry in entries)
    is_full = events >= min(GATHERED_EVENTS, feeding.events) or size >= min(GATHERED_BYTES, feeding.bytes)
    if is_full or feeding.apart or len(entries) >= WINDOW or any(entry.is_barrier for entry in entries):
        return -math.inf
    return handed + feeding.linger


def of(entries: Sequence[Entry], feeding: Feeding) -> Iterator[list[Entry]]:
    """Combines entries in order, as many small ones as the output wants; a barrier stays alone."""
    most_bytes = min(TOGETHER_BYTES, feeding.bytes)
    parcel: list[Entry] = []
    events = size = 0
    for entry in entries:
        events, size = events + entry.events, size + entry.size
        is_apart = feeding.apart and not (entry.kind == SLOT and parcel and parcel[-1].kind == SLOT)
        alone = is_apart or entry.is_barrier or (parcel and parcel[-1].is_barrier)
        if parcel and (alone or events > feeding.events or size > most_bytes):
            yield parcel
            parcel, events, size = [], entry.events, entry.size
        parcel.append(entry)
    if parcel:
        yield parcel
