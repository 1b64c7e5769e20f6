"""The vectors that were offered, and what the sidecar was seen to run of each policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from shipper.kubernetes.member.memory import Memory, Part

_RECENT = 16
"""Offered vectors whose parts are remembered until one of them is active; an older one says nothing that counts."""


class Vectors:
    """The newest vector, which is durable, and those before it."""

    def __init__(self, memory: Memory) -> None:
        self.running = {part.uid: part for part in memory.parts}
        """The newest one, by uid."""
        self.good = {part.uid: part for part in memory.good}
        """What the sidecar was last seen to run of each policy."""
        self._recent: deque[tuple[int, tuple[Part, ...]]] = deque([(memory.number, memory.parts)], _RECENT)
        if memory.number and memory.reached.get("active", 0) >= memory.number:
            self.good |= self.running

    def saved(self, number: int, parts: Iterable[Part]) -> None:
        """A vector is durable, and offered next."""
        parts = tuple(parts)
        self.running = {part.uid: part for part in parts}
        self._recent.append((number, parts))

    def active(self, number: int) -> None:
        """The sidecar runs a vector, or one with the same meaning."""
        known = [parts for at, parts in self._recent if at <= number]
        if known:
            self.good |= {part.uid: part for part in known[-1]}
            self._recent = deque([one for one in self._recent if one[0] >= number], _RECENT)

    def retain(self, uids: Collection[str]) -> None:
        """Forgets what ran of all other policies."""
        self.good = {uid: part for uid, part in self.good.items() if uid in uids}

    @property
    def replaced(self) -> tuple[Part, ...]:
        """What was good, and is not in the newest vector."""
        return tuple(part for uid, part in sorted(self.good.items()) if self.running.get(uid) != part)


def named(directory: str, number: int) -> str:
    """Returns the name of a vector in answers."""
    return f"{directory}-{number}"


def number_of(name: str, directory: str) -> int | None:
    """Returns the number of a vector of this directory; None for any other name."""
    number = name.removeprefix(f"{directory}-")
    is_own = number != name and number.isascii() and number.isdigit() and len(number) < 19
    return int(number) if is_own else None
