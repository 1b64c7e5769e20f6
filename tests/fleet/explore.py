"""Explores all states that a model can reach, breadth first, and returns the shortest way to a broken law."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
Step = tuple[str, S]
"""What is done, in words, and the state after it."""


@dataclass(frozen=True)
class Broken:
    """A law that does not hold, and the shortest way there."""

    law: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.law, *(f"  {place}. {step}" for place, step in enumerate(self.trace, 1))])


@dataclass(frozen=True)
class Explored:
    """What an exploration has found."""

    states: int
    broken: Broken | None
    complete: bool
    """Whether every state was seen; an exploration ends at `most` states, and at the first broken law."""


class Exploration(Generic[S]):
    """`steps` yields what may be done in a state; `laws` yields what is broken in it."""

    def __init__(self, steps: Callable[[S], Iterable[Step[S]]], laws: Callable[[S], Iterable[str]]) -> None:
        self._steps, self._laws = steps, laws
        self._before: dict[S, tuple[S, str] | None] = {}

    def explore(self, start: S, most: int = 1_000_000) -> Explored:
        """Visits states from `start` on until all are seen, a law is broken, or there are more than `most`."""
        self._before = {start: None}
        waiting = deque([start])
        while waiting:
            state = waiting.popleft()
            for law in self._laws(state):
                return Explored(len(self._before), Broken(law, self._trace(state)), False)
            if len(self._before) > most:
                return Explored(len(self._before), None, False)
            for what, after in self._steps(state):
                if after not in self._before:
                    self._before[after] = (state, what)
                    waiting.append(after)
        return Explored(len(self._before), None, True)

    def states(self) -> Iterable[S]:
        """Returns the states that were seen, by their distance from the first one."""
        return self._before.keys()

    def _trace(self, state: S) -> tuple[str, ...]:
        return tuple(reversed(list(self._back(state))))

    def _back(self, state: S) -> Iterator[str]:
        while (before := self._before[state]) is not None:
            state, what = before
            yield what
