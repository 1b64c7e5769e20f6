"""What the final answers of another shipper are worth, by the last ones and by its handshake."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shipper.sdk.peers import Confirms
from shipper.spool.queue import Settlement
from shipper.values import Confirmed


class Confirmations(msgspec.Struct):
    """The confirmations of the last answers, for log events and for versions of keys."""

    events: Confirmed = Confirmed.UNKNOWN
    versions: Confirmed = Confirmed.UNKNOWN

    def note(self, settlement: Settlement) -> None:
        """Notes a stored confirmation; the spool stores the same (`queue.settle`)."""
        if settlement.confirmed is Confirmed.UNKNOWN:
            return
        if settlement.is_version:
            self.versions = settlement.confirmed
        else:
            self.events = settlement.confirmed

    def weakest(self, said: Confirms | None) -> Confirms:
        """Returns the weakest confirmation of a destination that relays; `said` is that of its handshake, if any.

        It is the weakest of all for a destination that has confirmed and declared nothing yet.
        """
        if Confirmed.STORED in (self.versions, Confirmed.of(said)):
            return "stored"
        return "delivered" if Confirmed.DELIVERED in (self.events, Confirmed.of(said)) else "stored"


def weakest(confirmed: Iterable[Confirms]) -> Confirms | None:
    """Returns the weakest of these confirmations; None if there are none."""
    given = set(confirmed)
    return "stored" if "stored" in given else "delivered" if given else None
