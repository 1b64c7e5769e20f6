"""The list of rooms names every module of theirs, and none that is gone."""

from __future__ import annotations

import pytest

from tests.prove.rooms import ROOMS, Room


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.folder)
def test_each_module_of_a_room_counts_or_has_a_reason_and_none_is_gone(room: Room) -> None:
    counted = room.counted.split()

    assert sorted([*counted, *room.others]) == sorted(room.found())
    assert set(room.at_least) <= set(counted)
