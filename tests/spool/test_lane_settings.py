"""The settings of a lane, with the places of the ids in them."""

from __future__ import annotations

import json

from shipper.spool.lane_settings import LaneSettings

SETTINGS = LaneSettings(
    {"hosts": ["k1"], "login": {"id": "k2"}, "keys": ["k1", "k2"]}, (("login", "id"), ("keys", 0), ("keys", 1))
)


def test_the_ids_are_those_at_the_paths_each_once() -> None:
    assert SETTINGS.credentials == ("k1", "k2")
    assert LaneSettings({"credential": "k1"}).credentials == ()


def test_an_id_is_replaced_at_the_paths_and_nowhere_else() -> None:
    bound = SETTINGS.rebound("k1", "k9")

    assert bound.values == {"hosts": ["k1"], "login": {"id": "k2"}, "keys": ["k9", "k2"]}
    assert (bound.credentials, SETTINGS.credentials) == (("k2", "k9"), ("k1", "k2"))


def test_what_was_packed_comes_back() -> None:
    assert LaneSettings.unpack(SETTINGS.packed()) == SETTINGS
    assert LaneSettings.unpack(LaneSettings({}).packed()) == LaneSettings({})


def test_what_an_earlier_version_packed_has_at_most_one_id() -> None:
    old = {"hosts": ["a"], "credential": "k1", "workers": 2}

    assert LaneSettings.unpack(json.dumps(old).encode()) == LaneSettings(old, (("credential",),))
    assert LaneSettings.unpack(json.dumps({**old, "credential": None}).encode()).paths == ()
