"""What the agent of a member is offered, at first and after a restart, on a store in memory."""

from types import SimpleNamespace

import pytest
import trio

from shipper.fleet.membership.offered import parse
from shipper.fleet.membership.offers import Offers
from shipper.fleet.records import Version
from shipper.fleet.seal import Unauthentic
from tests.fleet.hosts import LEASE, running, until


def test_the_name_of_an_offer_names_the_whole_triple():
    assert parse("1.7.abc") == Version(1, 7, "abc")


async def test_a_member_restarted_without_the_store_is_offered_what_it_ran(fleet, place, autojump_clock):
    version = fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place) as one:
        await one.offered(version)
    fleet.server.stop()
    async with running(fleet, place) as two:
        await two.offered(version)
        assert two.member.offered.secrets == {"es": b"content of es-1"}
        fleet.server.start()
        newest = fleet.publish()
        await two.offered(newest)


@pytest.mark.parametrize("on_lapse", ["continue", "hold"])
async def test_a_member_restarted_on_a_store_that_hangs_is_offered_what_it_ran_at_once(
    fleet, place, on_lapse, autojump_clock
):
    version = fleet.publish()
    async with running(fleet, place, on_lapse=on_lapse) as one:
        await one.offered(version)
        one.answer("active")
        await trio.sleep(LEASE)
    async with running(fleet, place, on_lapse=on_lapse) as two:
        two.client.set(stopped=True)
        with trio.fail_after(2):
            await two.offered(version)
        await trio.sleep(LEASE)
        assert two.host.leases == []


async def test_a_host_that_has_left_is_offered_nothing_by_a_store_that_hangs(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        await one.member.leave()
    async with running(fleet, place) as two:
        two.client.set(stopped=True)
        await trio.sleep(LEASE)
        assert two.member.offered is None


async def test_a_member_that_was_killed_before_its_agent_took_a_version_is_offered_it_again(
    fleet, place, autojump_clock
):
    version = fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place) as one:
        await one.offered(version)
    async with running(fleet, place) as two:
        with trio.fail_after(2):
            await two.offered(version)
        assert two.member.offered.secrets == {"es": b"content of es-1"}


async def test_a_restarted_member_is_offered_a_newer_version_and_not_the_one_that_it_kept(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
    newest = fleet.publish()
    async with running(fleet, place) as two:
        await until(lambda: two.member.offered is not None)
        assert two.member.offered.version == newest


def test_what_a_host_had_kept_is_not_offered_if_it_is_no_longer_authentic_or_whole():
    home = SimpleNamespace(kept=object(), memory=SimpleNamespace(state="member"))
    for error in (Unauthentic("forged"), KeyError("es-1")):

        def authentic(kept, error=error):
            raise error

        assert Offers(home, authentic).kept is None
