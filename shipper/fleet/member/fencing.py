"""Until when the sidecar of a member may send, and what is needed for more: `on_lapse: hold`."""

from __future__ import annotations

from shipper.fleet.member.steps import Grant


class Fencing:
    """The leases of the sidecar. A lapse ends what was verified; then a new look, and a sidecar that runs the newest
    version as that look has found it, come before the next one."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self.until: float | None = None
        """The end of the newest lease; None if it has none, or needs none."""
        self.verified = False
        """Whether nothing has lapsed since all that a lease needs was seen."""
        self._renewed: float | None = None
        """The instant before the newest renewal in the store."""
        self._expired = False
        """Whether the end of the newest lease was noticed."""
        self._unfenced = False
        """Whether the store has a report without a fence, and the sidecar still needs leases."""

    def step(self, now: float, *, needed: bool, proven: bool) -> Grant | None:
        """Returns the next lease for the sidecar, if it `needs` one and has `proven` what it runs, or None."""
        if self._unfenced:
            return Grant(None)
        if not needed or not proven or self._renewed is None:
            return None
        until = self._renewed + self._lease
        return Grant(until) if until > now and (self.until is None or until > self.until) else None

    def notices_end(self, now: float) -> bool:
        """Returns whether the sidecar's lease is over, once for each lease."""
        if self.until is None or now < self.until or self._expired:
            return False
        self._expired = True
        return True

    def lapse(self) -> None:
        """The member is not as the next lease needs it: cut off, away, or in doubt."""
        self.verified = False

    def renewed(self, began: float) -> None:
        """The store has renewed the lease of this member, which began at this instant."""
        self._renewed = began

    def loosened(self) -> None:
        """The store knows now that this sidecar sends without a lease."""
        self._unfenced = True

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self.until, self._expired = until, False
        self.verified = until is not None
        self._unfenced = False
