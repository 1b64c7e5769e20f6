"""When what comes in a stream is read, where it is safe at its source: at once after a rest, then in turns.

To read, store and send costs as much as a hundred entries. So while a few keep coming, they are read together, fewer
than four times a second. What comes quickly is read at full speed: a turn that follows one with `MUCH` has no end to
wait for, nor has one that has read as much itself. No I/O; instants are those of whoever asks.
"""

from __future__ import annotations

import math

from shipper_plugins.tail.pace import MUCH, TURN


class Pace:
    """The turns of one stream."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._read = 0
        """Bytes since the turn began."""
        self._is_fast = False
        """Whether the turn before read much."""

    def left(self, now: float) -> float:
        """Returns for how many seconds the next bytes wait."""
        return 0.0 if self._is_fast or self._read >= MUCH else max(0.0, self._until - now)

    def count(self, now: float, size: int) -> None:
        """So many bytes were read just now; a turn begins, unless one has."""
        if now >= self._until:
            self._until, self._is_fast, self._read = now + TURN, self._read >= MUCH, 0
        self._read += size
