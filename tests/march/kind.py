"""What a campaign is of. A kind goes to worker processes, so that its functions must be those of a module."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Violation(NamedTuple):
    """What was promised and did not hold."""

    law: str
    text: str

    def __str__(self) -> str:
        return f"{self.law}: {self.text}"


Law = Callable[[Any], Iterable[Violation]]


def first_of_each(laws: Iterable[Law], case: Any) -> list[Violation]:
    """What a case violates of these, one of each law, by their names."""
    found: dict[str, Violation] = {}
    for violation in (one for law in laws for one in law(case)):
        found.setdefault(violation.law, violation)
    return [found[name] for name in sorted(found)]


class Drawn:
    """What a seed draws: a scenario, of which parts may be left out."""

    def parts(self) -> Sequence[Any]:
        """What can be left out, by `without`."""
        return ()

    def without(self, parts: Sequence[Any]) -> Any:
        """The same, with less."""
        return self


class Outcome(Protocol):
    """What became of a scenario."""

    @property
    def violations(self) -> Sequence[Violation]: ...
    @property
    def faults(self) -> Counter[str]:
        """How often what was done."""

    @property
    def figures(self) -> Counter[str]:
        """What there was: events, processes, answers."""

    @property
    def trace(self) -> str:
        """The same for the same scenario."""

    def told(self) -> Iterable[str]:
        """All that happened, in lines."""


@dataclass(frozen=True)
class Told:
    """An outcome that is a few words."""

    violations: Sequence[Violation]
    faults: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    words: tuple[str, ...] = ()

    @property
    def trace(self) -> str:
        return repr(self)

    def told(self) -> Iterable[str]:
        return self.words


@dataclass(frozen=True)
class Kind:
    """How rounds are made of seeds."""

    command: str
    """That runs this campaign, with the options that are its own."""
    draw: Callable[[int], Any]
    run: Callable[[Any], Outcome]
    unit: str = "worlds"
    slice: int = 50
    """Rounds that a process runs before it is asked for its sums."""
    clock: Callable[[], float] = time.process_time
    """What a round costs: time of a processor, or of a wall clock, where it waits for real processes."""
    twice_every: int = 100
    """Every so many rounds one is run twice, and its trace must be the same; 0: the machine has a say in it."""
