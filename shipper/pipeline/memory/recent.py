"""Batches that were just stored, kept in memory for the lanes that will send them in a moment.

So the disk is read only after a restart or a long outage. All lanes share one budget; a batch that does not fit is read
from the spool. A lane that waits after a failure gives its batches back.
"""

from __future__ import annotations

from shipper.sdk.event import Batch


class Recent:
    """Batches by (lane, seq), within `budget` bytes."""

    def __init__(self, budget: int = 8 << 20) -> None:
        self._free = budget
        self._kept: dict[int, dict[int, Batch]] = {}

    def keep(self, lane: int, seq: int, batch: Batch) -> None:
        """Keeps a batch, if there is room."""
        if (size := batch.size) <= self._free:
            self._free -= size
            self._kept.setdefault(lane, {})[seq] = batch

    def take(self, lane: int, seq: int) -> Batch | None:
        """Removes and returns the batch, if it is here."""
        batch = self._kept.get(lane, {}).pop(seq, None)
        if batch is not None:
            self._free += batch.size
        return batch

    def forget(self, lane: int) -> None:
        """Gives back all batches of a lane."""
        self._free += sum(batch.size for batch in self._kept.pop(lane, {}).values())
