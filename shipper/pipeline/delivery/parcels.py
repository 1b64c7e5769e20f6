"""Which entries of a lane are sent together, and for how long they wait for more. No I/O.

Small ones go together: a log that trickled into the spool leaves it in few requests. A barrier goes alone, and nothing
below a barrier waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from shipper.pipeline.delivery.backlog import Question
from shipper.sdk.feeding import MOST_STABLE_BYTES, Feeding
from shipper.spool.queue import Entry
from shipper.spool.requests import Composed
from shipper.spool.schema import SLOT

WINDOW = 512
TOGETHER_BYTES = 256 << 10
"""Sealed bytes of entries that are sent in one request though they entered in several batches, unless the output wants
less (with 500 events at most, ten thousand files of 200 lines took 1.5 times the CPU). `loading` counts what they
unpack to."""
STABLE_WINDOW = 8192
"""The same as WINDOW for requests that stay the same."""
UNPACKED = 4
"""What text takes at least, by the bytes of the entry. Entries that become more are not all loaded for one request."""
GATHERED_EVENTS = 1000
GATHERED_BYTES = 64 << 10
"""An entry of so many bytes waits for no more. Combining large batches costs more than the saved requests: an input at
full speed lost a quarter of its events a second."""


class Parcel(msgspec.Struct, frozen=True):
    """Entries that are sent together; with a `question`, only a few events of its target are sent. A `request` was sent
    before, or might have been: it has its events only, and all of them."""

    entries: Sequence[Entry]
    question: Question | None = None
    request: Composed | None = None


def most_text(feeding: Feeding) -> int:
    """Returns the most bytes of text of one request."""
    return MOST_STABLE_BYTES if feeding.compressed else feeding.bytes


def window(feeding: Feeding) -> int:
    """Returns how many entries may wait to be sent together."""
    return STABLE_WINDOW if feeding.stable else WINDOW


class Gathered:
    """Entries that wait for more to be sent with them, up to 8192, and their sums: these are asked for at each one."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self._events = self._size = 0
        self._is_wanted = False
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry) -> None:
        """Has it wait behind the others."""
        self.entries.append(entry)
        self._events += entry.events
        self._size += entry.size
        self._is_wanted |= entry.is_barrier or entry.is_awaited

    def until(self, handed: float, feeding: Feeding, linger: float) -> float:
        """Returns until when they wait, for `linger` seconds after the last ones were handed out at `handed`.

        So an event after a pause goes at once, and under load at most one request in `linger` is not full. Waiting from
        the first event on would delay each single line. A barrier never waits, nor does what an input awaits the answer
        of.
        """
        if not self.entries:
            return math.inf
        is_full = len(self) >= window(feeding) or _is_full(self._events, self._size, feeding)
        if is_full or self._is_wanted or feeding.apart:
            return -math.inf
        return handed + linger


def _is_full(events: int, size: int, feeding: Feeding) -> bool:
    if feeding.stable:
        return events >= feeding.events or size * (1 if feeding.compressed else UNPACKED) >= feeding.bytes
    return events >= min(GATHERED_EVENTS, feeding.events) or size >= min(GATHERED_BYTES, feeding.bytes)


def of(entries: Sequence[Entry], feeding: Feeding) -> Iterator[list[Entry]]:
    """Combines entries in order, as many small ones as the output wants; a barrier stays alone."""
    most_bytes = feeding.bytes if feeding.stable else min(TOGETHER_BYTES, feeding.bytes)
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
