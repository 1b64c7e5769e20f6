"""What a door remembers of keys that it refused, and of the sets that it compares."""

from __future__ import annotations

import pytest

from shipper.testing import RecordingInputContext
from shipper_plugins.relay.principal import sets as relay_sets
from shipper_plugins.relay.principal.keys import Keys
from tests.plugins.relay.test_relay_edges import LIMITS, arrived


async def test_of_more_refused_keys_than_an_edge_may_have_no_place_is_remembered() -> None:
    context, keys = RecordingInputContext(), Keys("berlin")
    answered = await keys.keep(context, [arrived(key, 5, "secrets") for key in "ab"], LIMITS, {})

    assert [one.code for one in answered.others] == ["collection"] * 2
    assert len(keys.refused) == 1


def test_a_refusal_that_cannot_be_read_is_forgotten() -> None:
    keys = Keys("berlin")
    keys.load({f"{keys.prefix}k": b"\xff"})

    assert keys.refused == {}


async def test_the_sets_of_few_edges_are_kept_between_two_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_sets, "MOST_SETS", 1)
    sets = relay_sets.Sets(RecordingInputContext())
    for name in ("berlin", "paris"):
        await sets.named(name, Keys(name), LIMITS, [])

    assert list(sets._sets) == ["paris"]
