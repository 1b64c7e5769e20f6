"""Which members are alive, by their Leases and by our own clock alone. Pure.

Clocks of members are not compared with ours. A Lease that was not renewed while we looked at it for its own seconds and
a margin is over:

    seen ──renewed──> alive ──seconds + margin without a renewal──> suspect ──a quorum read shows none──> absent
      └──────────────────────seconds + margin──────────────────────────^

The read is there because a watch may be late, for example after this machine slept. A Lease without a holder was
released, and is over at once. Until a Lease was seen to be renewed, or seen for long enough, it is unproven: a new
leader knows nothing of what the last one saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shipper.kubernetes.summing.records import Lease

Standing = Literal["alive", "unproven", "absent"]
SHARE, LEAST = 0.05, 2.0
LONGEST = 3600.0
"""A Lease that claims more seconds counts as one with so many."""


def margin(seconds: float) -> float:
    """Returns how many seconds longer than a lease its end is waited for: clocks run at different rates, and requests
    that began before the end are on their way."""
    return LEAST + SHARE * seconds


@dataclass(slots=True)
class _Seen:
    lease: Lease
    since: float
    """When it was first seen as it is."""
    renewed: bool = False
    """Whether it was seen to change."""
    over: bool = False
    """Whether a quorum read has confirmed that it is over."""

    @property
    def end(self) -> float:
        seconds = min(max(self.lease.seconds, 0.0), LONGEST)
        return self.since + seconds + margin(seconds)


class Liveness:
    """Of the Leases of members, by the member's name. All times are seconds of one clock, sleep included."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def saw(self, lease: Lease, now: float) -> None:
        """Notes a Lease as a watch shows it."""
        known = self._seen.get(lease.member)
        if known is None:
            self._seen[lease.member] = _Seen(lease, now)
        elif known.lease.mark == lease.mark:
            known.lease = lease
        else:
            self._seen[lease.member] = _Seen(lease, now, renewed=True)

    def read(self, lease: Lease, now: float) -> None:
        """Notes a Lease as a quorum read that began after `suspects` has found it."""
        known = self._seen.get(lease.member)
        was_over = known is not None and known.lease.mark == lease.mark and now >= known.end
        self.saw(lease, now)
        if was_over:
            self._seen[lease.member].over = True

    def gone(self, member: str) -> None:
        """Notes that a member's Lease was deleted."""
        self._seen.pop(member, None)

    def lease(self, member: str) -> Lease | None:
        """Returns a member's Lease as it was seen last."""
        known = self._seen.get(member)
        return None if known is None else known.lease

    def members(self) -> list[str]:
        """Returns the names of the members that have a Lease."""
        return sorted(self._seen)

    def standing(self, member: str) -> Standing:
        """Returns what is known of a member; one without a Lease is absent."""
        known = self._seen.get(member)
        if known is None or known.over or not known.lease.holder:
            return "absent"
        return "alive" if known.renewed else "unproven"

    def suspects(self, now: float) -> list[str]:
        """Returns the members whose Leases have to be read by quorum."""
        return sorted(member for member, one in self._seen.items() if self._counts(one) and now >= one.end)

    def deadline(self) -> float | None:
        """Returns when the next one becomes a suspect; None if none will without a change."""
        return min((one.end for one in self._seen.values() if self._counts(one)), default=None)

    @staticmethod
    def _counts(one: _Seen) -> bool:
        return not one.over and bool(one.lease.holder)
