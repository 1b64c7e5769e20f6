"""Explores what may happen in a world, breadth first, and remembers how it came there."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

from tests.kubernetes.model.world import World


@dataclass(frozen=True)
class Explored:
    """What an exploration has found."""

    states: int
    broken: str
    """The law, and the way there; empty if none was broken."""
    complete: bool


def explore(start: World, *, most: int, ends: int = 0) -> Explored:
    """Visits worlds until all are seen, a law is broken, or there are more than `most`; of each `ends`th world, it is
    seen how it ends."""
    first = _digest(start)
    before: dict[bytes, tuple[bytes, str] | None] = {first: None}
    waiting = deque([(first, start)])
    visited = 0
    while waiting:
        at, world = waiting.popleft()
        visited += 1
        if broken := next(world.laws(), ""):
            return Explored(len(before), _told(broken, before, at), False)
        if ends and visited % ends == 0 and (broken := world.copy().finish()):
            return Explored(len(before), _told(f"in the end: {broken}", before, at), False)
        if len(before) > most:
            return Explored(len(before), "", False)
        for what, action in world.actions():
            after = world.copy()
            action(after)
            after.hurry()
            key = _digest(after)
            if key not in before:
                before[key] = (at, what)
                waiting.append((key, after))
    return Explored(len(before), "", True)


def _digest(world: World) -> bytes:
    return hashlib.blake2b(world.key(), digest_size=16).digest()


def _told(law: str, before: dict[bytes, tuple[bytes, str] | None], at: bytes) -> str:
    way: list[str] = []
    while (found := before[at]) is not None:
        at, what = found
        way.append(what)
    return "\n".join([law, *(f"  {place}. {what}" for place, what in enumerate(reversed(way), 1))])
