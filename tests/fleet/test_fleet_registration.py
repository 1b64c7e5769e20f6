"""The name and the record of a member, and directories that are copied or put back, on a store in memory."""

import shutil

import pytest
import trio
from msgspec.structs import replace

from shipper.fleet.observer import observing, wait
from shipper.fleet.records import ALIVE, MEMBERS, Lost, Undelivered
from tests.fleet.hosts import LEASE, running, until


async def test_a_restarted_member_goes_on_at_once_with_its_stages(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        one.answer("drained")
        await until(lambda: fleet.report().stages.get("drained") == version)
    directory, since = fleet.report().directory, fleet.report().since

    async with running(fleet, place) as two:
        with trio.fail_after(1):
            await until(lambda: two.member.status()["state"] == "member" and fleet.alive() is not None)
        await until(lambda: fleet.report().instance == fleet.alive().instance, 1)
        assert fleet.report().stages["drained"] == version
        assert (fleet.report().directory, fleet.report().since) == (directory, since)
        assert fleet.report().lost == []


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
async def test_a_member_that_was_killed_in_a_write_is_still_itself(fleet, place, mishap, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        await trio.sleep(LEASE)
        one.client.lose(mishap, MEMBERS)
        one.answer("active")
        await trio.sleep(1)
    async with running(fleet, place) as two:
        await trio.sleep(4 * LEASE)
        two.answer("drained", version)
        await until(lambda: fleet.report().stages.get("drained") == version, LEASE)
        assert fleet.report().lost == []
        assert two.host.troubles == {}


async def test_a_name_that_another_directory_holds_is_taken_over_only_after_its_lease(
    fleet, place, tmp_path, autojump_clock
):
    version = fleet.publish(pins={"es": "es-1"})
    async with running(fleet, tmp_path / "other") as one:
        await one.offered(version)
        one.host.waiting = Undelivered(7, 700, 1.0)
        one.answer("active")
        await trio.sleep(LEASE)
        old = fleet.report()
        async with running(fleet, place, boot="boot-2") as two:
            await trio.sleep(10 * LEASE)
            assert two.member.offered is None
            assert "name_taken" in two.host.troubles
            one.scope.cancel()
            ended = trio.current_time()
            await two.offered(version)
            assert trio.current_time() >= ended + LEASE * 1.02
            assert two.host.troubles == {}
            (lost,) = fleet.report().lost
            assert lost.directory == old.directory != fleet.report().directory
            assert (lost.stages, lost.undelivered) == (old.stages, old.undelivered)


async def test_the_same_host_restarted_waits_for_nobody_but_another_boot_does(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
    began = trio.current_time()
    async with running(fleet, place, boot="boot-2"):
        await until(lambda: fleet.alive() is not None and fleet.alive().boot.startswith("boot-2 "))
    assert trio.current_time() - began >= LEASE


async def test_a_replayed_key_of_a_lease_keeps_a_name_no_longer_than_a_lease(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place, boot="boot-1") as one:
        await one.offered(version)
        old = fleet.alive()
    await until(lambda: fleet.alive() is None)
    fleet.put(ALIVE + "web-1", old)
    began = trio.current_time()
    async with running(fleet, place, boot="boot-2") as two:
        await until(lambda: fleet.alive().boot.startswith("boot-2 "))
        assert LEASE <= trio.current_time() - began <= 2 * LEASE
        assert two.host.troubles == {}


async def test_a_restored_directory_joins_anew_and_the_newer_one_is_lost(fleet, place, tmp_path, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
    shutil.copytree(place, tmp_path / "backup")
    async with running(fleet, place) as one:
        await until(lambda: fleet.report().instance == fleet.alive().instance)
        one.answer("drained", version)
        await trio.sleep(10 * LEASE)
        newer = fleet.report()
    await trio.sleep(2 * LEASE)
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "backup", place)
    newest = fleet.publish()
    async with running(fleet, place) as two:
        await two.offered(newest)
        report = fleet.report()
        assert report.directory != newer.directory
        assert report.begun == newest
        assert report.stages == {}
        assert [lost.directory for lost in report.lost] == [newer.directory]


async def test_a_directory_that_is_too_old_is_never_offered_what_it_had_kept(fleet, place, tmp_path, autojump_clock):
    """The fleet may have released the secrets of that version since."""
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
    shutil.copytree(place, tmp_path / "backup")
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
    shutil.copytree(tmp_path / "backup", place, dirs_exist_ok=True)
    offers = []
    async with running(fleet, place) as two, trio.open_nursery() as nursery:

        async def listen():
            while True:
                await two.member.changed()
                offers.append(two.member.offered.version)

        nursery.start_soon(listen)
        await until(lambda: "name_taken" in two.host.troubles)
        await two.offered(fleet.head.newest)
        nursery.cancel_scope.cancel()
    assert offers == [fleet.head.newest]


@pytest.mark.parametrize("is_newest", [True, False])
async def test_a_forgotten_host_is_offered_what_it_had_kept_only_if_that_is_the_newest_version(
    fleet, place, is_newest, autojump_clock
):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
    await trio.sleep(2 * LEASE)
    fleet.put(MEMBERS + "web-1", replace(fleet.report(), state="forgotten"))
    if not is_newest:
        fleet.publish()
    async with running(fleet, place) as two:
        two.client.set(delay=0.1)
        await until(lambda: two.member.offered is not None)
        assert two.member.offered.version == fleet.head.newest
        assert two.member.registered or not is_newest


async def test_a_clone_gets_nothing_while_the_original_lives(fleet, place, tmp_path, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        shutil.copytree(place, tmp_path / "clone")
        await trio.sleep(LEASE)
        async with running(fleet, tmp_path / "clone", boot="boot-2") as clone:
            await trio.sleep(10 * LEASE)
            assert "name_taken" in clone.host.troubles
            one.answer("drained")
            await until(lambda: fleet.report().stages.get("drained") == version, 1)
            assert one.host.troubles == {}


async def test_a_copied_directory_on_the_same_machine_waits_for_the_lease_and_the_original_is_lost(
    fleet, place, tmp_path, autojump_clock
):
    version = fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place) as one:
        await one.offered(version)
        one.host.waiting = Undelivered(7, 700, 1.0)
        await trio.sleep(LEASE)
        original = fleet.report()
        shutil.copytree(place, tmp_path / "copy")
        async with running(fleet, tmp_path / "copy") as copy:
            await trio.sleep(10 * LEASE)
            assert copy.member.offered is None
            assert copy.member.status()["state"] == "taken"
            assert "name_taken" in copy.host.troubles
            assert fleet.report().instance == original.instance
            assert one.host.troubles == {}
            one.scope.cancel()
            ended = trio.current_time()
            await copy.offered(version)
            assert trio.current_time() >= ended + LEASE * 1.02
            (lost,) = fleet.report().lost
            assert (lost.directory, lost.undelivered.events) == (original.directory, 7)
            assert fleet.report().stages == {}


async def test_more_lost_directories_than_a_report_lists_are_joined_without_losing_events(
    fleet, place, tmp_path, autojump_clock
):
    version = fleet.publish()
    async with running(fleet, tmp_path / "old") as one:
        await one.offered(version)
    lost = [Lost(f"dir-{at}", 0.0, {"drained": version}, Undelivered(1, 10, float(at))) for at in range(40)]
    lost[5] = replace(lost[5], stages={})
    fleet.put(MEMBERS + "web-1", replace(fleet.report(), lost=lost, undelivered=Undelivered(5, 50, 0.0)))
    fleet.change(forgotten={"web-1/dir-39": lost[39]})
    await trio.sleep(2 * LEASE)
    async with running(fleet, place) as two:
        await two.offered(version)
        found = fleet.report().lost
    assert len(found) == 32
    assert sum(one.undelivered.events for one in found) == 39 + 5
    assert (found[0].directory, found[0].stages) == ("dir-8", {})
    assert found[1].stages == {"drained": version}


async def test_a_forgotten_member_and_what_it_had_lost_stay_named_after_another_directory_joins(
    fleet, place, tmp_path, autojump_clock
):
    version = fleet.publish()
    async with running(fleet, tmp_path / "old") as one:
        await one.offered(version)
    lost = [Lost("older", 0.0, {}, Undelivered(1, 10, 0.0))]
    forgotten = replace(fleet.report(), lost=lost, undelivered=Undelivered(5, 50, 0.0), state="forgotten")
    fleet.put(MEMBERS + "web-1", forgotten)
    await trio.sleep(2 * LEASE)
    client = fleet.server.client("asker")
    async with observing(client, fleet.seals) as observer:
        assert (await wait(observer, 1, "drained", 0, 10)).state == "open"
    async with running(fleet, place) as two:
        await two.offered(version)
        two.answer("drained", version)
        await until(lambda: "drained" in fleet.report().stages)
        names = ["older", forgotten.directory]
        assert [(one.directory, one.forgotten) for one in fleet.report().lost] == [(name, True) for name in names]
        async with observing(client, fleet.seals) as observer:
            verdict = await wait(observer, 1, "drained", 0, 10)
    assert (verdict.state, [one.name for one in verdict.members]) == ("open", sorted(f"web-1/{name}" for name in names))
    assert verdict.undelivered == {"forgotten": Undelivered(6, 60, 0.0)}


async def test_a_forged_record_of_a_member_is_replaced_by_its_own(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        fleet.put(MEMBERS + "web-1", b"forged")
        one.answer("drained")
        await until(
            lambda: (
                fleet.server.read(MEMBERS + "web-1").entry.value != b"forged"
                and fleet.report().stages.get("drained") == version
            )
        )
