"""When what was written is read: at once after a rest, then in turns, fewer than four a second while lines keep coming.

A reading costs as much as a hundred lines: a transaction, and a request behind it. What waits is in its file, and loses
nothing by it: an open file is read to its end whatever becomes of its name, what a copy has that was made before a
truncation is read there, and before the input ends it is read. What becomes of names is heard of in the same turns, as
a scan costs no less. A file that grows quickly is read at full speed: once a turn has read `MUCH`, the next one does
not wait.

What is not covered: lines that are written less than a turn before their file is truncated without a copy, or before a
file that is not open is deleted. If it were read at each write these would be fewer, and not none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

TURN = 0.27
"""Seconds from one reading to the next: a little longer than outputs wait for more, so that what a turn stored is sent
at once."""
MUCH = 64 << 10
"""Bytes of a turn after which the next one is due."""
BREATH = 0.02
"""Seconds for which events are left in the kernel where much comes, or names change: they are then read together."""
CALM = TURN
"""The same where little is written."""


class Gathering:
    """Files that were written and not read since. No I/O; instants are those of whoever asks."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._until = -math.inf
        self._read = 0
        """Bytes since the turn began."""
        self.breath = CALM
        """Seconds for which events may be left in the kernel while it gathers."""

    @property
    def has_some(self) -> bool:
        """Whether files wait to be read."""
        return bool(self._paths)

    def note(self, paths: Iterable[str]) -> None:
        """These files were written."""
        self._paths.update(paths)

    def count(self, size: int) -> None:
        """So many bytes were read."""
        self._read += size

    def left(self, now: float) -> float:
        """Returns for how many seconds what is written now waits."""
        return 0.0 if self._read >= MUCH else max(0.0, self._until - now)

    def due(self, now: float, *, at_once: bool = False) -> Collection[str]:
        """Returns the files to be read now; where there are some, a turn begins."""
        if not self._paths or (self.left(now) and not at_once):
            return ()
        self.begin(now)
        paths, self._paths = self._paths, set()
        return paths

    def begin(self, now: float) -> None:
        """A turn begins: what happens from now on waits for its end."""
        self.breath = BREATH if self._read >= MUCH else CALM
        self._until, self._read = now + TURN, 0
