"""Hosts that share a key: one answer to "have all drained?", whatever stops, dies, or is cut off.

The destination judges: which key each request carried, when it arrived, and which lines there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.backends.etcd import Etcd
from tests.story.fleet import PATIENCE, Fleet, ask, busy, started_etcd, wired

pytestmark = pytest.mark.backend
NAMES = ("web-1", "web-2", "web-3")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Etcd]:
    """Three nodes; a test that kills some starts them again."""
    yield from started_etcd(3)


async def test_t152_5_a_stopped_host_that_holds_is_fenced_and_sends_nothing_before_it_has_caught_up(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin(timeout="1s")
        fleet.host("web-1", releases=True)
        stopped = fleet.host("web-2", on_lapse="hold", rebind_revoked=True)
        stopped.is_busy = False
        await fleet.started(one, "web-1", "web-2")
        stopped.write(20)
        await fleet.until(lambda: fleet.arrived("web-2") == 20)
        await fleet.until(lambda: _idle(fleet, "web-2"))
        stopped.pause()
        began = time.time()
        stopped.write(20)
        two = await fleet.rotate("k2")
        opened, at = await fleet.wait(two), time.time()
        (run,) = await fleet.until(fleet.runs)
        before = fleet.arrived("web-2")
        stopped.go_on()
        await fleet.started(two, "web-2")
        await fleet.delivered()

    assert (opened.state, opened.counts) == ("open", {"reached": 1, "fenced": 1})
    assert [(one.name, one.kind) for one in opened.members] == [("web-2", "fenced")]
    assert at - began > 2.0, "the longest request and a lease, which began at most a third of it earlier"
    assert run.name == "k1"
    assert before == 20
    assert fleet.uses("k1", at) == 0
    assert fleet.destination.refused == 0


async def _idle(fleet: Fleet, name: str) -> bool:
    report = await fleet.report(name)
    return report is not None and report.undelivered.events == 0


async def test_t152_6_and_7_a_leader_that_was_stopped_or_has_died_changes_nothing_any_more(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin()
        for name in ("web-1", "web-2"):
            fleet.host(name, releases=True)
        await fleet.started(one, "web-1", "web-2")
        first = fleet.hosts[(await fleet.until(fleet.head)).leader or (await _elected(fleet, "")).leader]
        second = next(host for host in fleet.hosts.values() if host is not first)
        waits = tmp_path / f"{first.name}.waits"
        waits.touch()
        await fleet.opens(await fleet.rotate("k2"), "web-1", "web-2")
        (begun,) = await fleet.until(lambda: fleet.runs(fleet.begun))
        first.pause()
        head = await _elected(fleet, first.name)
        (done,) = await fleet.until(fleet.runs)
        waits.unlink()
        first.go_on()
        await fleet.opens(await fleet.rotate("k3"), "web-1", "web-2")
        await fleet.until(lambda: _all_done(fleet))
        second.kill()
        later = await _elected(fleet, second.name)
        second.start()
        last = await fleet.rotate("k4")
        await fleet.opens(last, "web-1", "web-2")
        await fleet.until(lambda: [run for run in fleet.runs() if run.name == "k3"])
        history = (await fleet.head()).history
        await fleet.delivered()

    runs = {(run.name, run.host, run.token) for run in fleet.runs(fleet.begun)}
    assert (begun.host, done.host) == (first.name, second.name)
    assert begun.token < done.token == head.token < later.token
    assert runs == {
        ("k1", first.name, begun.token),
        ("k1", second.name, head.token),
        ("k2", second.name, head.token),
        ("k3", first.name, later.token),
    }
    assert [line.version.number for line in history] == [1, 2, 3, 4]
    assert fleet.destination.refused == 0


async def _all_done(fleet: Fleet) -> bool:
    """Whether the store knows that `on_release` has run for all keys but the present one."""
    head = await fleet.head()
    return [release.state for release in head.released.values()] == ["done"] * (len(head.fingerprints) - 1)


async def _elected(fleet: Fleet, before: str) -> Any:
    """Returns the head once another host than this one is elected."""

    async def found() -> Any:
        head = await fleet.head()
        return head if head.leader not in ("", before) else None

    return await fleet.until(found)


async def test_t152_4_the_shared_key_is_revoked_when_all_have_drained_and_not_before(
    tmp_path: Path, nodes: Etcd
) -> None:
    async with busy(tmp_path, nodes) as fleet:
        one = await fleet.begin()
        for name in NAMES:
            fleet.host(name, releases=True)
        await fleet.started(one, *NAMES)
        refused = fleet.hold_back("web-3")
        await fleet.until(lambda: refused)
        two = await fleet.rotate("k2")
        nodes.nodes[0].kill()  # T152.2: whoever knows of the version can read it
        await fleet.started(two, "web-1", "web-2")
        closed, early = await fleet.wait(two, seconds=0), fleet.runs(fleet.begun)
        three = await fleet.publish(fleet.policy(timeout="3s"))
        await fleet.started(three, "web-1", "web-2")
        fleet.destination.script = None
        await fleet.opens(two, *NAMES)
        await fleet.opens(three, *NAMES)
        (run,) = await fleet.until(fleet.runs)
        await fleet.until(lambda: fleet.uses("k2", run.at) > 5)
        nodes.start(nodes.nodes[0])
        await fleet.delivered()

    assert (closed.state, closed.counts) == ("closed", {"reached": 2, "waiting": 1})
    assert (closed.members[0].name, closed.members[0].kind) == ("web-3", "waiting")
    assert early == []
    assert run.name == "k1"
    for host in fleet.hosts.values():
        assert any(one["revision"] != "1" and one["at"] <= run.at for one in host.said("ack", stage="drained"))
        assert len(host.said("launched")) == 1
    assert fleet.destination.refused == 0
    assert fleet.runs() == [run]


async def test_t152_10_each_host_gives_the_same_answer_and_one_that_is_cut_off_says_so(
    tmp_path: Path, nodes: Etcd
) -> None:
    async with wired(nodes.nodes[0].port) as wire, busy(tmp_path, nodes) as fleet, trio.open_nursery() as nursery:
        one = await fleet.begin()
        for name in ("web-1", "web-2"):
            fleet.host(name)
        fleet.host("web-3", etcd=[f"http://127.0.0.1:{wire.port}"])
        await fleet.started(one, *NAMES)
        address = (await fleet.report("web-3")).http  # type: ignore[union-attr]
        same = [await fleet.ask(name, "/fleet/versions/1") for name in NAMES]
        unknown = [await fleet.ask(name, "/fleet/versions/9") for name in NAMES]
        wire.cut()
        cut_off, before = await ask(address, "/fleet/versions/1"), fleet.arrived("web-3")
        two = await fleet.publish(fleet.policy(timeout="3s"))
        answers: list[Any] = []

        async def ask_and_wait() -> None:
            answers.append(await fleet.ask("web-1", f"/fleet/versions/2?wait={PATIENCE:g}s"))

        nursery.start_soon(ask_and_wait)
        await fleet.started(two, "web-1", "web-2")
        nodes.nodes[1].kill()
        closed = await fleet.wait(two, seconds=0)
        await fleet.until(lambda: fleet.arrived("web-3") > before + 50)
        wire.mend()
        await fleet.until(lambda: answers)
        nodes.start(nodes.nodes[1])
        await fleet.delivered()

    triple = list(one)
    assert [(status, said["state"], said["triple"]) for status, said in same] == [(200, "open", triple)] * 3
    assert [said["counts"] for _, said in same] == [{"reached": 3}] * 3
    assert [(status, said["state"]) for status, said in unknown] == [(404, "unknown")] * 3
    assert (cut_off[0], cut_off[1]["code"]) == (503, "store_unreachable")
    assert (closed.state, [one.name for one in closed.members]) == ("closed", ["web-3"])
    assert [(status, said["state"], said["triple"]) for status, said in answers] == [(200, "open", list(two))]


async def test_t152_11_and_13_traffic_goes_on_without_any_node_of_the_store_and_a_refusal_ends_the_wait(
    tmp_path: Path, nodes: Etcd
) -> None:
    async with busy(tmp_path, nodes) as fleet:
        one = await fleet.begin()
        for name in NAMES:
            fleet.host(name, variables={} if name == "web-3" else {"DATACENTER": "here"})
        await fleet.started(one, *NAMES)
        nodes.kill()
        for host in fleet.hosts.values():
            await fleet.until(lambda host=host: host.said("fleet_trouble", code="store_unreachable"))
        fleet.hosts["web-2"].kill()
        fleet.hosts["web-2"].start()
        before = {name: fleet.arrived(name) for name in NAMES}
        await fleet.until(lambda: all(fleet.arrived(name) > before[name] + 50 for name in NAMES))
        nodes.start()
        await fleet.opens(await fleet.rotate("k2"), *NAMES)
        tagging = [{"type": "add_fields", "fields": {"cloud.region": "${DATACENTER}"}}]
        bad = await fleet.publish(fleet.policy(processors=tagging))
        with trio.fail_after(PATIENCE):
            refused = await fleet.wait(bad, seconds=10 * PATIENCE)
        before["web-3"] = fleet.arrived("web-3")
        await fleet.until(lambda: fleet.arrived("web-3") > before["web-3"] + 50)
        await fleet.opens(await fleet.publish(fleet.policy()), *NAMES)
        await fleet.delivered()

    assert (refused.state, [one.name for one in refused.members if one.kind == "refused"]) == ("refused", ["web-3"])
    assert "DATACENTER" in refused.members[0].problems[0]
    assert [len(fleet.hosts[name].said("launched")) for name in NAMES] == [1, 2, 1]
    assert fleet.destination.refused == 0
