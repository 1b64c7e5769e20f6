"""The leases of a sidecar, on a store in memory: `on_lapse: hold`."""

import pytest
import trio

from shipper.fleet.records import ALIVE, Release
from tests.fleet.hosts import LEASE, running, until


async def test_under_continue_the_sidecar_gets_no_lease_ever(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        one.answer("active")
        await trio.sleep(10 * LEASE)
        assert one.host.leases == []
        assert fleet.report().fence is None


async def test_under_hold_nothing_is_granted_before_the_newest_version_is_active(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(version)
        one.answer("received")
        await trio.sleep(10 * LEASE)
        assert one.host.leases == []
        assert "`active` for version 1" in one.host.troubles["fleet_held"]
        assert one.member.status()["held"] in one.host.troubles["fleet_held"]
        one.answer("refused", None, "conflict")
        await until(lambda: "it refused version 1: conflict" in one.host.troubles["fleet_held"], 1)
        one.answer("active")
        await until(lambda: one.host.leases != [], 1)
        assert one.host.troubles == {}
        assert one.member.status()["held"] == ""
        assert fleet.report().fence.lease == LEASE
        assert one.host.sends_until <= trio.current_time() + LEASE
        await trio.sleep(LEASE)
        assert one.host.sends_until > trio.current_time() + LEASE / 2


async def test_the_sidecar_never_sends_longer_than_the_store_keeps_the_lease(fleet, place, autojump_clock):
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(fleet.publish())
        one.answer("active")
        await trio.sleep(3 * LEASE)
        one.client.set(cut=True)
        await until(lambda: fleet.alive() is None)
        assert one.host.sends_until <= trio.current_time()


async def test_after_a_lapse_nothing_is_granted_before_the_newest_version_is_active(fleet, place, autojump_clock):
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(fleet.publish(pins={"es": "es-1"}))
        one.host.used = {"es-1"}
        one.answer("active")
        await trio.sleep(LEASE)
        one.client.set(cut=True)
        await trio.sleep(4 * LEASE)
        newest = fleet.publish(pins={"es": "es-2"}, released={"es-1": Release("es", 0.0, "begun")})
        granted = len(one.host.leases)
        one.client.set(cut=False)
        await one.offered(newest)
        await trio.sleep(4 * LEASE)
        assert len(one.host.leases) == granted
        assert one.host.withdrawn == ["es-1"]
        one.answer("active")
        await until(lambda: len(one.host.leases) > granted, 1)


async def test_a_member_that_was_stopped_grants_nothing_until_it_has_looked(fleet, place, autojump_clock):
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(fleet.publish())
        one.answer("active")
        await trio.sleep(LEASE)
        one.client.set(stopped=True)
        await trio.sleep(4 * LEASE)
        granted = len(one.host.leases)
        newest = fleet.publish()
        one.client.set(stopped=False)
        await one.offered(newest)
        assert len(one.host.leases) == granted
        one.answer("active")
        await until(lambda: len(one.host.leases) > granted, 1)


@pytest.mark.parametrize("content", [None, b"forged"])
@pytest.mark.parametrize("on_lapse", ["continue", "hold"])
async def test_a_member_whose_key_was_removed_or_overwritten_claims_it_again_and_writes_no_more_often(
    fleet, place, on_lapse, content, autojump_clock
):
    async with running(fleet, place, on_lapse=on_lapse) as one:
        await one.offered(fleet.publish())
        one.answer("drained")
        await trio.sleep(LEASE)
        fleet.put(ALIVE + "web-1", content)
        await trio.sleep(LEASE / 3 + 1)
        assert fleet.alive() is not None
        assert fleet.alive().instance == fleet.report().instance
        before = one.client.calls["written"]
        await trio.sleep(20 * LEASE)
        assert fleet.alive() is not None
        assert 58 <= one.client.calls["written"] - before <= 61
        assert one.host.troubles == {}


async def test_under_hold_nothing_is_granted_beyond_a_lease_after_the_key_was_removed_before_a_new_claim(
    fleet, place, autojump_clock
):
    """Others count the lease from the removal."""
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(fleet.publish())
        one.answer("active")
        await trio.sleep(2 * LEASE)
        one.client.set(watch_delay=10 * LEASE)
        fleet.put(ALIVE + "web-1", None)
        until_then = trio.current_time() + LEASE
        newest = fleet.publish()
        await one.offered(newest)
        await trio.sleep(4 * LEASE)
        assert one.host.sends_until <= until_then
        one.answer("active")
        await until(lambda: one.host.sends_until > trio.current_time(), 1)


async def test_loosening_takes_effect_once_the_store_has_it(fleet, place, autojump_clock):
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(fleet.publish())
        one.answer("active")
        await trio.sleep(LEASE)
    fleet.server.stop()
    async with running(fleet, place) as two:
        await trio.sleep(4 * LEASE)
        assert two.member.holding
        assert two.host.leases == []
        fleet.server.start()
        await until(lambda: two.host.leases == [None])
        assert fleet.report().fence is None
        assert not two.member.holding
    async with running(fleet, place) as three:
        await trio.sleep(4 * LEASE)
        assert three.host.leases == []
