"""What a destination has confirmed, by the state directory that it had then: so one that went back is seen.

A destination that is a shipper too draws a random name with its state directory, its lineage, and says it in each
session. What a lineage has confirmed it has stored; if it knows less later, its directory went back to an older copy. A
directory that was lost has another lineage, and so has another host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Confirmed(NamedTuple):
    """What one lineage has confirmed to a lane: the highest place of its log events (`Batch.place`), and that of its
    versions of keyed state; 0: none. `host` says where, in a word of the output's own."""

    events: int = 0
    state: int = 0
    host: str = ""


class Lineages(Protocol):
    """What is known of the lineages of a lane's destination, durably; the oldest of very many are forgotten."""

    async def known(self) -> Mapping[str, Confirmed]:
        """By lineage, what was noted, in this process or before."""
        ...

    def note(self, lineage: str, confirmed: Confirmed) -> None:
        """Have this be known of a lineage: durable no later than answers that `send` gives after this call."""
        ...
