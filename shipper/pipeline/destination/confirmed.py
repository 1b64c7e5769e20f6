"""The other shipper, where an output relays: who it is, and what its final answers are worth, by the last ones and by
its handshake."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shipper.pipeline.destination.client import Client
from shipper.plugin import Principal
from shipper.process import log
from shipper.process.groups import contained
from shipper.sdk.errors import raised_at
from shipper.sdk.peers import Confirms
from shipper.spool.queue import Settlement
from shipper.values import Confirmed

_log = log.get(__name__)


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


class Peer:
    """What the lane of an output knows of the shipper that it relays to."""

    def __init__(self, output: str, confirmed: Confirmations, *, relays: bool) -> None:
        self.confirmed = confirmed
        self.delivers = not relays
        """Whether a final answer comes from the end of the way, as far as is known."""
        self.client: Client | None = None
        """What is open of the output."""
        self._output, self._relays = output, relays
        self._says_nothing = False
        """Whether its sender failed to name the principal."""
        self._last: Principal | None = None
        """The principal of the last client that was closed."""

    def principal(self) -> Principal | None:
        """Returns the shipper that its sender relays to, while the sender is open."""
        if self.client is None or self._says_nothing:
            return None
        try:
            with contained():
                return self.client.principal()
        except Exception as error:
            self._says_nothing = True
            _log.error("an output cannot say whom it relays to", output=self._output, error=raised_at(error))
            return None

    def relayed_to(self) -> Principal | None:
        """Returns the shipper that it relays to; that of the client before, while this one has reached none."""
        there = self.principal()
        return self._last if there is None or there.confirms is None else there

    def closes(self) -> None:
        """The client is about to be closed."""
        if (there := self.relayed_to()) is not None:
            self._last = there._replace(connected_seconds=None)

    @property
    def is_connected(self) -> bool:
        """Whether there is a session with it."""
        there = self.principal()
        return there is not None and there.connected_seconds is not None

    @property
    def confirms(self) -> Confirms:
        """Returns what a confirmation of its destination is worth."""
        if not self._relays:
            return "delivered"
        there = self.principal()
        return self.confirmed.weakest(None if there is None else there.confirms)

    def note_delivers(self, delivers: bool) -> None:
        """See `OutputContext.delivers`."""
        self.delivers = delivers


def weakest(confirmed: Iterable[Confirms]) -> Confirms | None:
    """Returns the weakest of these confirmations; None if there are none."""
    given = set(confirmed)
    return "stored" if "stored" in given else "delivered" if given else None
