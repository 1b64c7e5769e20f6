"""A damaged disk: the process starts, delivers intact events, and counts the damaged ones."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

from shipper.testing import Reply
from tests.story.driver import launched
from tests.story.world import World, open_world, secret

BATCHES = 5


async def fill(world: World) -> None:
    """Some batches of a retired lane, in a directory whose process was killed."""
    async with world.shipping("a") as sidecar:
        world.destination.script = lambda request, documents: Reply(status=503)
        for part in range(BATCHES):
            world.write(100)
            count = 100 * (part + 1)
            await sidecar.state(lambda o, count=count: o["queue"]["events"] == count)
        await world.offer(sidecar, 2, "b")
        await sidecar.ack(2, "active")
        await sidecar.stop(within=0)
    world.destination.script = None


def spool(world: World) -> Path:
    (path,) = world.state.glob("spool-*.db")
    return path


def flip(path: Path, *positions: int) -> None:
    content = bytearray(path.read_bytes())
    for position in positions:
        content[position] ^= 0x55
    path.write_bytes(content)


async def test_a_batch_that_cannot_be_read_is_counted_as_damaged_and_the_others_arrive(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a", "b") as world:
        await fill(world)
        db = sqlite3.connect(spool(world))
        body = db.execute("SELECT body FROM batch ORDER BY seq LIMIT 1 OFFSET 2").fetchone()[0]
        db.close()
        flip(spool(world), spool(world).read_bytes().index(body) + len(body) // 2)
        async with launched(world.state) as sidecar:
            await sidecar.hello()
            await sidecar.send({"type": "credentials", "credentials": {"a": secret("a")}})
            drained = await sidecar.ack(2, "drained")
            await sidecar.stop()

    assert drained["ledger"]["accepted"] == 100 * BATCHES
    assert drained["ledger"]["damaged"] == 100
    assert drained["ledger"]["delivered"] == 100 * (BATCHES - 1)
    assert world.destination.total == 100 * (BATCHES - 1)


async def test_a_queue_that_cannot_be_known_any_more_holds_its_barrier_until_an_order(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a", "b") as world:
        await fill(world)
        db = sqlite3.connect(spool(world), isolation_level=None)
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'todo'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        db.close()
        flip(spool(world), *range((root - 1) * size, (root - 1) * size + 64))
        async with launched(world.state) as sidecar:
            await sidecar.hello()
            await sidecar.send({"type": "credentials", "credentials": {"a": secret("a")}})
            held = await sidecar.state(lambda o: "waits for an order" in str(o["units"]))
            await world.delivered()
            assert sidecar.acks() == []
            result = await sidecar.action("dead_letter", revision=2)
            drained = await sidecar.ack(2, "drained")
            await sidecar.stop()

    assert held["state"] == "DEGRADED"
    assert result["status"] == "SUCCESS"
    ledger = drained["ledger"]
    assert ledger["accepted"] == sum(count for name, count in ledger.items() if name != "accepted")


async def test_any_byte_may_be_damaged_and_the_process_starts(tmp_path: Path) -> None:
    draw = random.Random(7)
    async with open_world(tmp_path, "a", "b") as world:
        await fill(world)
        original = spool(world).read_bytes()
        for _ in range(6):
            for path in world.state.glob("spool-*"):
                path.unlink()
            (world.state / "spool-1.db").write_bytes(original)
            flip(world.state / "spool-1.db", *(draw.randrange(len(original)) for _ in range(draw.choice((1, 20, 400)))))
            async with launched(world.state) as sidecar:
                await sidecar.hello()
                await sidecar.observe()
                await sidecar.stop(within=0)
