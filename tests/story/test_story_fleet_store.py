"""A store that was restored from an older snapshot, or in which somebody without the fleet's key writes."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from shipper.fleet import operations
from shipper.fleet.judge import Verdict
from shipper.fleet.operations import accept_restore
from shipper.fleet.records import ALIVE, HEAD, MEMBERS, RESTORED, SECRETS, VERSIONS, Version
from shipper.fleet.seal import Unauthentic
from tests.backends.etcd import Etcd
from tests.story.fleet import Fleet, Host, busy, renewed

pytestmark = pytest.mark.backend
NAMES = ("web-1", "web-2")
PAUSE = 2.5
"""Seconds, more than a lease, for which members register again."""
MOST_CALLS = 60
"""Of a member in a lease; at rest it makes 12, and some more for those who ask."""


async def all_say(fleet: Fleet, code: str, times: int = 1) -> None:
    """Waits until each host has said so often that it has this trouble."""
    for host in fleet.hosts.values():
        await fleet.until(lambda host=host: len(host.said("fleet_trouble", code=code)) >= times)


async def test_t152_8_members_that_are_newer_than_a_restored_store_acknowledge_nothing_and_ship_on_until_it_is_accepted(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "_SHORTEST_PAUSE", PAUSE)
    async with busy(tmp_path, etcd) as fleet:
        one = await fleet.begin()
        for name in NAMES:
            fleet.host(name)
        await fleet.started(one, *NAMES)
        await trio.to_thread.run_sync(etcd.save, tmp_path / "snapshot")
        two = await fleet.rotate("k2")
        await fleet.opens(two, *NAMES)
        await trio.to_thread.run_sync(etcd.restore, tmp_path / "snapshot")
        await all_say(fleet, "store_restored")
        again = await fleet.rotate("k3")
        paths = ("/fleet/versions/2", "/fleet/members")
        says = [await fleet.ask_host(host, path) for host in fleet.hosts.values() for path in paths]
        await fleet.ships(*NAMES, lines=50)
        verdict = await fleet.wait(again, seconds=0)
        refused = await fleet.order("wait", "2", "--timeout", "1s", "--json")
        reports = [await fleet.report(name) for name in NAMES]
        ran = [len(host.said("fleet_version")) for host in fleet.hosts.values()]
        accepted = await accept_restore(fleet.store, fleet.seals, "tests", force=True)
        await fleet.opens(accepted.version, *NAMES)
        last = await fleet.rotate("k4")
        await fleet.opens(last, *NAMES)
        await fleet.delivered()

    assert (two[:2], again[:2]) == ((0, 2), (0, 2)), "the number comes again"
    assert [(status, said["code"]) for status, said in says] == [(503, "store_restored")] * 4
    assert verdict.state == "store_restored"
    assert json.loads(refused[1].splitlines()[0])["state"] == "store_restored"
    assert [report.stages for report in reports] == [dict.fromkeys(("received", "active", "drained"), one)] * 2
    assert ran == [2, 2]
    assert (accepted.epoch, accepted.missing) == (1, [])
    assert len({one, two, again, accepted.version, last}) == 5
    assert last[:2] == (1, 4)
    for host in fleet.hosts.values():
        assert [one["version"] for one in host.said("fleet_version")] == ["1", "2", "1.3", "1.4"]
        assert len(host.said("launched")) == 1
    assert fleet.destination.refused == 0


class SlowWire:
    """A way to a node whose answers come after `delay` seconds."""

    delay = 0.0

    def __init__(self, port: int) -> None:
        self._port = port

    async def forward(self, near: trio.SocketStream) -> None:
        async with near, await trio.open_tcp_stream("127.0.0.1", self._port) as far, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, near, far, False)
            await self._pass(far, near, True)
            nursery.cancel_scope.cancel("the node has closed the connection")

    async def _pass(self, source: trio.SocketStream, sink: trio.SocketStream, is_answer: bool) -> None:
        with suppress(trio.BrokenResourceError):
            async for block in source:
                await trio.sleep(self.delay if is_answer else 0)
                await sink.send_all(block)


async def test_a_store_that_answers_each_call_and_too_late_for_the_lease_is_a_trouble_until_it_is_fast_again(
    tmp_path: Path, etcd: Etcd
) -> None:
    wire = SlowWire(etcd.nodes[0].port)
    async with busy(tmp_path, etcd) as fleet, trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, wire.forward, 0, host="127.0.0.1"))
        version = await fleet.begin()
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        host = fleet.host("web-1", etcd=[url], lease="3s")
        await fleet.started(version, "web-1")
        wire.delay = 1.0
        (told, *_) = await fleet.until(lambda: host.said("fleet_trouble", code="store_slow"))
        rows = host.status()["troubles"]
        await fleet.ships("web-1", lines=50)
        wire.delay = 0.0
        await fleet.until(lambda: host.said("fleet_well", code="store_slow"))
        await fleet.opens(version, "web-1")
        await fleet.until(lambda: "store_slow" not in host.status()["troubles"])
        nursery.cancel_scope.cancel("the test has ended")

    assert "s a call; the lease is 3 s" in told["message"]
    assert told["consequence"] == "shipping continues"
    assert "store_slow" in rows


async def test_records_that_somebody_without_the_key_writes_are_refused_or_replaced_and_traffic_goes_on(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with busy(tmp_path, etcd) as fleet:
        hosts = fleet.hosts
        one = await fleet.begin()
        for name in NAMES:
            fleet.host(name)
        await fleet.started(one, *NAMES)
        old = {key: fleet.raw(key) for key in (MEMBERS + "web-1", ALIVE + "web-1")}
        calls = etcd.calls
        await fleet.opens(await fleet.rotate("k2"), *NAMES)

        # what a member writes: it replaces it
        damages = (b"", old[MEMBERS + "web-1"][:-5], fleet.raw(MEMBERS + "web-2"), old[MEMBERS + "web-1"])
        leases = (b"", fleet.raw(ALIVE + "web-2"), old[ALIVE + "web-1"], None)
        for raw, lease in zip(damages, leases, strict=True):
            fleet.forge(ALIVE + "web-1", lease)
            fleet.forge(MEMBERS + "web-1", raw)
            await fleet.until(lambda raw=raw, lease=lease: _is_replaced(fleet, "web-1", raw, lease))
        fleet.forge(RESTORED + "web-1", b"forged")
        fleet.forge(RESTORED + "web-2", fleet.raw(HEAD))
        await fleet.opens(await fleet.publish(fleet.policy()), *NAMES)

        # a report that is no longer there: its member is listed, acknowledges nothing, and goes on once it is back
        report = fleet.raw(MEMBERS + "web-2")
        fleet.forge(MEMBERS + "web-2", None)
        await fleet.until(lambda: hosts["web-2"].said("fleet_trouble", code="store_restored"))
        newest = await fleet.publish(fleet.policy())
        await fleet.started(newest, "web-1")
        closed = await fleet.wait(newest, seconds=0)
        fleet.forge(MEMBERS + "web-2", report)
        await fleet.opens(newest, *NAMES)

        # the head: everybody says so, and nothing begins
        older = fleet.raw(HEAD)
        assert (await fleet.order("settings", "--history", "60"))[0] == 0
        head, wrong = (
            fleet.raw(HEAD),
            ((b"forged", "store_refused"), (None, "store_restored"), (older, "store_restored")),
        )
        await renewed(fleet, *NAMES)
        for raw, code in wrong:
            fleet.forge(HEAD, raw)
            await fleet.until(lambda code=code: all(code in _troubles(host) for host in hosts.values()))
            answers = [await fleet.ask_host(host, "/fleet/versions/1") for host in hosts.values()]
            code = "unauthentic" if raw and code == "store_refused" else code
            assert [(status, said["code"]) for status, said in answers] == [(503, code)] * 2
            await fleet.ships(*NAMES)
            fleet.forge(HEAD, head)
            await fleet.until(lambda: all(_is_well(host) for host in hosts.values()))
        writes = {name: (await fleet.report(name)).write for name in NAMES}  # type: ignore[union-attr]
        spent = etcd.calls - calls

        # a version whose records are not those of the publisher is refused by name
        for kind in (VERSIONS, SECRETS):
            for host in hosts.values():
                host.pause()
            three = await fleet.rotate(f"k-{kind}")
            key = VERSIONS + three.sha256 if kind == VERSIONS else SECRETS + (await fleet.head()).secrets["es"]
            right = fleet.raw(key)
            fleet.forge(key, right[:-1])
            for host in hosts.values():
                host.go_on()
            refused = await fleet.until(lambda version=three: _all_refuse(fleet, version))
            order = await fleet.order("wait", str(three.number), "--timeout", "30s", "--nack-grace", "0s")
            await fleet.ships(*NAMES)
            assert all("unauthentic" in each.why and key in each.problems[0] for each in refused.members), refused
            assert order[0] == 4, order
            fleet.forge(key, right)
            await fleet.opens(three, *NAMES)
        await fleet.delivered()

    assert closed.state == "closed"
    assert {one.name.partition("/")[0] for one in closed.members} == {"web-2"}
    assert spent / sum(writes.values()) < MOST_CALLS / 3, (spent, writes)
    for host in hosts.values():
        assert len(host.said("launched")) == 1
    assert fleet.destination.refused == 0


def _troubles(host: Host) -> dict[str, str]:
    found: dict[str, str] = host.status()["troubles"]
    return found


def _is_well(host: Host) -> bool:
    status = host.status()
    return (status["state"], status["troubles"]) == ("member", {})


async def _is_replaced(fleet: Fleet, name: str, raw: bytes, lease: bytes | None) -> bool:
    """Whether a member has replaced its report and its lease."""
    try:
        report = await fleet.report(name)
    except Unauthentic:
        return False
    is_back = fleet.is_there(ALIVE + name) and fleet.raw(ALIVE + name) != lease
    return report is not None and report.name == name and fleet.raw(MEMBERS + name) != raw and is_back


async def _all_refuse(fleet: Fleet, version: Version | None) -> Verdict | None:
    verdict = await fleet.wait(version, grace=0.0)
    assert verdict.state == "refused", verdict
    return verdict if verdict.counts == {"refused": len(NAMES)} else None
