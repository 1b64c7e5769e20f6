"""What the lanes of a destination share, and what each of them has for itself."""

from __future__ import annotations

from pathlib import Path

import trio

from shipper.plugin import Later
from tests.fakes import DESTINATIONS, PATIENCE, Destination, bench
from tests.pipeline.test_client import NEVER, lasting


async def test_a_relay_delivers_once_its_principal_says_so(tmp_path: Path) -> None:
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        await script.until(lambda: script.open_senders == 1)
        link = on.active["main"].link
        script.contexts[0].delivers(False)
        assert not link.delivers

        script.contexts[0].delivers(True)

        assert link.delivers


async def test_a_credential_is_used_by_no_client_once_its_barrier_is_settled(tmp_path: Path) -> None:
    """The active lane of the same destination keeps its own client open meanwhile."""
    async with lasting(tmp_path, is_open_idle=True) as (on, script):
        await script.until(lambda: script.open_senders == 1)
        await on.activate(2, main="k2")
        await script.until(lambda: "barrier" in script.log and "open k2" in script.log)

        assert script.log.index("close k1") < script.log.index("barrier")
        assert {id for link in on.delivery.pool.links.values() for id in link.key.credentials} == {"k2"}
        assert "close k2" not in script.log


async def test_another_lane_of_the_destination_is_hastened_and_no_lane_of_another_one(tmp_path: Path) -> None:
    async with bench(tmp_path) as on:
        for name in ("main", "other"):
            script = DESTINATIONS.setdefault(name, Destination())
            script.feeding |= {"backoff": (NEVER, NEVER)}
            script.send = script.raising(Later("503"))
        old = await on.activate(1, main="k1", other="k1")
        await on.enter()
        with trio.fail_after(PATIENCE):
            for name in old:
                await DESTINATIONS[name].until(lambda name=name: old[name].next_attempt is not None)
        DESTINATIONS["main"].send = DESTINATIONS["main"].deliver
        await on.activate(2, main="k2", other="k1")
        await on.enter(to=["main"])
        with trio.fail_after(PATIENCE):
            while on.spool.figures.of_lanes([old["main"].id]).events:
                await on.spool.room.wait()

        assert old["other"].next_attempt is not None
