"""The worlds that are explored; each is small, so that all orders of what happens in it can be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shipper.spool.dead_letters import Limits
from tests.pipeline.exploration.actor import FEEDING
from tests.pipeline.exploration.world import Left, World

ANSWERS = frozenset(
    ("refused", "down", "busy", "silent", "too large", "first later", "first rejected", "first held", "odd held")
)
ROOM = Limits()
NO_ROOM = Limits(max_bytes=1, when_full="hold")


def _world(left: Left, limits: Limits = ROOM, bad: frozenset[int] = frozenset(), **feeding: object) -> World:
    return World(left, limits, replace(FEEDING, **feeding), bad)  # type: ignore[arg-type]


def _left(**more: object) -> Left:
    return Left(**{"arrivals": 2, "answers": ANSWERS, "faults": 1} | more)  # type: ignore[arg-type]


WORLDS: Mapping[str, Callable[[], World]] = {
    "answers": lambda: _world(_left(faults=2)),
    "two requests at once": lambda: _world(_left(faults=2), in_flight=2, apart=True),
    "strict order": lambda: _world(_left(faults=2), ordered=True),
    "another credential": lambda: _world(_left(cuts=("bd",))),
    "another credential, and back": lambda: _world(_left(arrivals=1, cuts=("bd", "ad"))),
    "three revisions": lambda: _world(_left(arrivals=1, cuts=("bd", "cd"))),
    "crashes": lambda: _world(_left(crashes=2, cuts=("bd",))),
    "new settings": lambda: _world(_left(settings=1, cuts=("bd",))),
    "a lapse, or a withdrawal": lambda: _world(_left(holds=2, cuts=("bd",))),
    "drop": lambda: _world(_left(orders=("drop",), cuts=("bd",), crashes=1)),
    "dead letters by order": lambda: _world(_left(orders=("dead_letter",), cuts=("bd",))),
    "rebind": lambda: _world(_left(orders=("rebind",), cuts=("bd",), crashes=1)),
    "forward": lambda: _world(_left(orders=("forward",), cuts=("ae",), crashes=1)),
    "an event that breaks the output": lambda: _world(_left(answers=frozenset(), faults=0), bad=frozenset({1})),
    "no room for dead letters": lambda: _world(_left(faults=2, cuts=("bd",)), NO_ROOM),
    "keyed state": lambda: _world(_left(arrivals=0, changes=3, cuts=("bd",))),
    "keyed state beside log events": lambda: _world(_left(arrivals=1, changes=2, cuts=("bd",))),
    "an earlier version": lambda: replace(_world(_left(arrivals=0)), begins="earlier"),
    "an earlier version, and orders": lambda: replace(
        _world(_left(arrivals=0, faults=0, orders=("rebind", "drop"))), begins="earlier"
    ),
    "an earlier version goes on": lambda: replace(
        _world(_left(arrivals=1, changes=1, faults=0, crashes=1, cuts=("ce",))), begins="earlier"
    ),
    "a client that lives on": lambda: _world(_left(faults=2, cuts=("bd",)), client="lane"),
    "three arrivals": lambda: _world(_left(arrivals=3, faults=0)),
    "a quiet return": lambda: _world(_left(faults=0, cuts=("bd", "ad"))),
    "a quiet drop": lambda: _world(_left(arrivals=1, faults=0, orders=("drop",), cuts=("bd",))),
    "a quiet rebind": lambda: _world(_left(arrivals=1, faults=0, orders=("rebind",), cuts=("bd",))),
    "requests that stay the same": lambda: _world(_left(faults=2), stable=True),
    "two that stay the same": lambda: _world(_left(faults=2, crashes=1), stable=True, in_flight=2, apart=True),
    "they stay the same after crashes": lambda: _world(_left(crashes=2, cuts=("bd",)), stable=True),
    "they stay the same after a drop": lambda: _world(
        _left(orders=("drop",), cuts=("bd",), crashes=1), stable=True, in_flight=2, apart=True
    ),
    "they stay the same after a rebind": lambda: _world(
        _left(arrivals=1, answers=frozenset({"silent"}), orders=("rebind",), cuts=("bd",)), stable=True
    ),
    "they stay the same after a forward": lambda: _world(
        _left(orders=("forward",), cuts=("ae",), crashes=1), stable=True
    ),
    "one of them breaks the output": lambda: _world(
        _left(answers=frozenset(), faults=0, crashes=1), bad=frozenset({1}), stable=True
    ),
    "they have no room for dead letters": lambda: _world(_left(faults=2, cuts=("bd",)), NO_ROOM, stable=True),
    "two versions": lambda: _world(_left(arrivals=0, changes=2, faults=0)),
}
