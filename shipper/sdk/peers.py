"""The other sides of a relay, as plugins know them: for `observed`, metrics and people. Times are ages in seconds."""

from __future__ import annotations

from typing import Literal, NamedTuple

Confirms = Literal["stored", "delivered"]
"""What a confirmation is worth: the next shipper has stored the events, or they are delivered at the end of the way."""


class Edge(NamedTuple):
    """A shipper that an input takes from. The last two figures are those that it has sent."""

    name: str
    connected_seconds: float | None = None
    """None: it is not connected."""
    heard_seconds: float | None = None
    """Since its last request; None: there was none since the start of this process."""
    waiting_events: int = 0
    """Log events that wait there."""
    versions_behind: int = 0
    """Versions of its keys that wait there."""


class Principal(NamedTuple):
    """The shipper that an output relays to."""

    host: str
    """That is used, or would be asked next; without a secret."""
    connected_seconds: float | None = None
    """None: there is no session."""
    reason: str = ""
    """Why there is none, if that is known."""
    confirms: Confirms | None = None
    """None: it was not reached since the output was opened."""


class Waits(NamedTuple):
    """What has no final answer yet on a lane."""

    events: int = 0
    """Log events."""
    versions: int = 0
    """Versions of keys."""
