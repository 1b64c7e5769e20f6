"""Visits every state that follows from one, breadth first, so that what it finds is the shortest way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


class Found(Exception):
    """A way to a state that must not be."""

    def __init__(self, way: list[str], problem: str) -> None:
        super().__init__("; ".join([*way, problem]))
        self.way, self.problem = way, problem


def explore(start: S, successors: Callable[[S], Iterator[tuple[str, S]]], wrong: Callable[[S, S], str]) -> set[S]:
    """Returns all states; raises Found for a step between two states that is wrong in the words of `wrong`."""
    came: dict[S, tuple[S, str] | None] = {start: None}
    front = [start]
    while front:
        reached: list[S] = []
        for state in front:
            for what, after in successors(state):
                if problem := wrong(state, after):
                    raise Found([*_way(came, state), what], problem)
                if after not in came:
                    came[after] = (state, what)
                    reached.append(after)
        front = reached
    return {*came}


def _way(came: dict[S, tuple[S, str] | None], state: S) -> list[str]:
    way: list[str] = []
    while (before := came[state]) is not None:
        state, what = before
        way.append(what)
    return way[::-1]
