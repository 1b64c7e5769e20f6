"""The first request of a session, after trouble: whether the destination answers again. No I/O.

It is a small one after a refusal. Before an entry on which the output has failed again and again, witnesses are sent,
to see whether the output works at all (`suspects`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shipper.pipeline.attempts.attempt import Trouble
from shipper.pipeline.attempts.suspects import WITNESSES
from shipper.pipeline.delivery import parcels
from shipper.pipeline.delivery.feed import Feed, Read, up_to_barrier
from shipper.sdk.feeding import Feeding
from shipper.spool.queue import Entry

PROBE_EVENTS = 8


class Asked(NamedTuple):
    """What is sent: an entry, or its first `few` events."""

    entry: Entry
    few: int | None
    is_witness: bool


class Probe:
    """Asks with one entry of the `feed`, and with its witnesses before; `last` is the trouble."""

    def __init__(self, feed: Feed, feeding: Feeding, last: Trouble | None) -> None:
        self.has_gone_on = False
        """Whether the destination has taken the question: others may begin before its answer."""
        self._feed = feed
        self._is_over = False
        """Whether it has asked with its entry, or there is none."""
        self._ordered = feeding.ordered
        self._few = PROBE_EVENTS if last is not None and last.held and not feeding.answers_later else None
        self._after = "front"
        self._entry: Entry | None = None
        self._witnesses: list[Entry] | None = None
        """Those that are not sent yet; None: nobody has looked for them."""
        self._sent: Asked | None = None
        self._was_left = False
        """Whether what is sent is below the front."""

    @property
    def is_under_way(self) -> bool:
        """Whether it waits for an answer, or for that to be noted."""
        return self._sent is not None

    def next(self) -> Read | Asked | None:
        """Returns what to read or to ask with; None: it is over."""
        if self._is_over:
            return None
        feed = self._feed
        if self._entry is None:
            return Read(feed.backlog.front if self._after == "front" else 0, 1, "first")
        if self._witnesses is None:
            return Read(self._entry.seq, parcels.WINDOW, "witnesses")
        if self._witnesses and not feed.progressed:
            self._sent = Asked(self._witnesses.pop(0), None, is_witness=True)
        else:
            if self._is_suspect(self._entry) and feed.progressed:
                feed.backlog.suspects.output_works()
            self._sent = Asked(self._entry, self._few, is_witness=False)
            self._is_over = True
        self._was_left = self._sent.entry.seq <= feed.backlog.front
        return self._sent

    def _is_suspect(self, entry: Entry) -> bool:
        return self._feed.backlog.suspects.are_known([entry.seq]) and not self._ordered

    def read(self, read: Read, entries: Sequence[Entry]) -> None:
        """Takes what was read."""
        if read.what == "witnesses":
            suspects = self._feed.backlog.suspects
            self._witnesses = [entry for entry in up_to_barrier(entries) if entry.seq not in suspects][:WITNESSES]
        elif entries and not entries[0].is_barrier:
            (self._entry,) = entries
            self._witnesses = None if self._is_suspect(self._entry) else []
        elif self._after == "front":
            self._after = "start"
        else:
            self._is_over = True

    def taken(self) -> None:
        """The destination has taken the question, and will answer later."""
        if self._sent is None or self._sent.is_witness or self._few is not None:
            return
        if not self._feed.backlog.suspects.are_known([self._sent.entry.seq]):
            self._feed.backlog.at_front(self._sent.entry)
            self.has_gone_on = True

    def noted(self) -> None:
        """The answers are durable."""
        assert self._sent is not None
        if self._was_left:
            self._feed.backlog.outstanding.pop(self._sent.entry.seq, None)
        self._sent = None
