"""Visits the states of a world until a law is broken: all of a small one, and of others some near and some far."""

from __future__ import annotations

import hashlib
import marshal
import random
import zlib
from dataclasses import dataclass

from tests.pipeline.exploration import laws
from tests.pipeline.exploration.world import Stage, State, World


@dataclass(frozen=True)
class Found:
    """How many states were seen, whether these are all, and what is broken, with a way there."""

    states: int
    complete: bool
    broken: str = ""


def explore(world: World, most: int, every: int = 50, seed: int = 0) -> Found:
    """Visits at most so many states, in an order that is drawn; from each `every`-th on, all faults end, and all must
    come to its end."""
    stage, draw = Stage(), random.Random(seed)
    first = stage.start(world)
    before: dict[bytes, tuple[bytes, str]] = {_digest(first): (b"", "")}
    waiting = [_packed(first)]
    while waiting:
        at = draw.randrange(len(waiting))
        waiting[at], waiting[-1] = waiting[-1], waiting[at]
        state = _unpacked(waiting.pop())
        own = _digest(state)
        stage.become(state)
        for act in list(stage.acts()):
            try:
                after = stage.after(state, act)
                wrong = next(laws.broken(stage), "")
            except Exception as error:
                return Found(len(before), complete=False, broken=_told(before, own, act, repr(error)))
            digest = _digest(after)
            if digest in before:
                if wrong:
                    return Found(len(before), complete=False, broken=_told(before, own, act, wrong))
                continue
            before[digest] = own, act
            if not wrong and len(before) % every == 0:
                try:
                    wrong = laws.ends(stage, after) or ""
                except Exception as error:
                    wrong = repr(error)
            if wrong:
                return Found(len(before), complete=False, broken=_told(before, own, act, wrong))
            waiting.append(_packed(after))
            if len(before) >= most:
                return Found(len(before), complete=False)
    return Found(len(before), complete=True)


def _digest(state: State) -> bytes:
    return hashlib.blake2b(marshal.dumps(state.rows) + state.rest, digest_size=16).digest()


def _packed(state: State) -> bytes:
    return zlib.compress(marshal.dumps((state.rows, state.rest)), 1)


def _unpacked(packed: bytes) -> State:
    return State(*marshal.loads(zlib.decompress(packed)))


def _told(before: dict[bytes, tuple[bytes, str]], own: bytes, act: str, wrong: str) -> str:
    acts = [act]
    while before[own][0]:
        own, act = before[own]
        acts.append(act)
    return "\n".join([wrong, *(f"  {at}. {one}" for at, one in enumerate(reversed(acts), 1))])
