"""The lease: until when requests of outputs may begin, where a supervisor wants that to be limited.

Its instants are those of CLOCK_BOOTTIME, which goes on while the machine sleeps. So `holds` compares with that clock,
and no timer of the event loop, whose clock stops, decides whether a request begins. Nothing is stored: each process
begins without a lease, and needs one if its `hello` says so.
"""

from __future__ import annotations

import math

from shipper.process.environment import REAL, Clock

LONGEST_LOOK = 1.0
"""Seconds; after the machine slept, connections of a lease that lapsed meanwhile are aborted so soon."""


class Lease:
    """The newest word of a supervisor about its lease; `is_needed` from the start, or from the first lease on."""

    def __init__(self, clock: Clock = REAL.boottime, *, is_needed: bool = False) -> None:
        self._clock = clock
        self._until = -math.inf if is_needed else math.inf

    def renew(self, until: float | None) -> None:
        """Requests may begin before this instant; a past one is no lease, None ends the need for one."""
        self._until = math.inf if until is None else until

    def holds(self) -> bool:
        """Whether a request may begin now; from any thread."""
        return self._clock() < self._until

    @property
    def seconds(self) -> float | None:
        """What is left of it, 0 when it lapsed; None where none is needed."""
        return None if self._until == math.inf else max(0.0, self._until - self._clock())

    @property
    def look_seconds(self) -> float:
        """After how many seconds one that holds may have lapsed; infinite where none is needed."""
        seconds = self.seconds
        return math.inf if seconds is None else min(seconds, LONGEST_LOOK)
