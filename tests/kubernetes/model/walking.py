"""Walks through worlds at random, each time with other actors being slow, and looks how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.kubernetes.model.world import World

LONGEST = 400
ACTORS = ("leader", "sidecar", "sees", "answer", "does", "lists", "crash", "over", "cop", "becomes", "edited", "label")


@dataclass(frozen=True)
class Walk:
    """What a walk has broken, and its way."""

    broken: str
    way: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.broken, *(f"  {place}. {what}" for place, what in enumerate(self.way, 1))])


def walk(start: Callable[[], World], seed: int, longest: int = LONGEST) -> Walk:
    """Goes on until a law is broken, or for a while, and then fairly to the end."""
    random, world, way = Random(seed), start(), []
    speeds = {actor: 10 ** random.uniform(-2, 0) for actor in ACTORS}
    length = random.randrange(10, longest)
    for _ in range(length):
        actions = list(world.actions())
        weights = [_speed(what, speeds) for what, _ in actions]
        ((what, action),) = random.choices(actions, weights)
        way.append(what)
        action(world)
        world.hurry()
        if broken := next(world.laws(), ""):
            return Walk(broken, tuple(way))
    broken = world.finish()
    return Walk(f"in the end: {broken}" if broken else "", tuple(way))


def _speed(what: str, speeds: dict[str, float]) -> float:
    return next(speed for actor, speed in speeds.items() if actor in what)
