"""What a seed draws of a world with edges and principals."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.simulation.scenario import Scenario, drawn_step

RATES: dict[str, tuple[float, float]] = {
    "lost_before": (0.02, 0.3),
    "lost_after": (0.02, 0.3),
    "unreachable": (0.02, 0.3),
    "again": (0.05, 0.6),
    "slow_wire": (0.02, 0.3),
    "busy": (0.05, 0.4),
    "item_later": (0.05, 0.3),
    "answer_lost": (0.05, 0.3),
    "poison": (1.0, 1.0),
    "commit_fails": (0.01, 0.08),
    "disk_slow": (0.02, 0.2),
}
"""Faults that strike at every opportunity with some probability: the least and the most that a seed draws."""

STEPS: dict[str, tuple[int, int]] = {
    "rotate": (1, 3),
    "kill": (1, 4),
    "kill_soon": (1, 4),
    "kill_principal": (1, 4),
    "part": (1, 3),
    "down": (1, 2),
    "hot": (1, 2),
    "tune_principal": (1, 2),
    "part_for_long": (1, 1),
    "wall": (1, 2),
}
"""Things done at drawn moments: how many of a kind there are, if there are any."""

Lost = Literal["nothing", "edge", "principal", "clone"]
LOST: tuple[Lost, ...] = ("nothing", "nothing", "nothing", "edge", "principal", "clone")
"""Which directories go back to an older copy, or are used twice."""
Trial = Literal["full", "hot"]
"""When all faults are over, what other keys get past: log events that nobody takes, or a key that always changes."""
TRIALS: tuple[Trial | None, ...] = (None, None, "full", "hot")
SHARES = (0.1, 0.3, 0.6)
MIDDLE, LAST = "p1", "last"
"""Of a chain: the principal of the edges, which is an edge itself, by the same name; and the principal of that one."""


@dataclass(frozen=True)
class Relayed(Scenario):
    """All that is drawn before such a world begins."""

    delivers: bool = False
    """Whether principals confirm what is delivered, not what is stored."""
    principals: int = 1
    far: bool = False
    """Whether the one principal is in the middle: it relays to a last one, as an edge of that one."""
    far_delivers: bool = False
    """The same as `delivers`, of the last one."""
    edges: tuple[str, ...] = ("berlin",)
    lies: bool = False
    """Whether another edge reads what is on the wires, and posts its own events under the next ids of the others."""
    lost: Lost = "nothing"
    trial: Trial | None = None

    @property
    def hops(self) -> tuple[str, ...]:
        """The principals on the way of an event, in their order; where there are two beside each other, any of them."""
        return (*(f"p{number + 1}" for number in range(self.principals)), *([LAST] if self.far else []))

    @property
    def senders(self) -> tuple[str, ...]:
        """Who relays to a principal."""
        return (*self.edges, *([MIDDLE] if self.far else []))

    def principals_of(self, sender: str) -> tuple[str, ...]:
        """Whom it relays to."""
        return (LAST,) if sender == MIDDLE else tuple(name for name in self.hops if name != LAST)

    @property
    def ends(self) -> tuple[str, ...]:
        """Who delivers to the backend."""
        return (LAST,) if self.far else self.hops

    def is_delivered(self, sender: str) -> bool:
        """Whether an event is delivered when this sender has its answer."""
        if sender == MIDDLE:
            return self.far and self.far_delivers
        return self.delivers and (self.far_delivers or not self.far)

    def is_delivered_by(self, principal: str) -> bool:
        """Whether this principal confirms what is delivered."""
        return self.far_delivers if principal == LAST else self.delivers

    def owner(self, edge: str) -> str:
        """The name of the owner of an edge's keys, at the backend."""
        return f"{MIDDLE}/{edge}" if self.far else edge

    @classmethod
    def draw(cls, seed: int) -> Relayed:
        """The scenario of a seed."""
        random = Random(f"relayed {seed}")
        share = random.choice(SHARES)
        rates = {name: random.uniform(*bounds) for name, bounds in RATES.items() if random.random() < share}
        seconds = random.choice((5.0, 20.0, 60.0))
        kinds = [kind for kind in STEPS if random.random() < max(0.3, share)]
        steps = [drawn_step(random, seconds, kind) for kind in kinds for _ in range(random.randint(*STEPS[kind]))]
        steps += [drawn_step(random, seconds, "write") for _ in range(random.randint(2, 8))]
        keys = random.choice((0, 1, 3, 8))
        if keys:
            steps += [drawn_step(random, seconds, "change") for _ in range(random.randint(3, 8))]
        steps = [step for step in steps if keys or step.kind != "hot"]
        lost = random.choice(LOST)
        if lost != "nothing":
            steps += [drawn_step(random, seconds, f"{lost}_goes_back" if lost != "clone" else "clone")]
        delivers = random.random() < 0.5
        queue_bytes = random.choice((1 << 14, 1 << 20, 1 << 20))
        principals = random.choice((1, 1, 2))
        far = Random(f"far {seed}")
        return cls(
            seed=seed,
            rates=rates,
            steps=tuple(sorted(steps, key=lambda step: step.at)),
            chaos_seconds=seconds,
            queue_bytes=queue_bytes,
            workers=1,
            keys=keys,
            delivers=delivers,
            principals=principals,
            far=principals == 1 and far.random() < 0.5,
            far_delivers=far.random() < 0.6,
            edges=random.choice((("berlin",), ("berlin",), ("berlin", "paris"))),
            lies=Random(f"lies {seed}").random() < 0.3,
            lost=lost,
            trial=random.choice(TRIALS if keys > 1 else (None,)),
        )
