"""Every order of what can happen to lanes, in small worlds.

A campaign sees more of each (`tests.prove.explorations`).
"""

from __future__ import annotations

import pytest

from shipper.pipeline.delivery.session import Session
from tests.pipeline.exploration.broken import Failed
from tests.pipeline.exploration.explore import explore
from tests.pipeline.exploration.mutants import MUTANTS
from tests.pipeline.exploration.worlds import WORLDS

STATES = 300
CAUGHT_WITHIN = 3000


@pytest.mark.parametrize("name", WORLDS)
def test_no_order_of_what_happens_breaks_a_law(name: str) -> None:
    found = explore(WORLDS[name](), STATES)

    assert not found.broken, found.broken
    assert found.states >= STATES or found.complete


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_in_a_decision_breaks_a_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, fault = MUTANTS[name]
    fault(monkeypatch)

    assert explore(WORLDS[world](), CAUGHT_WITHIN, every=10).broken


def test_a_fault_that_merely_crashes_breaks_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "next", lambda self, now, facts: self.nothing_of_this_name)

    with pytest.raises(Failed, match=r"AttributeError.*nothing_of_this_name.*\n  1\. "):
        explore(WORLDS["answers"](), STATES)
