"""What the destination's own record says: every event in it, by its id and by the number of its line.

The record is read while it grows, in whole lines. `duplicates` are events beyond the first of a line, whatever their
ids; `shared_ids` are events that carry the id of another line, which a backend would have refused as duplicates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from shipper_demo.access_log import number

_CHUNK = 4 << 20


class Tally:
    """Counts what a file of NDJSON holds; of several logs in it, that of a `dataset`."""

    def __init__(self, record: Path, dataset: str | None = None) -> None:
        self.events = 0
        self.foreign = 0
        """Events that are no line of the log."""
        self._record = record
        self._dataset = dataset
        self._offset = 0
        self._ids: set[str] = set()
        self._seen = bytearray()

    @property
    def delivered(self) -> int:
        """How many lines have arrived."""
        return len(self._seen) - self._seen.count(0)

    @property
    def duplicates(self) -> int:
        return self.events - self.foreign - self.delivered

    @property
    def double(self) -> int:
        """Events beyond the first of a line for a backend that takes each id once, which the record's file does not."""
        return max(0, len(self._ids) - self.delivered)

    @property
    def shared_ids(self) -> int:
        return max(0, self.delivered - len(self._ids))

    def lost(self, written: int) -> int:
        """How many of the lines numbered below `written` have not arrived."""
        return written - self.delivered

    def read(self) -> bool:
        """Count what has come since the last call, at most some megabytes; says whether there was anything. Blocks."""
        try:
            with self._record.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read(_CHUNK)
        except FileNotFoundError:
            return False
        whole = chunk[: chunk.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            event = orjson.loads(line)
            if self._dataset in (None, event.get("data_stream", {}).get("dataset")):
                self._count(event)
        return bool(whole)

    def _count(self, event: dict[str, Any]) -> None:
        self.events += 1
        try:
            n = number(event["message"])
        except (KeyError, ValueError):
            self.foreign += 1
            return
        self._ids.add(event["_id"])
        if n >= len(self._seen):
            self._seen.extend(bytes(max(n + 1 - len(self._seen), 1 << 16)))
        self._seen[n] = 1
