"""Walks through worlds at random, each time with other actors being slow, and looks how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.kubernetes.model.api import Api
from tests.kubernetes.model.host import Host
from tests.kubernetes.model.starts import alone
from tests.kubernetes.model.world import Budget, World
from tests.march.kind import Drawn, Kind, Told, Violation

LONGEST = 400
ACTORS = (
    "leader",
    "sidecar",
    "sees",
    "answer",
    "does",
    "lists",
    "crash",
    "over",
    "cop",
    "becomes",
    "edited",
    "label",
    "be read",
)


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


# -- as a campaign -----------------------------------------------------------------------------------------------------

CONTENTS = ("id:one", "id:two", "id:one", "id:three")
EVERYTHING = Budget(CONTENTS, edits=2, relabels=2, crashes=2, lost=2, lapses=2, joins=2, gaps=1, denials=2)


def two(api: Api) -> list[Host]:
    """Returns a host of each kind."""
    return [Host(api, "a", labels={"app": "web"}), Host(api, "b", labels={"app": "web"}, hold=True)]


BEGINNINGS: dict[str, tuple[Callable[[Api], list[Host]], Budget]] = {
    "continue": (alone(), EVERYTHING),
    "hold": (alone(hold=True), EVERYTHING),
    "two": (two, Budget(CONTENTS[:3], edits=1, crashes=1, lost=1, lapses=1, joins=2)),
    "backup": (alone(), Budget(CONTENTS, backups=1, crashes=1, lost=1)),
    "backup and hold": (alone(hold=True), Budget(CONTENTS, backups=1, lapses=1)),
}
"""Who walks, and what may happen to them."""


@dataclass(frozen=True)
class Walker(Drawn):
    """Where a walk begins, and the seed of its steps."""

    beginning: str
    seed: int


def draw(seed: int) -> Walker:
    """The beginnings take turns."""
    return Walker([*BEGINNINGS][seed % len(BEGINNINGS)], seed)


def run(walker: Walker) -> Told:
    """Walks, and judges the walk."""
    hosts, budget = BEGINNINGS[walker.beginning]
    found = walk(lambda: World(hosts, budget, frozenset()), walker.seed)
    violations = [Violation("W", found.broken)] if found.broken else []
    return Told(violations, Counter([walker.beginning]), Counter(steps=len(found.way)), found.way)


WALKS = Kind("python -m tests.kubernetes.model", draw, run, unit="walks", slice=20)
