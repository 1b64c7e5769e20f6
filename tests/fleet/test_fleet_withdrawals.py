"""Released secrets that a sidecar gives up, on a store in memory."""

import pytest
import trio
from msgspec.structs import replace

from shipper.fleet.records import MEMBERS, Accepting, Release
from tests.fleet.hosts import LEASE, FakeHost, running, until


async def test_what_the_fleet_has_released_is_forgotten_once_it_is_not_used(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish(pins={"es": "es-1"}))
        one.host.used = {"es-1"}
        await one.offered(fleet.publish(pins={"es": "es-2"}, released={"es-1": Release("es", 0.0)}))
        await trio.sleep(2 * LEASE)
        assert one.host.forgotten == []
        one.host.used = {"es-2"}
        await trio.sleep(2 * LEASE)
        assert one.host.forgotten == ["es-1"]


@pytest.mark.parametrize("on_lapse", ["continue", "hold"])
async def test_a_forgotten_host_that_joins_again_withdraws_what_was_released_meanwhile_before_it_is_offered_anything(
    fleet, place, on_lapse, autojump_clock
):
    async with running(fleet, place, on_lapse=on_lapse) as one:
        await one.offered(fleet.publish(pins={"es": "es-1"}))
        await trio.sleep(LEASE)
    fleet.put(MEMBERS + "web-1", replace(fleet.report(), state="forgotten"))
    newest = fleet.publish(pins={"es": "es-3"}, released={"es-2": Release("es", 0.0, "done")})
    fleet.change(history=fleet.head.history[-1:])
    host = FakeHost(used={"es-1", "es-2", "es-3"})
    withdrawn_at_first = []

    async with running(fleet, place, on_lapse=on_lapse, host=host) as two:
        await until(lambda: two.member.offered is not None)
        withdrawn_at_first += host.withdrawn
        await two.offered(newest)
        await trio.sleep(10 * LEASE)
    assert sorted(withdrawn_at_first) == sorted(host.withdrawn) == ["es-1", "es-2"]


async def test_a_member_reports_what_was_released_for_good_also_after_a_restart_on_a_restored_store(
    fleet, place, autojump_clock
):
    fleet.publish(pins={"es": "es-2"})
    async with running(fleet, place) as one:
        await until(lambda: one.member.offered is not None)
        await trio.sleep(LEASE)
        snapshot = fleet.server.snapshot()
        newest = fleet.publish(
            pins={"es": "es-3"}, released={"es-1": Release("es", 0.0), "es-2": Release("es", 0.0, "begun")}
        )
        await one.offered(newest)
        await until(lambda: fleet.report().released == ["es-2"], LEASE)
    fleet.server.restore(snapshot)
    async with running(fleet, place) as two:
        await until(lambda: "store_restored" in two.host.troubles)
        fleet.change(accepting=Accepting(1, 0.0, "tests"))
        await until(lambda: fleet.report().epoch == 1, 2 * LEASE)
        assert fleet.report().released == ["es-2"]


async def test_a_secret_that_only_a_restored_head_does_not_name_is_not_withdrawn(fleet, place, autojump_clock):
    fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place, host=FakeHost(used={"es-1", "es-2"})) as one:
        await until(lambda: one.member.offered is not None and one.host.withdrawn == ["es-2"])
        one.host.withdrawn.clear()
        one.host.used = {"es-1", "es-3"}
        fleet.change(accepting=Accepting(1, 0.0, "tests"))
        await until(lambda: fleet.report().epoch == 1)
        await trio.sleep(10 * LEASE)
        fleet.publish(pins={"es": "es-1"}, epoch=1, accepting=None, fingerprints={"es-3": ""})
        await trio.sleep(10 * LEASE)
        assert one.host.withdrawn == []
