"""Taps: a bounded sample of the events that pass one point, for as long as somebody waits for it."""

from __future__ import annotations

import trio

from shipper.sdk.event import Batch, Fields


class Taps:
    """Points are `inputs.NAME`, `inputs.NAME.processors.N` (after the N-th), `outputs.NAME.processors.N` and
    `outputs.NAME`."""

    def __init__(self) -> None:
        self._open: dict[str, list[tuple[list[Batch], int]]] = {}

    def offer(self, point: str, batch: Batch) -> None:
        """Shows a batch to those that wait at a point; costs nothing if nobody does. Any thread."""
        if self._open:
            for batches, limit in self._open.get(point, ()):
                if sum(seen.count for seen in batches) < limit:
                    batches.append(batch)

    async def collect(self, point: str, limit: int, seconds: float) -> list[Fields]:
        """Returns up to `limit` events that pass within `seconds`."""
        batches: list[Batch] = []
        self._open.setdefault(point, []).append((batches, limit))
        try:
            with trio.move_on_after(seconds):
                while sum(batch.count for batch in batches) < limit:  # noqa: ASYNC110 - offered by threads
                    await trio.sleep(0.05)
        finally:
            others = [other for other in self._open[point] if other[0] is not batches]
            if others:
                self._open[point] = others
            else:
                del self._open[point]
        return [event for batch in batches for event in batch.plain()][:limit]
