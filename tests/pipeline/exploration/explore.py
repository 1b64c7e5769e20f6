"""Visits the states of a world until a law is broken: all of a small one, and of others some near and some far."""

from __future__ import annotations

import hashlib
import marshal
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.pipeline.exploration import laws
from tests.pipeline.exploration.broken import Broken, Failed
from tests.pipeline.exploration.world import Stage, State, World

Before = dict[bytes, tuple[bytes, str]]
"""By the digest of each state that was seen, that of the state before it, and what led from there."""
WITHOUT_REFERENCES = 2
"""The version of `marshal` that writes equal values alike, whoever else has them."""


@dataclass(frozen=True)
class Found:
    """How many states were seen, whether these are all, and what is broken, with a way there."""

    states: int
    complete: bool
    broken: str = ""


def explore(
    world: World, most: int, every: int = 50, seed: int = 0, tell: Callable[[int], object] = lambda states: None
) -> Found:
    """Visits at most so many states, in an order that is drawn; from each `every`-th on, all faults end, and all must
    come to its end. `tell` is told after each how many these are. Raises Failed, with the way to what was raised."""
    stage, draw = Stage(), random.Random(seed)
    first = stage.start(world)
    before: Before = {_digest(first): (b"", "")}
    waiting = [(_digest(first), first)]
    while waiting:
        own, state = _drawn(waiting, draw)
        stage.become(state)
        for at, act in enumerate([*stage.acts()]):
            try:
                if at:
                    stage.become(state)
                stage.do(act)
                after = stage.taken()
                digest = _digest(after)
                if digest in before:
                    continue  # its laws were judged
                before[digest] = own, act
                laws.judge(stage, after, ends=len(before) % every == 0)
            except Broken as broken:
                return Found(len(before), complete=False, broken=_told(before, own, act, str(broken)))
            except Exception as error:
                raise Failed(_told(before, own, act, repr(error))) from error
            waiting.append((digest, after))
            tell(len(before))
            if len(before) >= most:
                return Found(len(before), complete=False)
    return Found(len(before), complete=True)


def _drawn(waiting: list[tuple[bytes, State]], draw: random.Random) -> tuple[bytes, State]:
    at = draw.randrange(len(waiting))
    waiting[at], waiting[-1] = waiting[-1], waiting[at]
    return waiting.pop()


def _digest(state: State) -> bytes:
    return hashlib.blake2b(marshal.dumps(state.rows, WITHOUT_REFERENCES) + state.rest, digest_size=16).digest()


def _told(before: Before, own: bytes, act: str, wrong: str) -> str:
    acts = [act]
    while before[own][0]:
        own, act = before[own]
        acts.append(act)
    return "\n".join([wrong, *(f"  {at}. {one}" for at, one in enumerate(reversed(acts), 1))])
