"""Until when the sidecar of a member may send, and what is needed for more: `on_lapse: hold`."""

from __future__ import annotations

from shipper.kubernetes.member.steps import Grant


class Fencing:
    """The leases of the sidecar. A lapse ends what was verified: then the bounds, the policies and the Secrets are read
    anew, and the sidecar has to run what follows from them, before the next lease."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self.until: float | None = None
        """The end of the newest lease; None if it has none, or needs none."""
        self.renewed: float | None = None
        """The instant before the newest renewal in the API server."""
        self.must_read = True
        """Whether policies and Secrets were not read since the last lapse."""
        self.lapses = 0
        """Counts lapses."""
        self._expired = False
        self._unfenced = False

    def step(self, *, needed: bool, proven: bool, now: float) -> Grant | None:
        """Returns the next lease for the sidecar, if it `needs` one and has `proven` what it runs, or None."""
        if self._unfenced:
            return Grant(None)
        if not needed or not proven or self.must_read or self.renewed is None:
            return None
        until = self.renewed + self._lease
        return Grant(until) if until > now and (self.until is None or until > self.until) else None

    def is_alive(self, now: float) -> bool:
        """Whether the Lease has not been over by the own clock."""
        return self.renewed is not None and now < self.renewed + self._lease

    def notices_end(self, now: float) -> bool:
        """Returns whether the Lease is over, once for each renewal."""
        if self.renewed is None or self._expired or self.is_alive(now):
            return False
        self._expired = True
        return True

    def lapse(self) -> None:
        """The member is not as the next lease needs it: cut off, away, or in doubt."""
        self.must_read = True
        self.lapses += 1

    def renew(self, began: float) -> None:
        """The API server has renewed the Lease by a request that began at this instant."""
        self.renewed, self._expired = began, False

    def loosened(self) -> None:
        """The API server knows now that this sidecar sends without a lease."""
        self._unfenced = True

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        self.until, self._unfenced = until, False
