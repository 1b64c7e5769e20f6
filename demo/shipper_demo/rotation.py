"""What becomes of each key: the rows that the demo shows. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shipper_demo.key import Key

STAGES = ("received", "active", "drained")


@dataclass(slots=True)
class Rotation:
    """One key and the revision that brought it; moments are `trio.current_time()`."""

    key: Key
    replaced: Key | None
    written_at: float
    revision: str = ""
    milliseconds: dict[str, int] = field(default_factory=dict)
    """From the sending of the revision to the ack of each stage, as the agent saw it."""
    waited_for: int = 0
    """How many events the barrier waited for."""
    drained_at: float | None = None
    revoked_at: float | None = None
    """When the destination had removed the replaced key."""
    answer: int | None = None
    """What the destination says to the replaced key since."""

    @property
    def complete(self) -> bool:
        """Whether there is nothing more to tell."""
        return self.drained_at is not None and (self.replaced is None or self.answer is not None)

    @property
    def good(self) -> bool:
        """Whether it went as promised."""
        return self.complete and (self.replaced is None or self.answer == 401)


class Rotations:
    """All of them, in order."""

    def __init__(self) -> None:
        self.rows: list[Rotation] = []

    @property
    def complete(self) -> bool:
        return all(row.complete for row in self.rows)

    @property
    def in_use(self) -> bool:
        """Whether the newest key is."""
        return bool(self.rows[-1].milliseconds.keys() - {"received"})

    def wrote(self, key: Key, now: float) -> None:
        """The key is about to be in the key file, in the place of the newest one."""
        self.rows.append(Rotation(key, self.rows[-1].key if self.rows else None, now))

    def heard(self, event: Mapping[str, Any], now: float) -> None:
        """Note what the agent says of a revision."""
        if event["event"] == "sent" and self._row(event["revision"]) is None:
            self.rows[-1].revision = self.rows[-1].revision or event["revision"]
        elif event["event"] == "ack" and (row := self._row(event["revision"])) is not None:
            self._acked(row, event, now)

    def released(self, name: str) -> Rotation:
        """The row whose replaced key has this name; raises LookupError if there is none."""
        for row in self.rows:
            if row.replaced is not None and row.replaced.name == name:
                return row
        raise LookupError(f"no rotation has replaced {name}")

    def _acked(self, row: Rotation, event: Mapping[str, Any], now: float) -> None:
        row.milliseconds[event["stage"]] = event["milliseconds"]
        if event["stage"] != "drained":
            return
        row.waited_for = event["ledger"]["accepted"]
        for older in self.rows[: self.rows.index(row) + 1]:  # a newer `drained` implies the older ones
            older.drained_at = older.drained_at or now

    def _row(self, revision: str) -> Rotation | None:
        return next((row for row in self.rows if row.revision == revision), None)
