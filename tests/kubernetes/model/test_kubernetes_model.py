"""All that members, people and a leader may do, step by step, breaks no law and comes to an end; each rule is needed.

Laws: nobody uses a content of before a bound that differs from the one at it; no member runs an older generation than
one that is drained; nothing is offered twice in a row. In the end: each bound comes to the newest version, the newest
generation is drained, and nobody waits.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from shipper.policy.registry import Registry
from tests.kubernetes.model.api import Stored
from tests.kubernetes.model.exploration import explore
from tests.kubernetes.model.starts import STARTS
from tests.kubernetes.model.walking import BEGINNINGS, Walker, run
from tests.kubernetes.model.world import MUTANTS

pytestmark = pytest.mark.timeout(180)

RULES: frozenset[str] = frozenset()
STATES = 600
"""Of each start in CI; give more by hand."""


@pytest.mark.parametrize("start", STARTS)
def test_whatever_comes_next_breaks_no_law_and_comes_to_an_end(start):
    found = explore(STARTS[start](RULES), most=STATES, ends=20)
    assert not found.broken, found.broken


@pytest.mark.parametrize(
    ("rule", "start"),
    [
        ("announce", "offered"),
        ("read after the announcement", "announced"),
        ("list what drains", "rotation"),
        ("heed the bounds", "fenced"),
        ("doubt after a lapse", "removed_while_down"),
        ("write labels-only versions", "labels_only"),
        ("ask again what was denied", "denied"),
        ("introduce a policy", "handed_over"),
        ("read a policy that is new", "handed_over"),
    ],
)
def test_without_one_of_its_rules_a_law_is_broken(rule, start):
    found = explore(STARTS[start](frozenset({rule})), most=5000, ends=20)
    assert found.broken


def test_each_rule_is_left_out_once():
    assert len(MUTANTS) == 9


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_walks_through_all_that_may_happen_break_no_law_and_come_to_an_end(beginning):
    for seed in range(12):
        outcome = run(Walker(beginning, seed))
        assert not outcome.violations, f"seed {seed}: {outcome}"


@pytest.mark.parametrize("start", STARTS)
def test_a_copy_of_a_world_shares_nothing_that_changes_with_it(start):
    world = STARTS[start](RULES)
    there = {id(part): part for part in parts([world])}
    shared = [part for part in parts([world.copy()]) if id(part) in there]
    assert not shared


def parts(found: Iterable[Any]) -> Iterator[Any]:
    """Yields all instances below these whose fields may change."""
    for one in found:
        if isinstance(one, dict) and not isinstance(one, Stored):
            yield from parts(one.values())
        elif isinstance(one, list | tuple | set | deque):
            yield from parts(one)
        elif type(one).__module__.startswith(("shipper.", "tests.")) and not is_fixed(one):
            yield one
            yield from parts(vars(one).values() if hasattr(one, "__dict__") else fields(one))


def fields(one: Any) -> list[Any]:
    return [getattr(one, name) for name in type(one).__slots__]


def is_fixed(one: Any) -> bool:
    kind = type(one)
    if isinstance(one, msgspec.Struct):
        return kind.__struct_config__.frozen
    return isinstance(one, Stored | Registry | type) or (
        dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen
    )
