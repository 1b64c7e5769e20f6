"""A member that takes no part since its record is not as it knows it, on a store in memory."""

import trio
from msgspec.structs import replace

from shipper.fleet.observer import observing, wait
from shipper.fleet.operations import forget
from shipper.fleet.records import HEAD, MEMBERS, RESTORED, Accepting, Restored
from tests.fleet.hosts import LEASE, running, until


async def test_a_member_whose_record_was_taken_acknowledges_nothing(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        other = replace(fleet.report(), directory="other", instance="other")
        fleet.put(MEMBERS + "web-1", other)
        one.answer("drained")
        await until(lambda: "store_restored" in one.host.troubles)
        await trio.sleep(10 * LEASE)
        assert fleet.report() == other
        assert one.member.offered.version == version
        assert fleet.alive() is None


async def test_t152_8_a_member_with_a_newer_version_than_the_store_runs_on_and_acknowledges_nothing(
    fleet, place, autojump_clock
):
    fleet.publish()
    async with running(fleet, place) as one:
        await until(lambda: one.member.offered is not None)
        await trio.sleep(LEASE)
        snapshot = fleet.server.snapshot()
        newest = fleet.publish()
        await one.offered(newest)
        one.answer("drained")
        await until(lambda: fleet.report().stages.get("drained") == newest)
    fleet.server.restore(snapshot)
    before = fleet.server.read(MEMBERS + "web-1").entry.revision
    async with running(fleet, place) as two:
        await until(lambda: "store_restored" in two.host.troubles)
        await trio.sleep(5 * LEASE)
        assert two.member.offered.version == newest
        assert fleet.server.read(MEMBERS + "web-1").entry.revision == before


async def restored(fleet, one):
    """Restores a store that is older than what a running member has seen and answered."""
    await until(lambda: one.member.offered is not None)
    await trio.sleep(LEASE)
    snapshot = fleet.server.snapshot()
    newest = fleet.publish()
    await one.offered(newest)
    one.answer("drained")
    await until(lambda: fleet.report().stages.get("drained") == newest)
    fleet.server.restore(snapshot)
    await until(lambda: "store_restored" in one.host.troubles)
    return newest


async def test_a_restored_store_sets_a_member_apart_until_a_person_accepts_it(fleet, place, autojump_clock):
    fleet.publish()
    async with running(fleet, place) as one:
        lost = await restored(fleet, one)
        fleet.change(accepting=Accepting(1, 0.0, "tests"))
        await until(lambda: fleet.report().epoch == 1, 2 * LEASE)
        await until(lambda: not one.host.troubles)
        assert one.member.offered.version == lost
        assert fleet.report().stages["drained"] == lost
        newest = fleet.publish(epoch=1, accepting=None)
        await one.offered(newest)
        one.answer("drained")
        await until(lambda: fleet.report().stages.get("drained") == newest, 1)


async def test_a_member_that_was_off_registers_for_the_accepted_epoch(fleet, place, autojump_clock):
    fleet.publish()
    async with running(fleet, place) as one:
        await restored(fleet, one)
    newest = fleet.publish(epoch=1)
    async with running(fleet, place) as two:
        await two.offered(newest)
        assert fleet.report().epoch == 1


async def test_an_older_head_in_the_place_of_one_with_the_same_versions_sets_a_member_apart(
    fleet, place, autojump_clock
):
    """Its releases, today's secrets and the token have gone back."""
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        one.answer("drained")
        fleet.change(serial=7, token=3)
        newest = fleet.head
        await trio.sleep(LEASE)
        fleet.change(serial=6, token=2)
        await until(lambda: "store_restored" in one.host.troubles, 1)
        await until(lambda: fleet.open(RESTORED + "web-1", Restored) is not None, 1)
        async with observing(fleet.server.client("asker"), fleet.seals) as observer:
            verdict = await wait(observer, 1, "drained", 0, 10)
        fleet.change(serial=9, token=3)
        await trio.sleep(3 * LEASE)
        assert "store_restored" in one.host.troubles, "what was made from an older head is no better"
    async with running(fleet, place) as again:
        fleet.change(serial=6)
        await until(lambda: "store_restored" in again.host.troubles, LEASE)
        fleet.put(HEAD, newest)
        await until(lambda: not again.host.troubles, 2 * LEASE)
        fleet.change(serial=8)
        await trio.sleep(3 * LEASE)
        assert not again.host.troubles
        fleet.change(serial=3, accepting=Accepting(1, 0.0, "tests"))
        await until(lambda: fleet.report().epoch == 1, 2 * LEASE)
        fleet.change(serial=4, epoch=1, accepting=None)
        await trio.sleep(3 * LEASE)
        assert not again.host.troubles

    assert verdict.state == "store_restored"
    assert "web-1 has seen a newer head" in verdict.warnings[0]


async def test_a_store_that_was_restored_is_known_to_whoever_asks_until_a_person_accepts_it(
    fleet, place, autojump_clock
):
    fleet.publish()
    async with running(fleet, place) as one:
        lost = await restored(fleet, one)
        await until(lambda: fleet.open(RESTORED + "web-1", Restored) is not None, 1)
        async with observing(fleet.server.client("asker"), fleet.seals) as observer:
            verdict = await wait(observer, 1, "received", 0, 10)
            assert verdict.state == "store_restored"
            assert f"web-1 has seen version {lost}" in verdict.warnings[0]
        written = one.client.calls["written"]
        await trio.sleep(10 * LEASE)
        assert one.client.calls["written"] == written

        fleet.change(accepting=Accepting(1, 0.0, "tests"))
        await until(lambda: fleet.report().epoch == 1, 2 * LEASE)
        await until(lambda: fleet.server.read(RESTORED + "web-1").entry is None, 2 * LEASE)


async def test_a_copy_that_writes_the_record_of_a_member_closes_that_one_until_it_is_forgotten(
    fleet, place, autojump_clock
):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        mine = fleet.report()
        clone = replace(
            mine, instance="clone", write=99, stages=dict.fromkeys(("received", "active", "drained"), version)
        )
        fleet.put(MEMBERS + "web-1", clone)
        await until(lambda: fleet.open(RESTORED + "web-1", Restored) is not None, 2 * LEASE)
        assert fleet.open(RESTORED + "web-1", Restored).why == "clone"
        async with observing(client := fleet.server.client("asker"), fleet.seals) as observer:
            verdict = await wait(observer, 1, "drained", 0, 10)
            assert verdict.state == "closed"
            assert [each.name for each in verdict.members] == [f"web-1/{mine.directory}"]
            await forget(client, fleet.seals, f"web-1/{mine.directory}")
            assert (await wait(observer, 1, "drained", 0, 10)).state == "open"


async def test_a_mark_is_removed_after_a_restart_but_never_by_a_copy(fleet, place, tmp_path, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        mark = Restored("web-1", fleet.report().directory, place.stat().st_ino, 0, version, 0, "clone")
    other = replace(mark, inode=mark.inode + 1)
    fleet.put(RESTORED + "web-1", other)
    async with running(fleet, place):
        await trio.sleep(10 * LEASE)
        assert fleet.open(RESTORED + "web-1", Restored) == other
    fleet.put(RESTORED + "web-1", mark)
    async with running(fleet, place):
        await until(lambda: fleet.server.read(RESTORED + "web-1").entry is None, 1)
