"""One member of a fleet, on a store in memory."""

import shutil

import pytest
import trio
from msgspec.structs import replace

from shipper.fleet.home import Home
from shipper.fleet.membership.membership import NotLeft
from shipper.fleet.membership.offered import parse
from shipper.fleet.observer import observing, wait
from shipper.fleet.operations import forget
from shipper.fleet.publisher import Publisher
from shipper.fleet.records import (
    ALIVE,
    HEAD,
    MEMBERS,
    RESTORED,
    SECRETS,
    VERSIONS,
    Accepting,
    Lost,
    Release,
    Restored,
    Undelivered,
    Version,
)
from tests.fleet.hosts import ENVIRONMENT, LEASE, FakeHost, Fleet, running, until


@pytest.fixture
def fleet():
    return Fleet()


@pytest.fixture
def place(tmp_path):
    return tmp_path / "state"


# joining


async def test_a_member_joins_and_is_offered_the_newest_version_with_its_secrets(fleet, place, autojump_clock):
    fleet.publish(pins={"es": "es-1"})
    newest = fleet.publish("b: 2", pins={"es": "es-2"})

    async with running(fleet, place) as one:
        await one.offered(newest)
        report = fleet.report()

    assert one.member.offered.text.policy == "b: 2"
    assert one.member.offered.secrets == {"es": b"content of es-2"}
    assert (report.state, report.begun, report.using) == ("member", newest, ["es-2"])
    assert report.stages == {}


async def test_one_content_under_two_names_is_one_secret(fleet, place, autojump_clock):
    publisher = Publisher(fleet.server.client("ann"), fleet.seals, "ann@desk")
    ids = {(await publisher.set_secret(name, b"id:key"))[0] for name in ("old", "new")}
    newest = fleet.publish(pins=fleet.head.secrets)
    async with running(fleet, place) as one:
        await one.offered(newest)

    assert len(ids) == 1
    assert one.member.offered.secrets == {"old": b"id:key", "new": b"id:key"}


async def test_a_joiner_is_registered_before_it_reads_the_version_that_it_begins_with(fleet, place, autojump_clock):
    """A version that is published while it joins is the one that it begins with, never an older one."""
    fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place) as one:
        one.client.set(delay=0.1)
        await until(lambda: fleet.report() is not None)
        assert fleet.report().state == "joining"
        assert one.member.offered is None
        newest = fleet.publish(pins={"es": "es-2"})
        await until(lambda: fleet.report().state == "member")

        assert fleet.report().begun == newest
        assert one.member.offered is None or one.member.offered.version == newest


async def test_a_member_reports_a_secret_for_as_long_as_its_sidecar_uses_it(fleet, place, autojump_clock):
    fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place) as one:
        one.host.used = {"es-1"}
        await one.offered(fleet.publish(pins={"es": "es-2"}))
        one.answer("active")
        one.host.used = {"es-1", "es-2"}
        await trio.sleep(LEASE)
        assert fleet.report().using == ["es-1", "es-2"]
        one.host.used = {"es-2"}
        await trio.sleep(LEASE)
        assert fleet.report().using == ["es-2"]


async def test_a_member_joins_a_fleet_without_a_version_and_gets_the_first_one(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await until(lambda: fleet.report() is not None and fleet.report().state == "member")
        assert fleet.report().begun is None
        await one.offered(fleet.publish())


async def test_the_store_may_be_away_at_the_first_start(fleet, place, autojump_clock):
    fleet.server.stop()
    version = fleet.publish()
    async with running(fleet, place) as one:
        await until(lambda: "store_unreachable" in one.host.troubles)
        assert one.member.offered is None
        fleet.server.start()
        await one.offered(version)
        await until(lambda: not one.host.troubles)


# answers


async def test_t152_3_a_member_reports_a_stage_only_after_the_sidecar_has_answered(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        await trio.sleep(3 * LEASE)
        assert fleet.report().stages == {}
        for stage in ("received", "active", "drained"):
            one.answer(stage)
            await until(lambda stage=stage: fleet.report().stages.get(stage) == version, 1)
            assert len(fleet.report().stages) == ("received", "active", "drained").index(stage) + 1


async def test_answers_during_an_outage_are_stored_after_it(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        fleet.server.stop()
        one.answer("active")
        await trio.sleep(3600)
        one.answer("drained")
        fleet.server.start()
        await until(lambda: fleet.report().stages.get("drained") == version, LEASE)


async def test_an_older_answer_never_replaces_a_newer_one(fleet, place, autojump_clock):
    first = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(first)
        second = fleet.publish()
        await one.offered(second)
        one.answer("drained", second)
        one.answer("drained", first)
        await trio.sleep(LEASE)
        assert fleet.report().stages["drained"] == second


async def test_a_refusal_is_reported_and_cleared_by_a_later_stage(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        one.answer("refused", None, "failed", "the port is taken")
        await until(lambda: fleet.report().refusal is not None, 1)
        assert (fleet.report().refusal.version, fleet.report().refusal.reason) == (version, "failed")
        one.answer("received")
        await until(lambda: fleet.report().refusal is None, 1)


async def test_a_version_costs_at_most_five_writes_and_rest_one_in_a_third_of_a_lease(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        await trio.sleep(LEASE)
        before = one.client.calls["written"]
        await trio.sleep(100 * LEASE)
        assert 295 <= one.client.calls["written"] - before <= 301

        before = one.client.calls["written"]
        version = fleet.publish()
        await one.offered(version)
        for _ in range(20):
            one.answer("received")
            one.answer("refused", None, "failed")
            await trio.sleep(0.05)
        for stage in ("received", "active", "drained"):
            one.answer(stage)
            await trio.sleep(0.05)
        await until(lambda: fleet.report().stages.get("drained") == version and not fleet.report().refusal)
        assert one.client.calls["written"] - before <= 5


async def test_other_names_than_those_of_versions_are_ignored(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        for name in ("", "7", "a.b.c", "1.2", "١.1.x"):
            one.member.answered(name, None, "drained")
        await trio.sleep(LEASE)
        assert fleet.report().stages == {}


def test_the_name_of_an_offer_names_the_whole_triple():
    assert parse("1.7.abc") == Version(1, 7, "abc")


# catching up


async def test_t152_9_a_version_that_overtakes_the_catch_up_wins(fleet, place, autojump_clock):
    first = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(first)
        one.client.set(delay=0.5, watch_delay=3.0)
        fleet.publish("b: 2")
        await trio.sleep(3.2)
        newest = fleet.publish("c: 3")
        await one.offered(newest)
        await trio.sleep(2 * LEASE)
        assert one.member.offered.version == newest


async def test_t152_14_a_compacted_watch_misses_no_version(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        one.client.set(cut=True)
        await trio.sleep(60)
        for number in range(5):
            newest = fleet.publish(f"a: {number}")
        fleet.server.compact()
        one.client.set(cut=False)
        await one.offered(newest)
        one.client.compact()
        await one.offered(fleet.publish())


@pytest.mark.parametrize("mishap", ["before", "after", "late"])
@pytest.mark.parametrize("nth", range(5))
async def test_a_lost_answer_to_any_write_changes_nothing(fleet, place, mishap, nth, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        if nth < 2:
            one.client.lose(mishap, (ALIVE, MEMBERS)[nth])
        await one.offered(version)
        if nth >= 2:
            one.client.lose(mishap, MEMBERS)
        one.answer(("received", "active", "drained")[nth % 3])
        await trio.sleep(5 * LEASE)
        one.answer("drained")
        await until(lambda: fleet.report().stages.get("drained") == version, 3 * LEASE)
        await until(lambda: not one.host.troubles, 3 * LEASE)
        assert fleet.report().state == "member"


# restarts


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


async def test_a_member_restarted_on_its_newest_version_is_offered_it_again_for_its_local_secrets(
    fleet, place, autojump_clock
):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
    async with running(fleet, place) as two:
        with trio.fail_after(2):
            await two.offered(version)


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


# names and directories


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


async def test_who_forgets_a_member_forgets_the_directories_that_it_had_lost(fleet, place, tmp_path, autojump_clock):
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
        assert fleet.report().lost == []


# local versions (T152.8)


async def test_t152_8_a_joiner_without_a_local_version_begins_with_the_newest(fleet, place, autojump_clock):
    fleet.publish()
    newest = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(newest)


async def test_t152_8_a_joiner_with_an_old_local_version_is_offered_the_newest_only(fleet, place, autojump_clock):
    old = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(old)
    newest = fleet.publish()
    async with running(fleet, place) as two:
        await until(lambda: two.member.offered is not None)
        assert two.member.offered.version == newest


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


# forged records


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


async def test_a_missing_text_is_refused_by_name(fleet, place, autojump_clock):
    bad = fleet.publish()
    fleet.put(VERSIONS + bad.sha256, None)
    async with running(fleet, place):
        await until(lambda: fleet.report() is not None and fleet.report().refusal is not None)
        assert fleet.report().refusal.version == bad


async def test_a_forged_head_is_a_trouble_and_changes_nothing(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        real = fleet.head
        fleet.put(HEAD, b"forged")
        await until(lambda: "unauthentic" in one.host.troubles)
        one.answer("drained")
        await until(lambda: fleet.report().stages.get("drained") == version, LEASE)
        fleet.put(HEAD, real)
        await one.offered(fleet.publish())
        await until(lambda: not one.host.troubles)


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


# leases of the sidecar


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
        await trio.sleep(100 * LEASE)
        assert fleet.alive() is not None
        assert 295 <= one.client.calls["written"] - before <= 301
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


# the end


async def test_a_member_leaves_with_its_last_figures_and_starts_again_only_with_the_store(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        one.host.waiting = Undelivered(3, 30, 0.0)
        with trio.fail_after(1):
            await one.member.leave()
        assert fleet.report().state == "left"
        assert fleet.report().undelivered.events == 3
        assert fleet.alive() is None
        written = one.client.calls["written"]
        await trio.sleep(10 * LEASE)
        assert one.client.calls["written"] == written
    assert Home.open(place, "prod", "web-1", ENVIRONMENT).memory.state == "left"
    fleet.server.stop()
    async with running(fleet, place) as two:
        await trio.sleep(10 * LEASE)
        assert two.member.offered is None
        fleet.server.start()
        await two.offered(version)
        assert fleet.report().state == "member"


async def test_a_member_leaves_when_the_store_is_back(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        fleet.server.stop()
        with trio.move_on_after(60):
            await one.member.leave()
        fleet.server.start()
        await until(lambda: fleet.report().state == "left")


async def test_a_member_that_is_apart_cannot_leave_and_says_what_to_do(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        fleet.put(MEMBERS + "web-1", replace(fleet.report(), directory="other"))
        await until(lambda: "store_restored" in one.host.troubles)
        with pytest.raises(NotLeft, match="shipper fleet forget web-1"):
            await one.member.leave()


async def test_a_forgotten_member_stops_taking_part_and_starts_again_only_with_the_store(fleet, place, autojump_clock):
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        fleet.put(MEMBERS + "web-1", replace(fleet.report(), state="forgotten"))
        await until(lambda: "fleet_left" in one.host.troubles)
        await trio.sleep(10 * LEASE)
        assert fleet.report().state == "forgotten"
        assert fleet.alive() is None
    fleet.server.stop()
    async with running(fleet, place) as two:
        await trio.sleep(LEASE)
        assert two.member.offered is None
        fleet.server.start()
        await two.offered(version)
        assert fleet.report().state == "member"


# troubles


async def test_an_outage_is_a_trouble_and_costs_few_calls(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        await trio.sleep(LEASE)
        fleet.server.stop()
        await until(lambda: "store_unreachable" in one.host.troubles)
        before = one.client.calls.total()
        await trio.sleep(3600)
        assert one.client.calls.total() - before < 3600
        fleet.server.start()
        await until(lambda: not one.host.troubles, LEASE)


async def test_a_disk_that_takes_nothing_is_a_trouble(fleet, place, monkeypatch, autojump_clock):
    version = fleet.publish()

    async def full(self, memory):
        await trio.lowlevel.checkpoint()
        raise OSError(28, "No space left on device")

    async with running(fleet, place) as one:
        await one.offered(version)
        with monkeypatch.context() as patch:
            patch.setattr(Home, "save", full)
            await until(lambda: "fleet_unsaved" in one.host.troubles)
            await trio.sleep(LEASE)
        await until(lambda: not one.host.troubles)


async def test_no_secret_and_no_policy_is_in_the_status_or_in_clear_on_the_disk(fleet, place, autojump_clock):
    host = FakeHost()
    async with running(fleet, place, host=host) as one:
        await one.offered(fleet.publish("canary: policy", pins={"es": "es-1"}))
        one.answer("active")
        await trio.sleep(LEASE)
        text = f"{one.member.status()} {one.member.offered!r}"
    files = b"".join(path.read_bytes() for path in place.iterdir())
    assert "content of" not in text
    assert b"content of" not in files
    assert b"canary" not in files
