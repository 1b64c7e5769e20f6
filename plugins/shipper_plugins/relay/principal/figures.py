"""What a principal shows of its edges, in `observed`, metrics and status: since when they are there, and what they
report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from shipper.plugin.relay import Edge
from shipper_plugins.relay.frames import Head
from shipper_plugins.relay.principal.generations import SILENT_SECONDS
from shipper_plugins.relay.state import StateHead


@dataclass(slots=True)
class Seen:
    """The figures of one edge, since the start of this process; times are those of a clock that only goes forward."""

    since: float = 0.0
    """When it connected."""
    links: dict[int, Said] = field(default_factory=dict)
    """By link, what it reported last."""

    def began(self, now: float, *, was_live: bool) -> None:
        """Notes a session; that of an edge which was not there begins a connection."""
        if not was_live:
            self.since = now

    def said(self, head: Head | StateHead, now: float) -> None:
        """Notes what the edge reports in a request, and forgets links that it no longer uses; from any thread."""
        self.links[head.link] = Said(now, head.waiting, head.versions)
        if len(self.links) > 1:
            for link, said in list(self.links.items()):
                if said.at < now - SILENT_SECONDS:
                    self.links.pop(link, None)

    def took(self, link: int, *, events: int = 0, versions: int = 0) -> None:
        """Notes that some of what it reported waits no more: it was in that very request, and has its final answers."""
        if (said := self.links.get(link)) is not None:
            left = max(0, said.events - events), max(0, said.versions - versions)
            self.links[link] = Said(said.at, *left)

    def edge(self, name: str, heard: float | None, now: float, *, is_live: bool) -> Edge:
        """Returns the figures of this edge."""
        said = list(self.links.values())
        return Edge(
            name,
            now - self.since if is_live else None,
            None if heard is None else now - heard,
            sum(one.events for one in said),
            sum(one.versions for one in said),
        )


class Said(NamedTuple):
    """What waits at an edge for one link, and when it reported that."""

    at: float
    events: int
    versions: int
