"""How long the store takes for a call of a member, and whether that is too long for its lease.

A renewal is three calls, one after the other, and joining is several of that: where a call takes more than a ninth of
the lease, a renewal takes more than a third of it. Each call still succeeds, so nothing else shows that.
"""

from __future__ import annotations

from math import ceil

from shipper.fleet.member.steps import Claim, Look, Step, Write
from shipper.fleet.settings import LONGEST_LEASE

_CALLS: dict[type[Step], int] = {Look: 3, Claim: 2, Write: 3}
"""Calls of a step that follow each other."""
_SHARE = 9


class Pace:
    """The last steps of a member with the store.

    It is too slow from two slow steps in a row until two in a row that take half of what is allowed: a store that is
    just too slow begins one trouble, not one with every step.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._last, self._before = 0.0, 0.0
        """Seconds of a call. One slow step may be of a suspended process; two in a row are the store's."""
        self._worst = 0.0
        """Seconds of a call since it is too slow; 0 while it is not."""

    def took(self, step: Step, seconds: float) -> None:
        """A step has succeeded after these seconds, with all of its calls."""
        if (calls := _CALLS.get(type(step))) is None:
            return
        self._last, self._before = seconds / calls, self._last
        slow, fast = min(self._last, self._before), max(self._last, self._before)
        if slow * _SHARE > self._lease:
            self._worst = max(self._worst, slow)
        elif fast * _SHARE * 2 <= self._lease:
            self._worst = 0.0

    @property
    def problem(self) -> str | None:
        """Returns in words that the store is too slow, and what to do; None if it is not."""
        if not self._worst:
            return None
        enough = ceil(self._worst * _SHARE)
        longer = f", or a `lease` of {enough}s or more" if enough <= LONGEST_LEASE else ""
        return (
            f"the store takes {self._worst:.1f} s a call; the lease is {self._lease:g} s, and a host that cannot renew "
            f"it in time counts as away: the fleet needs a faster store{longer}"
        )
