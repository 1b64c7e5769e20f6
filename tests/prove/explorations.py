"""`python -m tests.prove.explorations`: explore small models of the protocols, breadth first, to so many states each.

Members, a publisher and a candidate of a fleet (`tests.fleet.model`); members, people and a leader of Kubernetes
(`tests.kubernetes.model`); leaders that take over from each other (`tests.kubernetes.summing`); the lanes of a sidecar
(`tests.pipeline.exploration`). What is explored is the seed: a campaign goes through the table once, and `--state` lets
it go on where it stands.

States are distinct within an exploration: their values differ, or what may still happen does. A campaign sums them up:
a state to which two explorations come counts in both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.fleet.explore import Exploration
from tests.fleet.model import Left, Rules, laws, start, steps
from tests.kubernetes.model.exploration import explore
from tests.kubernetes.model.starts import STARTS
from tests.kubernetes.summing import drained, model
from tests.kubernetes.summing.exploring import Found
from tests.kubernetes.summing.exploring import explore as explore_all
from tests.march.command import campaign, parser
from tests.march.kind import Drawn, Kind, Told, Violation
from tests.march.sums import Sums
from tests.pipeline.exploration import explore as lanes
from tests.pipeline.exploration.worlds import WORLDS
from tests.progress import Progress

TOLD_EVERY = 100
"""States."""
FIRST, SECOND = frozenset({"s1"}), frozenset({"s2"})
RULES = Rules((FIRST, SECOND, FIRST))
FAULTS = {
    "nothing": Left(),
    "a lease ends": Left(lapses=1),
    "a crash": Left(crashes=1),
    "a lost answer": Left(lost=1),
    "a crash and a lost answer": Left(crashes=1, lost=1),
}


class Seen(NamedTuple):
    """What an exploration came to."""

    states: int
    broken: str
    complete: bool


def of_fleet(faults: Left, states: int) -> Seen:
    """A secret is rotated, and comes back; two members, of which one holds."""
    found = Exploration(steps(RULES), laws).explore(start(True, False, left=faults), states)
    return Seen(found.states, str(found.broken or ""), found.complete)


def of_members(name: str, states: int) -> Seen:
    """Members of Kubernetes, from where something is about to happen."""
    found = explore(STARTS[name](frozenset()), most=states, ends=20)
    return Seen(found.states, found.broken, found.complete)


def of_leaders(state: model.State, states: int) -> Seen:
    """All of it: it is small."""
    try:
        return Seen(len(explore_all(state, partial(model.successors, rules=model.RULES), model.wrong)), "", True)
    except Found as found:
        return Seen(0, str(found), False)


def of_takeovers(states: int) -> Seen:
    """All of it, too."""
    try:
        found = explore_all(drained.State(), partial(drained.successors, rules=drained.RULES), drained.wrong)
        return Seen(len(found), "", True)
    except Found as found:
        return Seen(0, str(found), False)


def of_lanes(name: str, states: int) -> Seen:
    """Lanes, their destinations and their store."""
    seen = 0
    with Progress(lambda: f"lanes: {name}: {seen:,} of at most {states:,} states") as progress:

        def tell(count: int) -> None:
            nonlocal seen
            seen = count
            if count % TOLD_EVERY == 0:
                progress()

        found = lanes.explore(WORLDS[name](), states, tell=tell)
    return Seen(found.states, found.broken, found.complete)


TABLE: Mapping[str, Callable[[int], Seen]] = {
    **{f"a fleet, and {name}": partial(of_fleet, left) for name, left in FAULTS.items()},
    **{f"Kubernetes: {name.replace('_', ' ')}": partial(of_members, name) for name in STARTS},
    "two leaders and a new content": partial(of_leaders, model.State("ab", rounds=(1, 1), lapses=0)),
    "a fence by either leader": partial(of_leaders, model.State("ab", rounds=(2, 1))),
    "a leader that takes over": of_takeovers,
    **{f"lanes: {name}": partial(of_lanes, name) for name in WORLDS},
}


@dataclass(frozen=True)
class Explored(Drawn):
    """One of the table."""

    name: str
    states: int


def draw(states: int, seed: int) -> Explored:
    """The next one."""
    return Explored([*TABLE][seed % len(TABLE)], states)


def run(explored: Explored) -> Told:
    """Explores it. A law that is broken is one thing (X), anything that is raised another one (E)."""
    try:
        seen = TABLE[explored.name](explored.states)
    except Exception as error:
        return Told([Violation("E", f"{explored.name} could not go on: {type(error).__name__}: {error}")])
    violations = [Violation("X", f"{explored.name}: {seen.broken}")] if seen.broken else []
    figures = Counter({"states": seen.states, "seen whole": seen.complete})
    return Told(violations, Counter({explored.name: seen.states}), figures)


def explorations(states: int) -> Kind:
    """The kind of this campaign."""
    command = f"python -m tests.prove.explorations --states {states}"
    return Kind(command, partial(draw, states), run, unit="explorations", slice=1, twice_every=0)


def main() -> int:
    options = parser("tests.prove.explorations", __doc__)
    options.add_argument("--states", type=int, default=2000, help="of each, at most (default: 2000)")
    told = options.parse_args()
    told.rounds = _rounds(told.rounds, told.seed, Sums.load(told.state))
    return campaign(explorations(told.states), told)


def _rounds(asked: int | None, seed: int | None, sums: Sums) -> int:
    """With those of the sums, and none twice: it would count the same states again."""
    first = sums.next_seed if seed is None else seed
    most = sums.rounds + max(0, len(TABLE) - first)
    return most if asked is None else min(asked, most)


if __name__ == "__main__":
    sys.exit(main())
