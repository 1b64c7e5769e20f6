"""What a lapse of the member's Lease ends, and what is needed for the next one of the sidecar: `on_lapse: hold`."""

from __future__ import annotations

from shipper.membership.leases import Leases


class Fencing(Leases):
    """A lapse ends what was verified: then the bounds, the policies and the Secrets are read anew, and the sidecar has
    to run what follows from them, before the next lease."""

    def __init__(self, lease: float) -> None:
        super().__init__(lease)
        self.must_read = True
        """Whether policies and Secrets were not read since the last lapse."""
        self.lapses = 0
        """Counts lapses."""
        self._expired = False
        """Whether the end of the Lease was noticed since its newest renewal."""

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
        super().renew(began)
        self._expired = False
