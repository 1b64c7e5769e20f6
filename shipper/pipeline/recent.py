"""Batches that were just stored, kept in memory for the lanes that will send them in a moment.

So the disk is read only after a restart or a long outage. The budget is one for all lanes; what does not fit is simply
read from the spool. A lane that waits out a trouble gives back what it holds.
"""

from __future__ import annotations

from shipper.sdk.event import Batch


class Recent:
    """Batches by (lane, seq), within `budget` bytes."""

    def __init__(self, budget: int = 8 << 20) -> None:
        self._free = budget
        self._kept: dict[int, dict[int, Batch]] = {}

    def keep(self, lane: int, seq: int, batch: Batch) -> None:
        """Keep a batch, if there is room."""
        if len(batch.body) <= self._free:
            self._free -= len(batch.body)
            self._kept.setdefault(lane, {})[seq] = batch

    def take(self, lane: int, seq: int) -> Batch | None:
        """The batch, if it is here; it is kept no longer."""
        batch = self._kept.get(lane, {}).pop(seq, None)
        if batch is not None:
            self._free += len(batch.body)
        return batch

    def forget(self, lane: int) -> None:
        """Give back all that is kept for a lane."""
        self._free += sum(len(batch.body) for batch in self._kept.pop(lane, {}).values())
