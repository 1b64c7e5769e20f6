"""The requests of one attempt that stay the same, by their ids (`spool/requests`). No I/O.

An attempt has one, unless it is sent in pieces, since it is too large, or the output fails on its events: then each
piece is a request of its own, in the place of the one that had its events.
"""

from __future__ import annotations

from collections.abc import Sequence

from shipper.sdk.event import Batch
from shipper.spool.queue import Entry
from shipper.spool.requests import Composed, Part


class Stable:
    """Of a batch made of these entries, each with its range of positions; `composed` is what was sent before."""

    def __init__(self, batch: Batch, entries: Sequence[tuple[Entry, range]], composed: Composed | None = None) -> None:
        self.answered: list[str] = []
        """The requests whose events all have their final answers."""
        self._items = range(batch.count) if batch.items is None else batch.items
        self._entries = entries
        self._open: dict[str, tuple[int, int]] = {}
        """The other ones, each with its first and its last position."""
        self.is_new = composed is None
        """Whether nothing of it was composed before."""
        self.asked: Sequence[int] = range(batch.count)
        """The positions that are sent."""
        if composed is not None:
            self.asked = [at for part in composed.parts for at in self._positions(part)]
            if self.asked:
                self._open[composed.name] = min(self.asked), max(self.asked)

    def _positions(self, part: Part) -> list[int]:
        ranges = (positions for entry, positions in self._entries if entry.seq == part.seq)
        return [at for positions in ranges for at in positions if part.first <= self._items[at] <= part.last]

    def parts(self, positions: Sequence[int]) -> list[Part]:
        """Returns what a request for these events, in their order, is composed of."""
        wanted, found = frozenset(positions), []
        for entry, own in self._entries:
            items = [self._items[at] for at in own if at in wanted]
            if items:
                found.append(Part(entry.seq, min(items), max(items)))
        return found

    def name(self, positions: Sequence[int]) -> str | None:
        """Returns the id of the request for these events; None: it is not composed yet."""
        covering = self.covering(positions)
        is_same = covering is not None and self._open[covering] == (positions[0], positions[-1])
        return covering if is_same else None

    def covering(self, positions: Sequence[int]) -> str | None:
        """Returns the id of the request that has these events, and perhaps others."""
        first, last = positions[0], positions[-1]
        return next((name for name, (low, high) in self._open.items() if low <= first and last <= high), None)

    def composed(self, positions: Sequence[int], name: str) -> None:
        """Notes that a request for these events is composed, in the place of the one that had them."""
        self._open.pop(self.covering(positions) or "", None)
        self._open[name] = positions[0], positions[-1]

    def note_answered(self, positions: Sequence[int]) -> None:
        """Notes that all events of a request have their final answers."""
        name = self.name(positions)
        if name is not None:
            self.answered.append(name)
            del self._open[name]
