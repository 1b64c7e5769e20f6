"""Who a member is: hosts whose state directory was copied, lost, or put back from a backup."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shipper.fleet.records import Report
from tests.backends.etcd import Etcd
from tests.story.fleet import Fleet, Host, busy, renewed

pytestmark = pytest.mark.backend
NAMES = ("web-1", "web-2", "web-3", "web-4", "web-5")
LEASE = 2.0
WAIT = LEASE * 2 / 3 + LEASE * 1.02
"""The least from the death of a host, which has renewed its lease a third of it before, until its name is free."""


def versions(host: Host) -> list[str]:
    """The versions that a host began to run, in its own words."""
    return [one["version"] for one in host.said("fleet_version")]


async def test_a_copy_of_a_live_host_uses_nothing_and_takes_over_a_lease_after_that_has_stopped(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin()
        original = fleet.host("web-1")
        fleet.host("web-2")
        await fleet.started(one, "web-1", "web-2")
        directory = original.status()["directory"]
        copy = fleet.host("copy", member="web-1", state=original.copy_of_state(tmp_path / "copied"))
        await fleet.until(lambda: copy.said("fleet_trouble", code="name_taken"))
        await renewed(fleet, "web-1", times=6)
        await fleet.opens(await fleet.rotate("k2"), "web-1", "web-2")
        idle = fleet.arrived("copy"), copy.said("ack"), versions(copy)
        stopped = time.time()
        original.pause()
        three = await fleet.rotate("k3")
        await fleet.started(three, "web-1", "web-2")
        lost = await fleet.wait(three, seconds=0)
        await fleet.ships("copy")
        original.go_on()
        await fleet.until(lambda: original.said("fleet_trouble", code="store_restored"))
        says = await fleet.ask_host(original, "/fleet/versions/3")
        four = await fleet.rotate("k4")
        await fleet.started(four, "web-1", "web-2")
        await fleet.ships("web-1")
        closed = await fleet.wait(four, seconds=0)
        others = await fleet.ask_host(copy, "/fleet/versions/4")
        original.kill()
        forgotten = await fleet.order("forget", f"web-1/{directory}")
        await fleet.opens(four)
        await fleet.delivered(once=False)

    assert idle == (0, [], []), "a copy of a live host gets no version and no key"
    (joined,) = copy.said("fleet_joined")
    assert joined["at"] - stopped >= WAIT
    assert copy.said("ack")[0]["at"] >= joined["at"]
    assert (lost.state, [(one.name, one.kind, one.why) for one in lost.members]) == (
        "closed",
        [(f"web-1/{directory}", "absent", "directory lost")],
    )
    assert (says[0], says[1]["code"]) == (503, "store_restored")
    assert versions(original) == ["1", "2"]
    assert versions(copy) == ["3", "4"]
    (apart,) = closed.members
    assert (closed.state, apart.name, apart.kind) == ("closed", f"web-1/{directory}", "absent")
    assert "another process writes its record" in apart.why
    assert (others[0], others[1]["state"]) == (202, "closed")
    assert forgotten[0] == 0, forgotten


async def test_t152_8_five_hosts_that_were_restarted_copied_put_back_wiped_and_new_begin_with_the_newest_version(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin()
        for name in NAMES[:4]:
            fleet.host(name)
        hosts = fleet.hosts
        await fleet.started(one, *NAMES[:4])
        old = {name: hosts[name].status()["directory"] for name in NAMES[:4]}
        backup = hosts["web-3"].copy_of_state(tmp_path / "backup")
        copied = hosts["web-4"].copy_of_state(tmp_path / "copied")
        refused = fleet.hold_back("web-2")
        await fleet.until(lambda: refused)
        before = await fleet.report("web-2")
        await fleet.until(lambda: _holds(fleet, "web-2", since=before))
        killed = time.time()
        for name in NAMES[:4]:
            hosts[name].kill()
        held = (await fleet.report("web-2")).undelivered  # type: ignore[union-attr]
        fleet.destination.script = None
        two = await fleet.rotate("k2")
        hosts["web-2"].replace_state()
        hosts["web-3"].replace_state(backup)
        for name in NAMES[:3]:
            hosts[name].start()
        hosts["web-4"].is_busy = False
        copy = fleet.host("copy", member="web-4", state=copied)
        fleet.host("web-5")
        await fleet.started(two, *NAMES)
        closed = await fleet.wait(two, seconds=0)
        said = [await fleet.order("forget", f"{name}/{old[name]}") for name in ("web-2", "web-3", "web-4")]
        await fleet.opens(two)
        hosts["web-4"].start()
        await fleet.until(lambda: hosts["web-4"].said("fleet_trouble", code="name_taken"))
        await fleet.delivered(once=False)

    assert hosts["web-1"].said("fleet_trouble", code="name_taken") == []
    for host in (hosts["web-2"], hosts["web-3"], copy):
        joined = host.said("fleet_joined")[-1]
        assert joined["at"] - killed >= WAIT, host.name
        assert all(one["at"] >= joined["at"] for one in host.said("ack") if one["at"] > killed), host.name
    assert [versions(host) for host in (hosts["web-2"], hosts["web-3"], copy, hosts["web-5"])] == [
        *(["1", "2"], ["1", "2"], ["2"], ["2"])
    ]
    assert (closed.state, closed.counts) == ("closed", {"reached": 5, "absent": 3})
    lost = {one.name: one for one in closed.members}
    assert {*lost} == {f"{name}/{old[name]}" for name in ("web-2", "web-3", "web-4")}
    assert {one.why for one in closed.members} == {"directory lost"}
    assert held.events > 0
    assert lost[f"web-2/{old['web-2']}"].undelivered == held
    assert [status for status, _ in said] == [0, 0, 0], said
    assert f"{held.events} event" in said[0][1]


async def _holds(fleet: Fleet, name: str, *, since: Report | None) -> bool:
    """Whether a later report has events; those of one from before a refusal may have been on their way, and arrived."""
    report = await fleet.report(name)
    return report is not None and report != since and report.undelivered.events > 0
