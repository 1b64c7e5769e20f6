"""How often a status is written: a few at once, then at an even rate; the newest state is written, and always the last.

What has to be announced before it is used does not wait for it.
"""

from __future__ import annotations

AT_ONCE = 3
PER_SECOND = 2.0


class Pace:
    """Instants of writes."""

    def __init__(self) -> None:
        self._left, self._at = float(AT_ONCE), 0.0

    def next_at(self, now: float) -> float:
        """Returns when the next write may be done; `now` if at once."""
        left = self._available(now)
        return now if left >= 1.0 else now + (1.0 - left) / PER_SECOND

    def wrote(self, now: float) -> None:
        """A write was done."""
        self._left, self._at = max(0.0, self._available(now) - 1.0), now

    def _available(self, now: float) -> float:
        return min(float(AT_ONCE), self._left + (now - self._at) * PER_SECOND)
