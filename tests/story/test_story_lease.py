"""Leases and withdrawn credentials of the real process, checked at the destination."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from shipper.process.environment import boottime
from shipper.testing import Reply
from tests.story.driver import PATIENCE, Sidecar, launched
from tests.story.world import World, open_world, secret, shipping

LEASE = 0.5
LAPSED = "lease lapsed, events held"
WITHDRAWN = "credential a was withdrawn, events held"


async def lease(sidecar: Sidecar, seconds: float | None) -> float:
    """Sends a lease of so many seconds; returns its end."""
    until = None if seconds is None else boottime() + seconds
    await sidecar.send({"type": "lease", "until": until})
    return until or 0.0


def output(observed: dict[str, Any]) -> tuple[str, str]:
    unit = next((unit for unit in observed["units"] if unit["id"] == "outputs.main"), {"state": "", "message": ""})
    return unit["state"], unit["message"]


@asynccontextmanager
async def writing(world: World) -> AsyncIterator[dict[int, float]]:
    """Writes lines without a pause; yields numbers of lines that did not exist at these times of CLOCK_BOOTTIME."""
    written: dict[int, float] = {}

    async def write() -> None:
        while True:
            written[world.lines] = boottime()
            world.write(5)
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        yield written
        nursery.cancel_scope.cancel()


async def leased_until_something_arrives(world: World, sidecar: Sidecar) -> float:
    """Returns the end of the last of the leases."""
    before, until = world.destination.total, 0.0
    with trio.fail_after(PATIENCE):
        while world.destination.total == before:
            until = await lease(sidecar, LEASE)
            with trio.move_on_after(LEASE / 2):
                await world.destination.wait_until(lambda: world.destination.total > before)
    return until


async def test_no_request_begins_after_a_lease_and_a_later_one_delivers_all(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        ready = await sidecar.hello()
        assert {"lease", "withdraw"} <= set(ready["capabilities"])
        await world.settled(sidecar, 1, "a")
        async with writing(world) as written:
            for _ in range(3):
                until = await leased_until_something_arrives(world, sidecar)
                observed = await sidecar.state(lambda o: o["lease_seconds"] == 0 and output(o)[1] == LAPSED)
                assert output(observed)[0] == "DEGRADED"
                held = world.lines
                await sidecar.state(lambda o, held=held: o["queue"]["events"] >= 5 and world.lines > held + 50)  # type: ignore[misc]
                too_late = min(number for number, at in written.items() if at >= until)
                assert max(world.numbers()) < too_late
        await lease(sidecar, 3600)
        await world.delivered()
        assert output(await sidecar.state(lambda o: output(o)[0] == "HEALTHY"))[1] == ""
        await sidecar.stop()


async def test_who_says_hello_with_a_lease_sends_nothing_without_one_not_even_what_waited(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world:
        world.destination.script = lambda request, documents: Reply(status=503)
        async with world.shipping("a") as sidecar:
            world.write(10)
            await sidecar.holds(10)
            await sidecar.kill()
        await world.destination.stop()  # with it end the connections of the killed process
        world.destination.script = None
        await world.destination.start()
        before = len(world.destination.log)
        async with launched(world.state) as sidecar:
            await sidecar.hello(lease=True)
            await world.offer(sidecar, 1, "a")
            await sidecar.ack(1, "drained")
            await lease(sidecar, -1)
            world.write(10)
            observed = await sidecar.state(lambda o: o["queue"]["events"] == 20 and output(o)[1] == LAPSED)
            assert observed["lease_seconds"] == 0
            assert len(world.destination.log) == before
            await lease(sidecar, 3600)
            await world.delivered()
            await sidecar.stop()


async def test_a_stop_waits_for_nothing_that_a_lapsed_lease_holds(tmp_path: Path) -> None:
    async with open_world(tmp_path, "a") as world, launched(world.state) as sidecar:
        await sidecar.hello(lease=True)
        await world.settled(sidecar, 1, "a")
        world.write(10)
        await sidecar.holds(10)
        with trio.fail_after(60):
            stopped = await sidecar.stop(within=3600)

    assert (stopped["clean"], stopped["undelivered"]) == (True, 10)
    assert world.destination.log == []


async def test_a_lease_that_lapses_aborts_the_request_under_way(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        world.destination.script = lambda request, documents: Reply(hang=True, commit=False)
        world.write(1)
        with trio.fail_after(60):
            await world.destination.wait_until(lambda: world.destination.hanging == 1)
        await lease(sidecar, LEASE)
        await sidecar.state(lambda o: output(o)[1] == LAPSED)
        world.destination.script = None
        await lease(sidecar, None)
        await world.delivered()
        assert (await sidecar.observe())["lease_seconds"] is None
        await sidecar.stop()


async def test_nothing_is_sent_with_a_withdrawn_credential_until_it_is_supplied_again(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        async with writing(world):
            with trio.fail_after(60):
                await world.destination.wait_until(lambda: world.destination.total > 10)
            await sidecar.send({"type": "credentials", "credentials": {"a": None}})
            observed = await sidecar.state(lambda o: output(o) == ("DEGRADED", WITHDRAWN))
            assert observed["credentials_wanted"] == ["a"]
            held = world.lines
            await sidecar.state(lambda o: o["queue"]["events"] >= 5 and world.lines > held + 50)
            assert max(world.numbers()) < held
        await sidecar.send({"type": "credentials", "credentials": {"a": secret("a")}})
        await world.delivered()
        assert (await sidecar.state(lambda o: output(o)[0] == "HEALTHY"))["credentials_wanted"] == []
        await sidecar.stop()


async def test_withdrawing_an_id_that_is_not_in_use_is_one_error_and_changes_nothing(tmp_path: Path) -> None:
    async with shipping(tmp_path, "a") as (world, sidecar):
        await sidecar.send({"type": "credentials", "credentials": {"a": None, "b": None}})
        error = await sidecar.wait(lambda m: m["type"] == "error")
        world.write(10)
        await world.delivered()
        await sidecar.stop()

    assert error["message"] == "credential `b` is not in use; nothing was withdrawn"
