"""One member of a fleet, on a store in memory: it joins, follows the head, and leaves."""

import stat

import pytest
import trio
from msgspec.structs import replace

from shipper.fleet.home import Home
from shipper.fleet.membership.membership import NotLeft
from shipper.fleet.publisher import Publisher
from shipper.fleet.records import ALIVE, HEAD, MEMBERS, VERSIONS, Undelivered
from shipper.fleet.store import SECONDS
from tests.fleet.hosts import ENVIRONMENT, LEASE, FakeHost, running, until

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


async def test_joining_at_a_slow_store_costs_no_lease(fleet, place, autojump_clock):
    """It takes as long as several leases; each look renews the lease."""
    version = fleet.publish(pins={"es": "es-1"})
    async with running(fleet, place) as one:
        one.client.set(delay=LEASE / 5 / 2)  # there, and as long back
        await until(lambda: fleet.alive() is not None)
        while one.member.offered is None or fleet.report().state != "member":
            assert fleet.alive() is not None
            await trio.sleep(0.01)
        assert one.client.calls["grant"] == 1
        assert one.member.offered.version == version


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


async def test_t152_9_a_watch_that_brings_an_older_head_than_a_look_has_found_changes_nothing(
    fleet, place, autojump_clock
):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        one.client.set(watch_delay=LEASE / 3)
        one.client.lose("before", MEMBERS)
        one.answer("drained")  # a write without an answer is followed by a look
        await trio.sleep(SECONDS - 1)
        fleet.publish("b: 2")
        await trio.sleep(0.5)
        newest = fleet.publish("c: 3")
        await one.offered(newest)
        one.client.set(delay=0.2)  # so that another look would be seen to take its time
        seen = set()
        with trio.move_on_after(2 * LEASE):
            while True:
                seen.add((one.member.status()["newest"], one.member.offered.version))
                await trio.sleep(0.1)
        assert seen == {("3", newest)}


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
        await trio.sleep(2 * LEASE)  # its renewals are newer than the head, and no look brings the next one
        fleet.server.compact()
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


async def test_a_store_that_answers_too_late_for_the_lease_is_a_trouble_with_a_remedy(fleet, place, autojump_clock):
    """Each call succeeds, and a look takes as long as a lease."""
    version = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(version)
        one.client.set(delay=LEASE / 4)
        await until(
            lambda: "the store takes 7.5 s a call; the lease is 15 s" in one.host.troubles.get("store_slow", "")
        )
        assert "a `lease` of 68s or more" in one.host.troubles["store_slow"]
        assert "store_unreachable" not in one.host.troubles
        one.client.set(delay=0.0)
        await until(lambda: not one.host.troubles, 4 * LEASE)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("share", [1 / 3, 1 / 2])
async def test_a_store_that_takes_a_third_of_the_lease_or_more_is_one_trouble_until_it_is_fast_again(
    fleet, place, autojump_clock, share, joined
):
    """The lease ends in the middle of a renewal: what was broken off says nothing about a call."""
    begun = []
    version = fleet.publish()
    async with running(fleet, place) as one:
        if joined:
            await one.offered(version)
        one.client.set(delay=share * LEASE / 2)
        with trio.move_on_after(40 * LEASE):
            while True:
                is_slow = "store_slow" in one.host.troubles
                begun += [is_slow] if [is_slow] != begun[-1:] else []
                await trio.sleep(0.1)
        one.client.set(delay=0.0)
        await until(lambda: not one.host.troubles, 4 * LEASE)

    assert begun == [False, True]


async def test_a_call_that_is_slow_once_as_after_a_suspension_is_no_trouble(fleet, place, autojump_clock):
    async with running(fleet, place) as one:
        await one.offered(fleet.publish())
        await trio.sleep(LEASE)
        one.client.set(stopped=True)
        await trio.sleep(100 * LEASE)
        one.client.set(stopped=False)
        shown = []
        with trio.move_on_after(4 * LEASE):
            while True:
                shown += [cause for cause in one.host.troubles if cause not in shown]
                await trio.sleep(0.01)
        assert "store_slow" not in shown


async def test_a_version_without_its_text_is_a_trouble_until_another_one_can_be_read(fleet, place, autojump_clock):
    good = fleet.publish()
    async with running(fleet, place) as one:
        await one.offered(good)
        one.client.set(cut=True)
        bad = fleet.publish("b: 2")
        fleet.put(VERSIONS + bad.sha256, None)
        one.client.set(cut=False)
        await until(lambda: "version_unusable" in one.host.troubles)
        text = one.host.troubles["version_unusable"]
        assert f"version 2 cannot be used: the store has no record versions/{bad.sha256}" in text
        assert "shipper fleet publish" in text
        await until(lambda: fleet.report().refusal is not None and fleet.report().refusal.version == bad, LEASE)
        await trio.sleep(4 * LEASE)
        assert "version_unusable" in one.host.troubles
        await one.offered(fleet.publish("c: 3"))
        await until(lambda: not one.host.troubles, 1)


async def test_a_forged_text_is_a_trouble_until_it_is_replaced(fleet, place, autojump_clock):
    bad = fleet.publish()
    key = VERSIONS + bad.sha256
    real = fleet.server.read(key).entry.value
    fleet.put(key, b"forged")
    async with running(fleet, place) as one:
        await until(lambda: "version_unusable" in one.host.troubles)
        assert f"version 1 cannot be used: the record {key}" in one.host.troubles["version_unusable"]
        fleet.put(key, real)
        await one.offered(bad)
        await until(lambda: not one.host.troubles, 1)


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
    files = {path.name: path for path in place.iterdir()}
    raw = b"".join(path.read_bytes() for path in files.values())
    assert "content of" not in text
    assert b"content of" not in raw
    assert b"canary" not in raw
    assert {"fleet.json", "fleet.version.json"} <= files.keys()
    assert {stat.S_IMODE(files[name].stat().st_mode) for name in files if name.startswith("fleet.")} == {0o600}
