"""Each alert fires by its fault and clears when the fault is over: a real Prometheus reads a real sidecar."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from shipper.process.environment import boottime
from shipper.testing import Reply
from shipper_demo.ports import free_port
from tests.disks import fill, small_disk
from tests.monitoring.prometheus import RULES, Prometheus
from tests.story import test_story_damage as damage
from tests.story.driver import launched
from tests.story.test_story_relay import Relay
from tests.story.world import open_world, rejecting, secret, shipping
from tests.supervise.driver import Site

DEADLINE = "drain: {deadline: 300ms, on_deadline: hold}\n"


def test_each_alert_has_a_test_in_which_it_fires_and_clears() -> None:
    text = Path(__file__).read_text()
    names = re.findall(r"alert: (\w+)", RULES.read_text())

    assert [name for name in names if text.count(f'"{name}"') < 2] == []


# -- the process -------------------------------------------------------------------------------------------------------


async def test_a_process_that_is_gone_is_down_and_one_without_a_policy_says_so(
    tmp_path: Path, prometheus: Prometheus
) -> None:
    target = prometheus.target()
    await prometheus.fires(target, "ShipperDown")
    async with launched(tmp_path / "state", "--http", target) as sidecar:
        await sidecar.hello()
        await prometheus.clears(target, "ShipperDown")
        await prometheus.fires(target, "ShipperWithoutPolicy")
        await sidecar.policy(1, "version: 1\n")
        await prometheus.clears(target, "ShipperWithoutPolicy")
        await sidecar.kill()
        await prometheus.fires(target, "ShipperDown")


@pytest.mark.root
async def test_a_full_disk_makes_the_whole_fail(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with small_disk(state, "48m"):
        async with shipping(tmp_path, "a", http=target) as (world, sidecar):
            fill(state / "filler")
            world.write(100_000)
            await prometheus.fires(target, "ShipperFailed")
            (state / "filler").unlink()
            await prometheus.clears(target, "ShipperFailed")
            await sidecar.stop(0)


async def test_a_lapsed_lease_is_an_alert_until_it_is_renewed(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with launched(tmp_path / "state", "--http", target) as sidecar:
        await sidecar.hello(lease=True)
        await prometheus.fires(target, "ShipperLeaseLapsed")
        await sidecar.send({"type": "lease", "until": boottime() + 3600})
        await prometheus.clears(target, "ShipperLeaseLapsed")


# -- credentials and destinations --------------------------------------------------------------------------------------


async def test_a_credential_that_is_refused_and_one_that_is_missing_are_different_alerts(
    tmp_path: Path, prometheus: Prometheus
) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target) as (world, sidecar):
        world.revoke("a")
        world.write(3)
        alert = await prometheus.fires(target, "ShipperCredentialRefused", unit="outputs.main")
        held = prometheus.firing(target, "ShipperOutputHeld")
        await sidecar.send({"type": "credentials", "credentials": {"a": None}})
        missing = await prometheus.fires(target, "ShipperCredentialMissing")
        await prometheus.clears(target, "ShipperCredentialRefused")
        world.grant("a")
        await sidecar.send({"type": "credentials", "credentials": {"a": secret("a")}})
        await prometheus.clears(target, "ShipperCredentialMissing", "ShipperDegraded")
        await world.delivered()

    assert held == []
    assert alert["labels"]["severity"] == "critical"
    assert "lacks 1 credential" in missing["annotations"]["summary"]


async def test_a_destination_that_is_gone_makes_events_late_and_stops_progress(
    tmp_path: Path, prometheus: Prometheus
) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target) as (world, _):
        await world.destination.stop()
        world.write(3)
        for name in ("ShipperDestinationUnreachable", "ShipperDegraded"):
            await prometheus.fires(target, name, unit="outputs.main")
        for name in ("ShipperEventsLate", "ShipperNoProgress"):
            await prometheus.fires(target, name)
        await world.destination.start()
        await prometheus.clears(target, "ShipperDestinationUnreachable", "ShipperDegraded")
        await prometheus.clears(target, "ShipperEventsLate", "ShipperNoProgress")


async def test_an_output_whose_requests_are_refused_waits_for_a_person(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target) as (world, _):
        world.destination.script = lambda request, documents: Reply(status=405)
        world.write(3)
        await prometheus.fires(target, "ShipperOutputHeld", output="main")
        world.destination.script = None
        await prometheus.clears(target, "ShipperOutputHeld")


# -- inputs and the queue ----------------------------------------------------------------------------------------------


async def test_a_queue_without_room_lets_inputs_wait(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target, more="queue: {max_bytes: 64KiB}\n") as (world, _):
        await world.destination.stop()
        world.write(20_000)
        await prometheus.fires(target, "ShipperQueueFull", unit="inputs.access")
        await prometheus.fires(target, "ShipperQueueFillsUp")
        await world.destination.start()
        await prometheus.clears(target, "ShipperQueueFull", "ShipperQueueFillsUp")


# -- what is counted ---------------------------------------------------------------------------------------------------


async def test_what_happens_now_and_then_is_an_alert_for_a_while(tmp_path: Path, prometheus: Prometheus) -> None:
    """All at once, on a host each, since each waits for its while to pass."""
    scenes = (
        events_that_are_rejected,
        events_that_the_disk_has_damaged,
        lines_that_do_not_parse,
        peers_without_room,
        a_drain_that_cannot_end_until_an_order_drops_it,
        a_supervisor_that_cannot_revoke_and_restarts_its_sidecar,
    )
    async with trio.open_nursery() as nursery:
        for number, scene in enumerate(scenes):
            directory = tmp_path / str(number)
            directory.mkdir()
            nursery.start_soon(scene, directory, prometheus)


async def events_that_are_rejected(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target, more="dead_letters: {max_bytes: 16KiB}\n") as (
        world,
        sidecar,
    ):
        world.destination.script = rejecting
        world.write(1000)
        await prometheus.fires(target, "ShipperDeadLetters", output="main")
        await prometheus.fires(target, "ShipperDeadLettersFull")
        world.destination.script = None
        last = (await sidecar.action("dead_letters", list=True))["result"]["dead_letters"][-1]["id"]
        await sidecar.action("dead_letters", delete=last)
        await prometheus.clears(target, "ShipperDeadLetters", "ShipperDeadLettersFull")


async def events_that_the_disk_has_damaged(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with open_world(tmp_path, "a", "b") as world:
        await damage.fill(world)
        path = damage.spool(world)
        with closing(sqlite3.connect(path)) as db:
            (body,) = db.execute("SELECT body FROM batch ORDER BY seq LIMIT 1 OFFSET 2").fetchone()
        damage.flip(path, path.read_bytes().index(body) + len(body) // 2)
        async with launched(world.state, "--http", target) as sidecar:
            await sidecar.hello()
            await sidecar.send({"type": "credentials", "credentials": {"a": secret("a")}})
            await prometheus.fires(target, "ShipperEventsDamaged", output="main")
            await prometheus.clears(target, "ShipperEventsDamaged")


async def lines_that_do_not_parse(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target, more="processors:\n  - {type: parse, format: json}\n") as (
        world,
        _,
    ):
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                while True:
                    world.write(10)
                    await trio.sleep(0.2)

            nursery.start_soon(write)
            await prometheus.fires(target, "ShipperLinesNotParsed", input="access")
            nursery.cancel_scope.cancel()
        await prometheus.clears(target, "ShipperLinesNotParsed")


async def peers_without_room(tmp_path: Path, prometheus: Prometheus) -> None:
    """Datagrams are lost while the process stands still, and connections beyond the limit are closed."""
    target, stream, datagrams = prometheus.target(), free_port(), free_port()
    syslog = "type: syslog, receive_buffer: 4KiB, max_connections: 1"
    inputs = f'  peers: {{{syslog}, addresses: ["tcp://127.0.0.1:{stream}", "udp://127.0.0.1:{datagrams}"]}}\n'
    async with shipping(tmp_path, "a", http=target, inputs=inputs) as (_, sidecar):
        sidecar.process.send_signal(signal.SIGSTOP)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(1000):
                sender.sendto(b"<13>" + b"x" * 1000, ("127.0.0.1", datagrams))
        sidecar.process.send_signal(signal.SIGCONT)
        with socket.create_connection(("127.0.0.1", stream)), socket.create_connection(("127.0.0.1", stream)):
            await prometheus.fires(target, "ShipperPeersTurnedAway", input="peers")
        await prometheus.fires(target, "ShipperDatagramsLost", input="peers")
        await prometheus.clears(target, "ShipperPeersTurnedAway", "ShipperDatagramsLost")


async def a_drain_that_cannot_end_until_an_order_drops_it(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    async with shipping(tmp_path, "a", http=target) as (world, sidecar):
        world.revoke("a")
        world.write(3)
        await sidecar.holds(3)
        world.grant("b")
        await world.offer(sidecar, 2, "b", more=DEADLINE)
        await sidecar.ack(2, "active")
        hangs = await prometheus.fires(target, "ShipperDrainHangs", output="main")
        await prometheus.fires(target, "ShipperDrainPastDeadline")
        result = await sidecar.action("drop", revision=1, output="main")
        await prometheus.fires(target, "ShipperEventsDropped", output="main")
        await prometheus.clears(target, "ShipperDrainHangs", "ShipperDrainPastDeadline", "ShipperEventsDropped")

    assert hangs["labels"]["revision"] == "1"
    assert result["status"] == "SUCCESS"


async def a_supervisor_that_cannot_revoke_and_restarts_its_sidecar(tmp_path: Path, prometheus: Prometheus) -> None:
    target = prometheus.target()
    site = Site(tmp_path, fake_sidecar=False)
    may_revoke = site.directory / "may-revoke"
    script = ["sh", "-c", f"test -e {may_revoke}"]
    config = {"on_release": {"command": script, "timeout": "5s"}, "http": target, "release_when": "at_once"}
    (site.directory / "config.yaml").write_text(json.dumps(config))
    async with site.supervisor():
        first = await site.until("ready")
        await site.until("ack", stage="drained")
        site.replace(site.secret, "k2:hunter3\n")
        await prometheus.fires(target, "ShipperUnrevokedCredentials")
        await prometheus.fires(target, "ShipperSupervisorTrouble", kind="on_release")
        may_revoke.touch()
        await prometheus.clears(target, "ShipperUnrevokedCredentials", "ShipperSupervisorTrouble")
        os.kill(first["pid"], signal.SIGKILL)
        await prometheus.fires(target, "ShipperRestarts")
        await prometheus.clears(target, "ShipperRestarts")


# -- relays ------------------------------------------------------------------------------------------------------------


async def test_both_sides_of_a_relay_miss_each_other(tmp_path: Path, prometheus: Prometheus) -> None:
    above, below = prometheus.target(), prometheus.target()
    async with open_world(tmp_path, "backend") as world:
        relay = Relay(world)
        async with launched(relay.edge_state, "--http", below) as edge:
            await edge.hello()
            await relay.offer_edge(edge, 1, "k1")
            await prometheus.fires(below, "ShipperPrincipalDisconnected", output="up")
            async with launched(relay.principal_state, "--http", above) as principal:
                await principal.hello()
                await relay.offer_principal(principal, 1, "k1")
                await prometheus.clears(below, "ShipperPrincipalDisconnected")
                await edge.kill()
                await prometheus.fires(above, "ShipperEdgeDisconnected", edge="berlin")
                async with launched(relay.edge_state) as again:
                    await again.hello()
                    await again.policy(1, relay.of_edge("k1"), {"k1": secret("k1")})
                    await prometheus.clears(above, "ShipperEdgeDisconnected")
