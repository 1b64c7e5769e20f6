"""The lease: the instant until which requests of outputs may begin, where a supervisor limits that.

Instants are those of CLOCK_BOOTTIME, which goes on while the machine sleeps. `holds` compares with that clock; no timer
of the event loop, whose clock stops in sleep, decides whether a request begins. Nothing is stored: each process begins
without a lease, and needs one if its `hello` says so.
"""

from __future__ import annotations

import math

from shipper.process.environment import REAL, Clock

LONGEST_LOOK = 1.0
"""Seconds until connections are aborted whose lease lapsed while the machine slept."""


class Lease:
    """The newest lease of a supervisor; `is_needed` from the start, or from the first lease on."""

    def __init__(self, clock: Clock = REAL.boottime, *, is_needed: bool = False) -> None:
        self._clock = clock
        self._until = -math.inf if is_needed else math.inf

    def renew(self, until: float | None) -> None:
        """Lets requests begin before this instant. A past instant is no lease; None ends the need for one."""
        self._until = math.inf if until is None else until

    def holds(self) -> bool:
        """Whether a request may begin now; from any thread."""
        return self._clock() < self._until

    @property
    def seconds(self) -> float | None:
        """Returns the seconds left, 0 after it lapsed; None where no lease is needed."""
        return None if self._until == math.inf else max(0.0, self._until - self._clock())

    @property
    def look_seconds(self) -> float:
        """Returns the seconds after which a lease that holds may have lapsed; infinite where none is needed."""
        seconds = self.seconds
        return math.inf if seconds is None else min(seconds, LONGEST_LOOK)
