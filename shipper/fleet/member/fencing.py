"""What a lapse of the sidecar's lease ends, and what is needed for the next one: `on_lapse: hold`."""

from __future__ import annotations

from shipper.membership.leases import Leases


class Fencing(Leases):
    """A lapse ends what was verified; then a new look, and a sidecar that runs the newest version as that look has
    found it, come before the next lease."""

    def __init__(self, lease: float) -> None:
        super().__init__(lease)
        self.verified = False
        """Whether nothing has lapsed since all that a lease needs was seen."""
        self._expired = False
        """Whether the end of the newest lease was noticed."""

    def notices_end(self, now: float) -> bool:
        """Returns whether the sidecar's lease is over, once for each lease."""
        if self.until is None or now < self.until or self._expired:
            return False
        self._expired = True
        return True

    def lapse(self) -> None:
        """The member is not as the next lease needs it: cut off, away, or in doubt."""
        self.verified = False

    def granted(self, until: float | None) -> None:
        """The sidecar has its lease, or needs none any more."""
        super().granted(until)
        self._expired, self.verified = False, until is not None
