"""The list of rooms names every module of theirs, and none that is gone."""

from __future__ import annotations

from tests.prove.rooms import strays


def test_each_module_of_a_room_counts_or_has_a_reason_and_none_is_gone() -> None:
    assert "\n".join(strays()) == ""
