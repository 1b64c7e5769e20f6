"""Until when the sidecar of a member may send: `on_lapse: hold`. What a lapse ends is the affair of each membership."""

from __future__ import annotations

from shipper.membership.steps import Grant


class Leases:
    """The leases of one sidecar: each ends when that of its member does, in the store, at the latest."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self.until: float | None = None
        """The end of the newest lease; None if it has none, or needs none."""
        self.renewed: float | None = None
        """The instant before the newest renewal in the store."""
        self._unfenced = False
        """Whether the store knows that this sidecar needs no lease, and the sidecar does not."""

    def step(self, now: float, *, needed: bool, proven: bool) -> Grant | None:
        """Returns the next lease for the sidecar, if it `needs` one and has `proven` what it runs, or None."""
        if self._unfenced:
            return Grant(None)
        if not needed or not proven or self.renewed is None:
            return None
        until = self.renewed + self._lease
        return Grant(until) if until > now and (self.until is None or until > self.until) else None

    def renew(self, began: float) -> None:
        """The store has renewed the lease of the member, by a request that began at this instant."""
        self.renewed = began

    def loosened(self) -> None:
        """The store knows now that this sidecar sends without a lease."""
        self._unfenced = True

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self.until, self._unfenced = until, False
