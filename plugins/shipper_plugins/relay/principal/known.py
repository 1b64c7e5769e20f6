"""What a relay's door knows of one edge: the memory of its links, its sessions, and what it has to be told.

What must outlast the process is a position of the input, named by the edge and by a link, or by what stands for one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import trio

from shipper.plugin import Batch
from shipper_plugins.relay.frames import Poll
from shipper_plugins.relay.principal.figures import Seen
from shipper_plugins.relay.principal.generations import Sessions
from shipper_plugins.relay.principal.keys import Keys
from shipper_plugins.relay.principal.settled import Settled
from shipper_plugins.relay.principal.taken import Memory, Taken

LINEAGE: Final = "lineage"
"""Stands for a link in the name of the position that has the lineage of an edge in this state directory."""
HIGHEST: Final = "highest"
"""The same for the position that has the highest confirmed place of forgotten links."""


@dataclass(slots=True)
class Link:
    """The memory of a link, with its stored bytes."""

    memory: Memory
    stored: bytes | None = None


@dataclass(slots=True)
class Known:
    """What is known of the edge with this name."""

    name: str
    sessions: Sessions
    keys: Keys
    settled: Settled
    """Awaited versions that have all their answers."""
    lock: trio.Lock = field(default_factory=trio.Lock)
    """Held by the request that stores something."""
    links: dict[int, Link] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    """By key, awaited parts that have all their answers; they are told in the order of these numbers."""
    told: int = 0
    """The last of these numbers."""
    lineage: str = field(default_factory=lambda: os.urandom(16).hex())
    """The id of what is known of the edge in this state directory; a forgotten edge gets another one."""
    stored_lineage: bytes | None = None
    highest: int = 0
    """The highest place that was confirmed to a forgotten link, which may come back."""
    stored_highest: bytes | None = None
    news: trio.Event = field(default_factory=trio.Event)
    seen: Seen = field(default_factory=Seen)

    def at(self, link: int | str) -> str:
        """Returns the name of the position of a link, or of what stands for one."""
        return f"{self.name}/{link}"

    def see_lineage(self, stored: bytes | None) -> None:
        """Takes the stored id; an unreadable one becomes another one."""
        self.stored_lineage = stored
        if stored is not None and re.fullmatch(rb"[0-9a-f]{32}", stored):
            self.lineage = stored.decode()

    def see_highest(self, stored: bytes | None) -> None:
        """Takes the stored place; an unreadable one becomes 0."""
        self.stored_highest = stored
        self.highest = int(stored) if stored is not None and re.fullmatch(rb"[0-9]{1,19}", stored) else 0

    def awaited(self) -> list[Taken]:
        """Returns the parts whose final answers the edge waits for."""
        return [one for link in self.links.values() for one in link.memory.entries if one.awaited]

    def awaited_of(self, batch: Batch) -> list[Taken]:
        """Returns what was taken of the events of a part, by any link, and awaits final answers."""
        known = [one for link in self.links.values() for one in link.memory.of(batch.origin, batch.seq)]
        return [one for one in known if one.awaited and one.is_of(batch)]

    def tell(self, keys: Iterable[str]) -> None:
        """Tells these next, once more if they were told before."""
        for key in keys:
            self.told += 1
            self.done[key] = self.told
        self.wake()

    def wake(self) -> None:
        """Wakes those who wait for something to be told."""
        self.news.set()
        self.news = trio.Event()

    def has_news(self, poll: Poll) -> bool:
        """Whether something was not told yet."""
        return self.told > poll.after or self.settled.upto > poll.versions_after
