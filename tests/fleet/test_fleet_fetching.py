"""Versions that are forged, incomplete or slow to read, on a store in memory."""

import pytest
import trio

from shipper.fleet.membership.fetching import Fetching
from shipper.fleet.records import SECRETS, VERSIONS, Text
from shipper.fleet.store import StoreUnreachable
from tests.fleet.hosts import LEASE, running, until


async def test_a_forged_text_is_refused_and_never_offered(fleet, place, autojump_clock):
    good = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(good)
        one.client.set(cut=True)
        bad = fleet.publish()
        fleet.put(VERSIONS + bad.sha256, fleet.server.read(VERSIONS + good.sha256).entry.value)
        one.client.set(cut=False)
        await until(lambda: fleet.report().refusal is not None)
        assert (fleet.report().refusal.version, fleet.report().refusal.reason) == (bad, "unauthentic")
        await trio.sleep(5 * LEASE)
        assert one.member.offered.version == good


async def test_a_forged_secret_is_refused_and_the_next_version_clears_that(fleet, place, autojump_clock):
    bad = fleet.publish(pins={"es": "es-1"})
    fleet.put(SECRETS + "es-1", b"forged")
    async with running(fleet, place) as one:
        await until(lambda: fleet.report() is not None and fleet.report().refusal is not None)
        assert fleet.report().refusal.version == bad
        assert one.member.offered is None
        await one.offered(fleet.publish(pins={"es": "es-2"}))
        one.answer("active")
        await until(lambda: fleet.report().refusal is None, 1)


async def test_a_store_in_which_a_renewal_takes_a_third_of_the_lease_still_gives_versions(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        one.client.set(delay=LEASE / 3 / 5)  # a renewal, a reading and a swap, each there and back
        await trio.sleep(3 * LEASE)
        newest = fleet.publish("b: 2", pins={f"es-{at}": f"es-{at}-x" for at in range(20)})
        with trio.fail_after(4 * LEASE):
            while one.member.offered.version != newest:
                await trio.sleep(0.1)
                assert fleet.alive() is not None
        one.answer("drained")
        with trio.fail_after(2 * LEASE):
            await until(lambda: fleet.report().stages.get("drained") == newest)


async def test_many_secrets_from_a_slow_store_neither_take_long_nor_cost_the_lease(fleet, place, autojump_clock):
    async with running(fleet, place, on_lapse="hold") as one:
        await one.offered(fleet.publish())
        one.answer("active")
        await trio.sleep(2 * LEASE)
        one.client.set(delay=0.5)
        newest = fleet.publish(pins={f"es-{at}": f"es-{at}-x" for at in range(100)})
        with trio.fail_after(60):
            while one.member.offered.version != newest:
                await trio.sleep(0.1)
                assert fleet.alive() is not None
                assert one.host.sends_until > trio.current_time()
        assert len(one.member.offered.secrets) == 100


async def test_a_text_in_the_place_of_another_version_is_refused(fleet, place, autojump_clock):
    good = fleet.publish()
    text = fleet.seals.open(VERSIONS + good.sha256, fleet.server.read(VERSIONS + good.sha256).entry.value, Text)
    bad = fleet.publish()
    fleet.put(VERSIONS + bad.sha256, fleet.seals.seal(VERSIONS + bad.sha256, text))
    async with running(fleet, place) as one:
        await until(lambda: fleet.report() is not None and fleet.report().refusal is not None)

        assert (fleet.report().refusal.version, fleet.report().refusal.reason) == (bad, "unauthentic")
        assert one.member.offered is None


async def test_a_store_that_answers_nothing_in_a_third_of_a_lease_is_said_to_be_slow(fleet, autojump_clock):
    version = fleet.publish()
    client = fleet.server.client("slow")
    client.set(delay=LEASE)
    with pytest.raises(StoreUnreachable, match="were not read within"):
        await Fetching(client, fleet.seals, LEASE).fetch(version)
