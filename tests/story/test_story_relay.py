"""Two real shippers, one of which relays to the other: every event is at the backend once, under the id of its edge."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from shipper_demo.ports import free_port
from tests.story.driver import Message, Sidecar, launched, policy
from tests.story.world import World, open_world, secret

PACE = "backoff: {first: 50ms, longest: 200ms}"


class Relay:
    """An edge's directory, a principal's, and what their policies say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ports = [free_port()]
        self.edge_state, self.principal_state = world.directory / "edge", world.directory / "principal"

    def of_edge(self, credential: str) -> str:
        hosts = json.dumps([f"http://127.0.0.1:{port}" for port in self.ports])
        output = f"  up: {{type: relay, name: berlin, hosts: {hosts}, credential: {credential}, {PACE}}}\n"
        return policy(paths=str(self.world.log), outputs=output)

    def of_principal(
        self,
        *keys: str,
        port: int | None = None,
        outputs: str | None = None,
        mode: str = "acknowledge: stored",
        backend: str = "backend",
    ) -> str:
        edges = f"{{berlin: {{credentials: [{', '.join(keys)}]}}}}"
        address = f"127.0.0.1:{port or self.ports[0]}"
        inputs = f'  edges: {{type: relay, address: "{address}", edges: {edges}, {mode}}}\n'
        return policy(url=self.world.destination.url, credential=backend, inputs=inputs, outputs=outputs)

    async def offer_edge(self, sidecar: Sidecar, revision: int, credential: str) -> None:
        await sidecar.policy(revision, self.of_edge(credential), {credential: secret(credential)})
        await sidecar.ack(revision, "active")

    async def offer_principal(self, sidecar: Sidecar, revision: int, *keys: str, **how: Any) -> None:
        ids = keys if "outputs" in how else (*keys, how.get("backend", "backend"))
        await sidecar.policy(revision, self.of_principal(*keys, **how), {id: secret(id) for id in ids})
        await sidecar.ack(revision, "active")

    async def delivered(self) -> None:
        """Every line is at the backend, under one id."""
        await self.world.delivered(60)


@asynccontextmanager
async def open_relay(directory: Path) -> AsyncIterator[Relay]:
    async with open_world(directory, "backend") as world:
        yield Relay(world)


@asynccontextmanager
async def running(state: Path) -> AsyncIterator[Sidecar]:
    async with launched(state) as sidecar:
        await sidecar.hello()
        yield sidecar


async def empty(*sidecars: Sidecar) -> None:
    for sidecar in sidecars:
        await sidecar.holds(0)


def copied(source: Path, target: Path) -> None:
    """Replaces a state directory, as a backup or a snapshot of the disk does."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


async def test_t117_2_a_principal_that_is_killed_again_and_again_loses_nothing_and_takes_nothing_twice(
    tmp_path: Path,
) -> None:
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        await relay.offer_edge(edge, 1, "k1")
        for revision in range(1, 4):
            async with running(relay.principal_state) as door:
                await relay.offer_principal(door, revision, "k1")
                before = relay.world.destination.total
                relay.world.write(2000)
                await relay.world.destination.wait_until(lambda before=before: relay.world.destination.total > before)
                await door.kill()
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 4, "k1")
            await relay.delivered()
            await empty(edge)
            await door.stop()
        await edge.stop()


async def test_t117_2_what_was_stored_and_not_answered_does_not_enter_again(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, open_proxy(relay.ports[0]) as proxy, running(relay.edge_state) as edge:
        relay.world.revoke("backend")
        direct, relay.ports[0] = relay.ports[0], proxy.port
        await relay.offer_edge(edge, 1, "k1")
        relay.world.write(1000)
        for revision in range(1, 4):
            async with running(relay.principal_state) as door:
                proxy.lose_answer = True
                await relay.offer_principal(door, revision, "k1", port=direct)
                await proxy.lost.wait()
                proxy.lost = trio.Event()
                relay.world.write(100)
                await door.kill()
            await edge.holds(relay.world.lines)  # all are read, none has its answer
        proxy.lose_answer = False
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 4, "k1", port=direct)
            await empty(edge)
            held = (await door.observe())["queue"]["events"]
            relay.world.grant("backend")
            await relay.delivered()

    assert held == relay.world.lines


class Proxy:
    """Between an edge and its principal; made by `open_proxy`."""

    def __init__(self, port: int, to: int) -> None:
        self.port, self._to = port, to
        self.lose_answer = False
        """Whether the next answer to parts is lost, and all after it, until a new connection is made."""
        self.lost = trio.Event()
        self._open: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """End every connection of now."""
        for scope in self._open:
            scope.cancel()

    async def serve(self, near: trio.SocketStream) -> None:
        try:
            async with near, await trio.open_tcp_stream("127.0.0.1", self._to) as far, trio.open_nursery() as nursery:
                self._open.add(nursery.cancel_scope)
                nursery.start_soon(self._pass, near, far, nursery.cancel_scope)
                nursery.start_soon(self._pass, far, near, nursery.cancel_scope)
        except (OSError, trio.BrokenResourceError):
            pass

    async def _pass(self, source: trio.SocketStream, to: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError):
            async for data in source:
                if self.lose_answer and b'"confirmed":[' in data and b'"confirmed":[]' not in data:
                    self.lost.set()
                    break
                await to.send_all(data)
        scope.cancel()


@asynccontextmanager
async def open_proxy(to: int) -> AsyncIterator[Proxy]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy = Proxy(listener.socket.getsockname()[1], to)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, proxy.serve, [listener])
        yield proxy
        nursery.cancel_scope.cancel()


async def test_t117_2_events_whose_backend_is_down_survive_both_processes(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay:
        relay.world.revoke("backend")
        async with running(relay.principal_state) as door, running(relay.edge_state) as edge:
            await relay.offer_principal(door, 1, "k1")
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(300)
            await door.holds(300)
            await empty(edge)
            await edge.kill()
            await door.kill()
        relay.world.grant("backend")
        async with running(relay.principal_state) as door, running(relay.edge_state) as edge:
            await relay.offer_principal(door, 2, "k1")
            await relay.offer_edge(edge, 2, "k1")
            await relay.delivered()


async def test_t117_9_an_edge_that_is_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.principal_state) as door:
        await relay.offer_principal(door, 1, "k1")
        for revision in range(1, 3):
            async with running(relay.edge_state) as edge:
                await relay.offer_edge(edge, revision, "k1")
                before = relay.world.destination.total
                relay.world.write(2000)
                await relay.world.destination.wait_until(lambda before=before: relay.world.destination.total > before)
                await edge.kill()
        async with running(relay.edge_state) as edge:
            await relay.offer_edge(edge, 3, "k1")
            await relay.delivered()
            await empty(edge)


async def test_a2_what_was_written_before_the_first_connection_arrives(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay:
        async with running(relay.edge_state) as edge:
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(500)
            await edge.holds(500)
            await edge.kill()
        async with running(relay.edge_state) as edge, running(relay.principal_state) as door:
            await relay.offer_edge(edge, 2, "k1")
            relay.world.write(500)
            await relay.offer_principal(door, 1, "k1")
            await relay.delivered()
            await empty(edge)


async def test_ids_survive_two_hops_and_a_kill_in_the_middle(tmp_path: Path) -> None:
    far = free_port()
    onwards = f'  on: {{type: relay, name: middle, hosts: ["http://127.0.0.1:{far}"], credential: k2, {PACE}}}\n'
    edges = "edges: {middle: {credentials: [k2], relays: true}}"
    text = f'  edges: {{type: relay, address: "127.0.0.1:{far}", {edges}}}\n'
    async with open_relay(tmp_path) as relay, running(tmp_path / "far") as last, running(relay.edge_state) as edge:
        last_policy = policy(url=relay.world.destination.url, credential="backend", inputs=text)
        await last.policy(1, last_policy, {"k2": secret("k2"), "backend": secret("backend")})
        await last.ack(1, "active")
        await relay.offer_edge(edge, 1, "k1")
        for revision in (1, 2):
            async with running(relay.principal_state) as middle:
                middle_policy = relay.of_principal("k1", outputs=onwards)
                await middle.policy(revision, middle_policy, {"k1": secret("k1"), "k2": secret("k2")})
                await middle.ack(revision, "active")
                relay.world.write(2000)
                if revision == 1:
                    await relay.world.destination.wait_until(lambda: relay.world.destination.total > 0)
                    await middle.kill()
                else:
                    await relay.delivered()
                    await empty(edge, middle)
        origins = {id[:22] for index in relay.world.destination.documents.values() for id in index}

    assert len(origins) == 1


async def test_a_credential_of_an_edge_is_rotated_and_revoked_in_the_instant_of_drained(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.principal_state) as door, running(relay.edge_state) as edge:
        await relay.offer_principal(door, 1, "k1", "k2")
        await relay.offer_edge(edge, 1, "k1")
        relay.world.write(3000)
        drained: list[Message] = []

        async with trio.open_nursery() as nursery:

            async def revoke() -> None:
                drained.append(await edge.ack(2, "drained"))
                await relay.offer_principal(door, 2, "k2")

            nursery.start_soon(revoke)
            await relay.offer_edge(edge, 2, "k2")
            relay.world.write(3000)
        await relay.delivered()
        await empty(edge)
        observed = await edge.observe()

    assert drained[0]["credentials"] == {"in_use": ["k2"], "released": ["k1"]}
    assert drained[0]["ledger"]["accepted"] == drained[0]["ledger"]["delivered"]
    assert observed["state"] == "HEALTHY"


async def test_the_next_principal_takes_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        relay.ports.append(free_port())
        await relay.offer_edge(edge, 1, "k1")
        for number, port in enumerate(relay.ports):
            async with running(tmp_path / f"principal-{number}") as door:
                await relay.offer_principal(door, 1, "k1", port=port)
                relay.world.write(200)
                await relay.delivered()
                await empty(edge)
                await door.stop()


DELIVERED = "acknowledge: delivered"


async def test_while_a_credential_is_changed_an_edge_relays_to_one_principal(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge, running(tmp_path / "second") as second:
        relay.world.revoke("backend")
        relay.ports.append(free_port())
        await relay.offer_principal(second, 1, "k1", "k2", port=relay.ports[1], mode=DELIVERED)
        await relay.offer_edge(edge, 1, "k1")
        relay.world.write(300)
        await second.holds(300)
        async with running(tmp_path / "first") as first:
            await relay.offer_principal(first, 1, "k1", "k2", mode=DELIVERED)
            await relay.offer_edge(edge, 2, "k2")
            relay.world.write(100)
            await second.holds(400)
            never = (await first.observe())["edges"][0]
            relay.world.grant("backend")
            await relay.delivered()
            await edge.ack(2, "drained")
            await empty(edge)

    assert never["heard_seconds"] is None


async def test_t117_4_an_edge_does_not_drain_before_the_backend_has_its_events(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        relay.world.revoke("backend")
        drained: list[Message] = []
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 1, "k1", "k2", mode=DELIVERED)
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(300)
            await door.holds(300)
            await relay.offer_edge(edge, 2, "k2")
            observed = await edge.observe()
            await door.kill()
        async with running(relay.principal_state) as door, trio.open_nursery() as nursery:

            async def drain() -> None:
                drained.append(await edge.ack(2, "drained"))

            nursery.start_soon(drain)
            await relay.offer_principal(door, 2, "k1", "k2", mode=DELIVERED)
            relay.world.write(300)
            await door.holds(600)
            assert drained == []
            relay.world.grant("backend")
            await relay.delivered()
            await empty(edge)

    assert observed["queue"]["events"] == 300
    assert drained[0]["credentials"] == {"in_use": ["k2"], "released": ["k1"]}
    assert drained[0]["ledger"]["accepted"] == drained[0]["ledger"]["delivered"] == 300


async def test_t117_4_answers_survive_kills_of_both_sides_and_a_rotation_at_the_principal(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay:
        for round in range(1, 4):
            async with running(relay.principal_state) as door, running(relay.edge_state) as edge:
                await relay.offer_principal(door, 2 * round - 1, "k1", mode=DELIVERED)
                await relay.offer_edge(edge, round, "k1")
                before = relay.world.destination.total
                relay.world.write(2000)
                await relay.world.destination.wait_until(lambda before=before: relay.world.destination.total > before)
                text = relay.of_principal("k1", mode=DELIVERED, backend=f"backend-{round}")
                relay.world.grant(f"backend-{round}")
                await door.policy(2 * round, text, {id: secret(id) for id in ("k1", f"backend-{round}")})
                await door.ack(2 * round, "drained")
                await (door if round % 2 else edge).kill()
        async with running(relay.principal_state) as door, running(relay.edge_state) as edge:
            await relay.offer_principal(door, 7, "k1", mode=DELIVERED)
            await relay.offer_edge(edge, 4, "k1")
            await relay.delivered()
            await empty(edge)


async def test_t117_4_a_dead_letter_of_the_principal_counts_at_both_and_is_written_there_alone(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.principal_state) as door, running(relay.edge_state) as edge:
        relay.world.revoke("backend")
        await relay.offer_principal(door, 1, "k1", "k2", mode=DELIVERED)
        await relay.offer_edge(edge, 1, "k1")
        relay.world.write(50)
        await door.holds(50)
        await relay.offer_edge(edge, 2, "k2")
        await relay.offer_principal(door, 2, "k1", "k2", mode=DELIVERED, backend="other")
        await door.action("dead_letter", revision=1)
        drained = await edge.ack(2, "drained")
        listed = [await one.action("dead_letters", list=True) for one in (edge, door)]
        letters = [len(each["result"]["dead_letters"]) for each in listed]

    assert (drained["ledger"]["dead_letter"], letters) == (50, [0, 50])


async def test_t117_4_the_answer_of_the_backend_passes_two_hops(tmp_path: Path) -> None:
    far = free_port()
    onwards = f'  on: {{type: relay, name: middle, hosts: ["http://127.0.0.1:{far}"], credential: k2, {PACE}}}\n'
    edges = "edges: {middle: {credentials: [k2], relays: true}}"
    text = f'  edges: {{type: relay, address: "127.0.0.1:{far}", {edges}, {DELIVERED}}}\n'
    async with open_relay(tmp_path) as relay, running(tmp_path / "far") as last, running(relay.edge_state) as edge:
        relay.world.revoke("backend")
        last_policy = policy(url=relay.world.destination.url, credential="backend", inputs=text)
        await last.policy(1, last_policy, {"k2": secret("k2"), "backend": secret("backend")})
        await last.ack(1, "active")
        async with running(relay.principal_state) as middle:
            middle_policy = relay.of_principal("k1", outputs=onwards, mode=DELIVERED)
            await middle.policy(1, middle_policy, {"k1": secret("k1"), "k2": secret("k2")})
            await middle.ack(1, "active")
            await relay.offer_edge(edge, 1, "k1")
            relay.world.write(100)
            await last.holds(100)
            waiting = [(await one.observe())["queue"]["events"] for one in (edge, middle)]
            relay.world.grant("backend")
            await relay.delivered()
            await empty(edge, middle)

    assert waiting == [100, 100]


async def test_t117_3_a_principal_that_went_back_is_reported_and_events_go_on(tmp_path: Path) -> None:
    async with open_relay(tmp_path) as relay, running(relay.edge_state) as edge:
        await relay.offer_edge(edge, 1, "k1")
        for revision in (1, 2):
            async with running(relay.principal_state) as door:
                await relay.offer_principal(door, revision, "k1")
                relay.world.write(100)
                await relay.delivered()
                await empty(edge)
                await door.stop()
            if revision == 1:
                copied(relay.principal_state, tmp_path / "copy")
        copied(tmp_path / "copy", relay.principal_state)
        async with running(relay.principal_state) as door:
            await relay.offer_principal(door, 2, "k1")
            relay.world.write(100)
            await relay.delivered()
            observed = await edge.holds(0)
            [up] = [unit for unit in observed["units"] if unit["id"] == "outputs.up"]

    assert (up["state"], up["code"]) == ("DEGRADED", "principal_went_back")
    assert "log events at the places" in up["message"]
