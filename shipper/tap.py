"""A look at events as they pass: a bounded sample at one point, for as long as somebody waits for it."""

from __future__ import annotations

from contextlib import suppress

import trio

from shipper.event import Batch, Fields


class Taps:
    """Points are `inputs.NAME`, `inputs.NAME.processors.N` (after the N-th) and `outputs.NAME`."""

    def __init__(self) -> None:
        self._open: dict[str, list[tuple[list[Batch], int]]] = {}

    def offer(self, point: str, batch: Batch) -> None:
        """Show a batch to those that wait at a point; costs nothing if nobody does. Any thread."""
        if self._open:
            for batches, limit in self._open.get(point, ()):
                if sum(seen.count for seen in batches) < limit:
                    batches.append(batch)

    async def collect(self, point: str, limit: int, seconds: float) -> list[Fields]:
        """Up to `limit` events that pass within `seconds`."""
        batches: list[Batch] = []
        tap = (batches, limit)
        self._open.setdefault(point, []).append(tap)
        try:
            with trio.move_on_after(seconds):
                while sum(batch.count for batch in batches) < limit:  # noqa: ASYNC110 - offered by threads
                    await trio.sleep(0.05)
        finally:
            self._open[point].remove(tap)
            with suppress(KeyError):
                if not self._open[point]:
                    del self._open[point]
        return [event for batch in batches for event in batch.whole()][:limit]
