"""What a seed draws of a world with a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

STEPS: dict[str, tuple[int, int]] = {
    "kill": (1, 5),
    "kill_soon": (1, 5),
    "stop": (1, 4),
    "stop_both": (1, 2),
    "stop_sidecar": (1, 2),
    "cut": (1, 4),
    "lose": (1, 6),
    "slow_watch": (1, 4),
    "compact": (1, 2),
    "outage": (1, 2),
    "another": (1, 2),
    "leave": (1, 1),
    "forget": (1, 1),
    "wipe": (1, 2),
    "older": (1, 1),
    "clone": (1, 1),
    "restore": (1, 1),
}
"""What happens at drawn moments: how often, if the seed has it at all."""
RARE = {"clone": 0.3, "restore": 0.3, "older": 0.5}
"""The share of those seeds that keep what makes many an answer void."""


class Step(NamedTuple):
    """Something happens: `draw` decides what it leaves open."""

    at: float
    kind: str
    draw: int


@dataclass(frozen=True)
class Fleets:
    """All that is drawn before a world begins."""

    seed: int
    members: int
    holding: int
    """Members with `on_lapse: hold`."""
    releasing: int
    """Candidates for `on_release`."""
    seconds: float
    """Of publishing and faults."""
    history: int
    delay: float
    """The longest way to the store."""
    pace: float
    """How slow sidecars are."""
    refuses: float
    """How often a sidecar refuses a version."""
    slow: float
    """How slow some clocks are."""
    steps: tuple[Step, ...]

    def parts(self) -> Sequence[Step]:
        """What can be left out, by `without`."""
        return self.steps

    def without(self, parts: Sequence[Step]) -> Fleets:
        """The same, with less."""
        return replace(self, steps=tuple(step for step in self.steps if step not in parts))

    @classmethod
    def draw(cls, seed: int, members: int | None = None) -> Fleets:
        """Returns the scenario of a seed."""
        random = Random(f"fleets {seed}")
        count = random.choice((1, 2, 3, 3, 4, 5))
        count = count if members is None else members
        seconds = random.choice((60.0, 120.0, 300.0))
        share = random.choice((0.1, 0.3, 0.6))
        kinds = [kind for kind in STEPS if random.random() < share and random.random() < RARE.get(kind, 1.0)]
        steps = [
            Step(random.uniform(0.0, seconds), kind, random.getrandbits(32))
            for kind in kinds
            for _ in range(random.randint(*STEPS[kind]))
        ]
        return cls(
            seed=seed,
            members=count,
            holding=random.choice((0, count, random.randint(0, count))),
            releasing=random.randint(1, min(count, 3)),
            seconds=seconds,
            history=random.choice((4, 50)),
            delay=random.choice((0.0, 0.02, 0.3)),
            pace=random.choice((0.1, 1.0, 5.0)),
            refuses=random.choice((0.0, 0.0, 0.1)),
            slow=random.choice((1.0, 1.0, 1.01)),
            steps=tuple(sorted(steps)),
        )
