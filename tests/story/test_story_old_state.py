"""A state directory that an older version left opens with every event, barrier and credential."""

from __future__ import annotations

import tarfile
from pathlib import Path

from shipper.spool import stored
from tests.story.driver import launched
from tests.story.old_state.make import DELIVERED, PORT, STATE_KEY, UNDER_A, UNDER_B
from tests.story.world import World, open_world, secret

ARCHIVE = Path(__file__).parent / "old_state" / "state.tar.xz"


def unpacked(world: World) -> Path:
    """Unpacks the older version's state directory."""
    unpack(world.directory)
    return world.state


def unpack(directory: Path) -> None:
    with tarfile.open(ARCHIVE) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)  # not in 3.11.2
        tar.extractall(directory)


async def test_what_an_older_version_left_is_delivered_and_its_keys_are_released(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a", "b", "c", port=PORT) as world, launched(unpacked(world)) as sidecar:
        ready = await sidecar.hello(state_keys=[STATE_KEY])
        assert ready["revisions"] == {"received": [0, 2], "active": [0, 2], "drained": [0, 1]}
        assert (ready["credentials_in_use"], ready["credentials_wanted"]) == (["a", "b"], ["a", "b"])
        held = await sidecar.observe()
        assert (held["queue"]["events"], held["draining"][0]["events"]) == (UNDER_A + UNDER_B, UNDER_A)

        await sidecar.send({"type": "credentials", "credentials": {name: secret(name) for name in "ab"}})
        older = await sidecar.ack(2, "drained")
        await world.destination.wait_for(UNDER_A + UNDER_B)
        newer = await world.settled(sidecar, 3, "c")

    assert world.numbers() == list(range(DELIVERED, DELIVERED + UNDER_A + UNDER_B))
    assert older["credentials"]["released"] == ["a"]
    assert older["ledger"]["accepted"] == UNDER_A
    assert newer["credentials"] == {"in_use": ["c"], "released": ["b"]}
    assert all(count == 1 for count in world.destination.copies.values())


def test_what_an_older_version_left_can_be_looked_at_before_it_is_opened(tmp_path: Path) -> None:
    unpack(tmp_path)
    found = stored.read(tmp_path / "state")

    assert found is not None
    assert found.credentials == ("a", "b")
    assert [(lane.key.credentials, lane.active) for lane in found.lanes] == [(("a",), False), (("b",), True)]
