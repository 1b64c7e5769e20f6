"""Revoke on ack: each old key is revoked as soon as `drained` is read, also through crashes."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import trio

from tests.story.driver import Sidecar, launched
from tests.story.revoker import Revoker, keep_writing, live_shortly
from tests.story.test_story_relay import copied
from tests.story.world import open_world

ROTATIONS = 30
KILLS = 6


async def test_rotation_after_rotation_under_live_writes_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with open_world(tmp_path, "k0") as world, launched(world.state) as sidecar:
        revoker = Revoker(world)
        revoker.listen(sidecar)
        await sidecar.hello()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_writing, world)
            for revision in range(1, ROTATIONS + 1):
                revoker.wanted = f"k{revision}"
                world.grant(revoker.wanted)
                await world.offer(sidecar, revision, revoker.wanted)
                if revision % 3:
                    await sidecar.ack(revision, "drained", since=max(0, len(sidecar.said) - 50))
            await sidecar.ack(ROTATIONS, "drained")
            nursery.cancel_scope.cancel()
        await world.delivered()
        stopped = await sidecar.stop()

    assert stopped["undelivered"] == 0
    assert world.destination.refused == 0
    assert set(world.destination.copies.values()) == {1}
    assert {f"k{n}" for n in range(1, ROTATIONS) if n % 3} <= revoker.revoked
    acks = sidecar.acks()
    assert [pair for pair in pairwise(acks) if pair[0] >= pair[1]] == []


async def test_kill_9_at_random_moments_loses_nothing_and_never_uses_a_released_key(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await live_shortly(world, KILLS, random.Random(20261121), Sidecar.kill)


async def test_a_restored_state_directory_ships_new_events_as_new_documents(tmp_path: Path) -> None:
    """The ids of a copy are not those of the original: a destination that has the originals takes the new events."""
    async with open_world(tmp_path, "a") as world:
        async with world.shipping("a") as sidecar:
            world.write(10)
            await world.delivered()
            await sidecar.stop()
        copied(world.state, tmp_path / "backup")
        async with world.shipping("a") as sidecar:
            world.write(10)
            await world.delivered()
            await sidecar.stop()
        copied(tmp_path / "backup", world.state)
        world.log.write_text("")
        with world.log.open("a") as file:
            file.write("".join(f"fresh {n}\n" for n in range(20, 30)))
        async with world.shipping("a") as sidecar:
            await world.destination.wait_for(30)
            await sidecar.stop()

    assert world.numbers() == list(range(30))
