"""What a seed draws: which faults a world knows and how often they strike, what is done when, who writes how much.

Each seed knows a random subset of the faults only: where everything fails all the time, little of interest is reached
(Groce et al., "Swarm Testing", 2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

RATES: dict[str, tuple[float, float]] = {
    "busy": (0.05, 0.4),
    "unavailable": (0.05, 0.4),
    "unauthorized": (0.02, 0.2),
    "too_large": (0.05, 0.3),
    "answer_lost": (0.05, 0.4),
    "short_answer": (0.005, 0.03),
    "hang": (0.01, 0.1),
    "slow_net": (0.05, 0.5),
    "output_bug": (0.01, 0.1),
    "open_fails": (0.05, 0.4),
    "task_fails": (0.05, 0.5),
    "item_later": (0.05, 0.3),
    "item_held": (0.02, 0.2),
    "poison": (1.0, 1.0),
    "disk_slow": (0.02, 0.2),
    "commit_fails": (0.02, 0.15),
    "read_fails": (0.01, 0.1),
    "input_fails": (0.02, 0.2),
    "input_refused": (0.05, 0.3),
    "withheld": (0.2, 1.0),
    "late_grant": (0.1, 0.6),
}
"""Faults that strike at every opportunity with some probability: the least and the most that a seed draws."""

STEPS: dict[str, tuple[int, int]] = {
    "rotate": (1, 3),
    "rotate_all": (1, 2),
    "retarget": (1, 2),
    "back": (1, 2),
    "outputs": (1, 3),
    "tune": (1, 2),
    "same": (1, 2),
    "replace_input": (1, 2),
    "route": (1, 2),
    "flood": (1, 2),
    "disorder": (1, 2),
    "again": (1, 3),
    "stale": (1, 2),
    "conflict": (1, 2),
    "invalid": (1, 2),
    "digest": (1, 1),
    "missing": (1, 2),
    "clash": (1, 2),
    "garbage": (1, 3),
    "epoch": (1, 2),
    "deadline": (1, 2),
    "rekey": (1, 2),
    "crash": (1, 3),
    "eof": (1, 2),
    "signal": (1, 2),
    "stop": (1, 2),
    "wall": (1, 2),
    "revoke": (1, 2),
    "deaf": (1, 2),
    "down": (1, 2),
    "disk_full": (1, 2),
    "end_drain": (1, 2),
    "rebind": (1, 2),
}
"""Things done at drawn moments: how many of a kind there are, if there are any."""

LATER_STEPS: dict[str, tuple[int, int]] = {
    "typo": (1, 3),
    "forward": (1, 3),
    "forward_late": (1, 2),
    "withdraw": (1, 3),
    "end_batch": (1, 2),
}
"""The same, each kind from a stream of its own: what a seed drew before there were these, it draws still."""

KEYS = (*[0] * 5, 1, 4, 12)
"""How many keys there are, in worlds that know keyed state."""
KEYED_RATES: dict[str, tuple[float, float]] = {
    "echo": (0.05, 0.5),
    "rescan": (0.2, 1.0),
    "stale_again": (0.3, 0.9),
}
"""Faults of such worlds only; each is drawn from a stream of its own, for one in two."""
KEYED_STEPS: dict[str, tuple[float, int, int]] = {
    "change": (1.0, 3, 8),
    "hot": (0.8, 1, 4),
    "move": (0.5, 1, 3),
    "take_away": (0.25, 1, 2),
    "overwrite": (0.4, 1, 4),
}
"""And steps: how likely there are any, and how many then."""

LEASED = 0.1
"""Of the worlds: nothing is sent there without a lease, until the world heals."""
LEASES = (4, 16)

SHARES = (0.05, 0.15, 0.4)
"""Of the faults, as a world knows them: few, some, many."""

RUSHES = {0.05: 0.2, 0.15: 0.2, 0.4: 0.0}
"""Whether there is a rush: one revision as soon as the other is active, or sooner, while many drain.

Not where many things fail: hardly a revision becomes active there before the next is sent."""
RUSH_STEPS = (10, 40)
RUSH_SECONDS = (0.2, 2.0, 10.0)
RUSH_PATIENCE = (0.0, 1.0, 5.0, 5.0, 5.0, 5.0)
RUSH_KINDS: dict[str, int] = {
    "rotate": 40,
    "rotate_all": 3,
    "retarget": 2,
    "back": 2,
    "outputs": 2,
    "replace_input": 2,
    "route": 1,
    "tune": 1,
    "same": 1,
    "disorder": 1,
    "epoch": 1,
}
"""How often each of these is a step of a rush."""


LIMITS: dict[str, tuple[int, ...]] = {
    "shipper.pipeline.memory.slots.DRAINING_AT_ONCE": (1, 2, 8),
    "shipper.pipeline.memory.slots.ASKING_AT_ONCE": (1, 2, 32),
    "shipper.pipeline.delivery.parcels.WINDOW": (1, 4, 512),
    "shipper.pipeline.delivery.feed.NOTING": (1, 4),
}
"""Constants of the product, as small as they may be: a few events and lanes reach the bounds of each."""


FEEDING: dict[str, tuple[Any, ...]] = {
    "events": (1, 8, 4000),
    "bytes": (200, 2 << 20),
    "client": ("session", "lane"),
    "ordered": (False, False, True),
}
"""What outputs may state."""


AWAY = (*[None] * 5, "east", "west", "pull", "push")
"""Which destination refuses everything, or all of which stream, when all other faults are over, if one does."""
PLACE_REFUSED = (*[0.0] * 7, 0.05, 0.3)
"""How often an event is refused as if its stream were."""


@dataclass(frozen=True)
class Step:
    """Something that is done at a moment; `draw` seeds its details, so that they stay if other steps are left out."""

    at: float
    kind: str
    draw: int
    patience: float = 0.0
    """Seconds that it waits, at most, until the policy that was sent last is active or refused."""

    def random(self) -> Random:
        return Random(self.draw)


@dataclass(frozen=True)
class Scenario:
    """All that is drawn before a world begins."""

    seed: int
    rates: dict[str, float]
    steps: tuple[Step, ...]
    chaos_seconds: float
    queue_bytes: int
    workers: int
    away: str | None = None
    limits: tuple[tuple[str, int], ...] = ()
    feeding: Mapping[str, Any] = field(default_factory=dict)
    """What outputs state of how they are fed."""
    keys: int = 0
    """Of keyed state; 0: there is none."""

    @classmethod
    def draw(cls, seed: int) -> Scenario:
        """The scenario of a seed."""
        random = Random(f"scenario {seed}")
        share = random.choice(SHARES)
        rushes = RUSHES[share]
        rates = {name: random.uniform(*bounds) for name, bounds in RATES.items() if random.random() < share}
        if place_refused := Random(f"place {seed}").choice(PLACE_REFUSED):
            rates["place_refused"] = place_refused
        seconds = random.choice((2.0, 8.0, 25.0))
        share = random.choice((0.05, 0.1, 0.25))
        kinds = ["rotate", *(kind for kind in STEPS if random.random() < share)]
        steps = [drawn_step(random, seconds, kind) for kind in kinds for _ in range(random.randint(*STEPS[kind]))]
        steps += [drawn_step(random, seconds, "write") for _ in range(random.randint(2, 8))]
        steps += _rush(Random(f"rush {seed}"), rushes, seconds)
        for kind, count in LATER_STEPS.items():
            own = Random(f"{kind} {seed}")
            steps += [drawn_step(own, seconds, kind) for _ in range(own.randint(*count)) if own.random() < 0.2]
        steps += _leases(Random(f"lease {seed}"), seconds)
        keys = Random(f"keys {seed}").choice(KEYS)
        if keys:
            rates |= {
                name: Random(f"{name} {seed}").uniform(*bounds)
                for name, bounds in KEYED_RATES.items()
                if Random(f"has {name} {seed}").random() < 0.5
            }
            steps += _keyed_steps(seed, seconds)
        return cls(
            seed=seed,
            rates=rates,
            steps=tuple(sorted(steps, key=lambda step: step.at)),
            chaos_seconds=seconds,
            queue_bytes=random.choice((2048, 8192, 1 << 20, 1 << 20)),
            workers=random.randint(1, 4),
            away=Random(f"away {seed}").choice(AWAY),
            limits=tuple((name, Random(f"{name} {seed}").choice(values)) for name, values in LIMITS.items()),
            feeding=_feeding(seed),
            keys=keys,
        )

    def names(self) -> set[str]:
        """The kinds of faults and steps there are."""
        return {*self.rates, *(step.kind for step in self.steps)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Their names, which are their types."""
        return ("pull", "push", "things") if self.keys else ("pull", "push")

    @property
    def is_leased(self) -> bool:
        return any(step.kind == "lease" for step in self.steps)

    @property
    def is_ordered(self) -> bool:
        """Not where a stream is refused to the end: that stops a lane in order for good."""
        return bool(self.feeding.get("ordered"))

    @property
    def is_fenced(self) -> bool:
        """Whether it matters when a request begins."""
        return self.is_leased or any(step.kind == "withdraw" for step in self.steps)

    def parts(self) -> list[Any]:
        """What can be left out, by `without`."""
        return [*self.rates, *self.steps]

    def without(self, parts: list[Any]) -> Scenario:
        """The same, with less."""
        return replace(
            self,
            rates={name: rate for name, rate in self.rates.items() if name not in parts},
            steps=tuple(step for step in self.steps if step not in parts),
        )


def drawn_step(random: Random, seconds: float, kind: str) -> Step:
    return Step(random.uniform(0.0, seconds), kind, random.getrandbits(32))


def _feeding(seed: int) -> dict[str, Any]:
    drawn = {name: Random(f"{name} {seed}").choice(values) for name, values in FEEDING.items()}
    is_stopped = Random(f"away {seed}").choice(AWAY) in ("pull", "push")
    return drawn | ({"ordered": False} if is_stopped else {})


def _keyed_steps(seed: int, seconds: float) -> list[Step]:
    steps = []
    for kind, (odds, least, most) in KEYED_STEPS.items():
        own = Random(f"{kind} {seed}")
        if own.random() < odds:
            steps += [drawn_step(own, seconds, kind) for _ in range(own.randint(least, most))]
    return steps


def _leases(random: Random, seconds: float) -> list[Step]:
    if random.random() >= LEASED:
        return []
    return [drawn_step(random, seconds, "lease") for _ in range(random.randint(*LEASES))]


def _rush(random: Random, odds: float, seconds: float) -> list[Step]:
    """From a stream of its own: it is added to what the seed draws otherwise."""
    if random.random() >= odds:
        return []
    begins, lasts = random.uniform(0.0, seconds), min(random.choice(RUSH_SECONDS), seconds)
    kinds = random.choices(list(RUSH_KINDS), list(RUSH_KINDS.values()), k=random.randint(*RUSH_STEPS))
    return [
        Step(begins + random.uniform(0.0, lasts), kind, random.getrandbits(32), random.choice(RUSH_PATIENCE))
        for kind in kinds
    ]
