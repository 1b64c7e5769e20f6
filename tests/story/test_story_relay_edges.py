"""Two edges of one principal whose policy changes while they are connected, and whose keys have the same names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from shipper_demo.ports import free_port
from tests.campaign_relay.writers import put
from tests.story.driver import Message, Sidecar, policy
from tests.story.test_story_relay import PACE, Relay, empty, open_relay, running
from tests.story.world import key, secret

THINGS = {"collections": ["things"]}


class Edges:
    """Edges with a door each, at which a program puts keys, and their principal."""

    def __init__(self, relay: Relay, door: Sidecar) -> None:
        self.relay, self.door = relay, door
        self.doors = {"berlin": free_port(), "paris": free_port()}
        self._revision = 0

    async def offer(self, *names: str, mode: str = "stored", collections: Sequence[str] = ("things",)) -> None:
        """A policy of the principal for these edges; each has a credential of its name."""
        self._revision += 1
        edges = {name: {"credentials": [name], "collections": list(collections)} for name in names}
        where = f'address: "127.0.0.1:{self.relay.ports[0]}", acknowledge: {mode}'
        inputs = f"  edges: {{type: relay, {where}, edges: {json.dumps(edges)}}}\n"
        text = policy(url=self.relay.world.destination.url, credential="backend", inputs=inputs)
        await self.door.policy(self._revision, text, {id: secret(id) for id in (*names, "backend")})
        await self.door.ack(self._revision, "active")

    async def offer_edge(self, edge: Sidecar, name: str, revision: int = 1) -> None:
        """The edge reads the log, if it is berlin."""
        inputs = f'  access: {{type: file, paths: ["{self.relay.world.log}"]}}\n' if name == "berlin" else ""
        who = f"{{local: {{credentials: [local], {json.dumps(THINGS)[1:-1]}}}}}"
        inputs += f'  door: {{type: relay, address: "127.0.0.1:{self.doors[name]}", edges: {who}}}\n'
        hosts = f'["http://127.0.0.1:{self.relay.ports[0]}"]'
        outputs = f"  up: {{type: relay, name: {name}, hosts: {hosts}, credential: {name}, {PACE}}}\n"
        text = policy(inputs=inputs, outputs=outputs)
        await edge.policy(revision, text, {id: secret(id) for id in (name, "local")})
        await edge.ack(revision, "active")

    async def put(self, name: str, thing: str, n: int) -> None:
        assert await put(self.doors[name], key("local"), "PUT", f"things/{thing}", b'{"n":%d}' % n) == 200

    async def delete(self, name: str, thing: str) -> None:
        assert await put(self.doors[name], key("local"), "DELETE", f"things/{thing}", b"") == 200

    def arrived(self) -> dict[tuple[str, str], int | None]:
        """By owner and key, what the backend has; None if it is deleted."""
        index = self.relay.world.destination.documents.get("state-things", {})
        found = {}
        for source in list(index.values()):
            document = json.loads(source)
            says = document["shipper"]
            found[says["owner"], says["key"]] = None if says["deleted"] else document["n"]
        return found

    async def agreed(self, wanted: dict[tuple[str, str], int | None]) -> None:
        with trio.move_on_after(60):
            await self.relay.world.destination.wait_until(lambda: self.arrived() == wanted)
        assert self.arrived() == wanted

    def lines(self) -> list[int]:
        events = self.relay.world.destination.events
        return sorted(int(event["message"].split()[1]) for event in events if "message" in event)

    async def delivered(self) -> None:
        with trio.move_on_after(60):
            await self.relay.world.destination.wait_until(lambda: len(self.lines()) >= self.relay.world.lines)
        assert self.lines() == list(range(self.relay.world.lines))


@asynccontextmanager
async def open_edges(directory: Path) -> AsyncIterator[tuple[Edges, Sidecar, Sidecar]]:
    async with (
        open_relay(directory) as relay,
        running(relay.principal_state) as door,
        running(directory / "berlin") as berlin,
        running(directory / "paris") as paris,
    ):
        edges = Edges(relay, door)
        await edges.offer_edge(berlin, "berlin")
        await edges.offer_edge(paris, "paris")
        yield edges, berlin, paris


def is_degraded(observed: Message) -> bool:
    return bool(observed["state"] == "DEGRADED")


@pytest.mark.parametrize("mode", ["stored", "delivered"])
async def test_an_edge_that_is_removed_while_it_is_connected_and_added_again_loses_nothing(
    tmp_path: Path, mode: str
) -> None:
    async with open_edges(tmp_path) as (edges, berlin, paris):
        relay = edges.relay
        await edges.offer("berlin", "paris", mode=mode)
        relay.world.write(100)
        await edges.put("berlin", "a", 1)
        await edges.agreed({("berlin/local", "a"): 1})
        await edges.delivered()
        relay.world.revoke("backend")
        relay.world.write(100)
        await edges.door.holds(100)
        await edges.offer("paris", mode=mode)
        relay.world.write(100)
        await edges.put("berlin", "a", 2)
        await edges.put("paris", "a", 7)
        await berlin.state(lambda observed: is_degraded(observed) and observed["queue"]["events"] > 100)
        relay.world.grant("backend")
        await edges.agreed({("berlin/local", "a"): 1, ("paris/local", "a"): 7})
        await empty(edges.door)
        await edges.offer("berlin", "paris", mode=mode)
        await edges.agreed({("berlin/local", "a"): 2, ("paris/local", "a"): 7})
        await edges.delivered()
        for one in (berlin, paris, edges.door):
            await empty(one)
            await one.state(lambda observed: observed["state"] == "HEALTHY")


async def test_keys_of_one_name_at_two_edges_are_two_keys(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as (edges, berlin, paris):
        await edges.offer("berlin", "paris")
        for n in range(3):
            await edges.put("berlin", "a", n)
            await edges.put("paris", "a", 10 + n)
        await edges.agreed({("berlin/local", "a"): 2, ("paris/local", "a"): 12})
        await edges.delete("berlin", "a")
        await edges.agreed({("berlin/local", "a"): None, ("paris/local", "a"): 12})
        await empty(berlin)
        await empty(paris)


async def test_a_collection_that_is_taken_away_and_given_back_has_the_last_word_of_each_key(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as (edges, berlin, _):
        await edges.offer("berlin", "paris")
        await edges.put("berlin", "a", 1)
        await edges.agreed({("berlin/local", "a"): 1})
        await edges.offer("berlin", "paris", collections=[])
        await edges.put("berlin", "a", 2)
        await edges.put("berlin", "b", 1)
        await berlin.state(lambda observed: observed["dead_letters"]["events"] == 2)
        await edges.offer("berlin", "paris")
        await edges.put("berlin", "c", 1)
        await berlin.kill()
        async with running(tmp_path / "berlin") as berlin:
            await edges.offer_edge(berlin, "berlin", 2)
            await edges.agreed({("berlin/local", "a"): 2, ("berlin/local", "b"): 1, ("berlin/local", "c"): 1})
            await empty(berlin)


async def _offer_directory(edges: Edges, revision: int, directory: Path, more: str, log: str = "") -> None:
    """A policy of the principal that keeps state in a directory, and perhaps log events elsewhere."""
    where = f'address: "127.0.0.1:{edges.relay.ports[0]}"{more}'
    inputs = f"  edges: {{type: relay, {where}, edges: {{berlin: {{credentials: [berlin], collections: [things]}}}}}}\n"
    outputs = f"  shelf: {{type: file, directory: {directory}}}\n{log}"
    await edges.door.policy(revision, policy(inputs=inputs, outputs=outputs), {"berlin": secret("berlin")})


async def _holds(path: Path, has: Callable[[Path], bool]) -> None:
    with trio.fail_after(60):
        while not await trio.to_thread.run_sync(has, path):  # noqa: ASYNC110 (another process writes it)
            await trio.sleep(0.05)


async def test_a_principal_keeps_the_state_of_a_door_in_a_directory_and_its_log_events_elsewhere(
    tmp_path: Path,
) -> None:
    shelf, log = tmp_path / "shelf", tmp_path / "log"
    async with open_edges(tmp_path) as (edges, berlin, _):
        await _offer_directory(edges, 1, shelf, "")
        (error,) = (await edges.door.nack(1))["errors"]
        await _offer_directory(edges, 2, shelf, ", events: state")
        await edges.door.ack(2, "active")
        edges.relay.world.write(3)
        await edges.put("berlin", "a", 1)
        await _holds(shelf / "berlin%2Flocal" / "things" / "a.json", Path.exists)
        held = await berlin.state(lambda observed: "no_events" in json.dumps(observed["units"]))
        await _offer_directory(edges, 3, shelf, "", f"  log: {{type: file, path: {log}}}\n")
        await edges.door.ack(3, "active")
        await _holds(log, lambda path: path.exists() and path.read_bytes().count(b"\n") == 3)
        await empty(berlin)

    assert "this input gives log events, which outputs.shelf (file) does not take" in error["message"]
    assert held["queue"]["events"] == 3
