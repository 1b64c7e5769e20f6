"""What a resync of keyed state costs on the wire between two real shippers, counted by a proxy."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

from tests.campaign_relay.link import Link
from tests.story.driver import Sidecar, policy
from tests.story.test_story_relay import PACE, Relay, copied, empty, open_relay, running
from tests.story.world import secret

KEYS = 1000
"""A resync of equal sets costs the same for any number."""
DOCUMENT = 200
"""Bytes of each."""


class Inventory:
    """Documents of an edge that go to a principal over a link that counts."""

    def __init__(self, relay: Relay, link: Link, keys: int) -> None:
        self.relay, self.link, self.keys = relay, link, keys
        self.path = relay.world.directory / "inventory"
        self.path.mkdir()
        self.changed = 0
        for n in range(keys):
            self.write(n)

    def write(self, n: int) -> None:
        """Its document is new each time, and cannot be compressed to nothing."""
        self.changed += 1
        text = Random(self.changed).randbytes(DOCUMENT // 2).hex()
        (self.path / f"k{n}.json").write_text(json.dumps({"n": self.changed, "text": text}))

    async def offer_edge(self, sidecar: Sidecar, revision: int = 1) -> None:
        hosts = f'["http://127.0.0.1:{self.link.port}"]'
        text = policy(
            inputs=f'  things: {{type: state, paths: ["{self.path}/*.json"], collection: inventory}}\n',
            outputs=f"  up: {{type: relay, name: berlin, hosts: {hosts}, credential: k1, {PACE}}}\n",
        )
        await sidecar.policy(revision, text, {"k1": secret("k1")})
        await sidecar.ack(revision, "active")

    async def offer_principal(self, sidecar: Sidecar, revision: int = 1) -> None:
        edges = "{berlin: {credentials: [k1], collections: [inventory]}}"
        inputs = f'  edges: {{type: relay, address: "127.0.0.1:{self.relay.ports[0]}", edges: {edges}}}\n'
        text = policy(url=self.relay.world.destination.url, credential="backend", inputs=inputs)
        await sidecar.policy(revision, text, {id: secret(id) for id in ("k1", "backend")})
        await sidecar.ack(revision, "active")

    def arrived(self) -> set[int]:
        index = self.relay.world.destination.documents.get("state-inventory", {})
        return {json.loads(document)["n"] for document in list(index.values())}

    async def agreed(self) -> None:
        """The backend has what the directory has."""
        wanted = {json.loads(path.read_bytes())["n"] for path in self.path.iterdir()}
        with trio.fail_after(60 + self.keys / 500):
            await self.relay.world.destination.wait_until(lambda: self.arrived() == wanted)


@asynccontextmanager
async def open_inventory(directory: Path, keys: int) -> AsyncIterator[Inventory]:
    async with open_relay(directory) as relay, trio.open_nursery() as nursery:
        link = Link(Random(1), relay.ports[0])
        await nursery.start(link.serve)
        yield Inventory(relay, link, keys)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def both(inventory: Inventory, revision: int) -> AsyncIterator[tuple[Sidecar, Sidecar]]:
    """The principal and the edge run, and no byte was counted before."""
    relay = inventory.relay
    async with running(relay.principal_state) as door, running(relay.edge_state) as edge:
        await inventory.offer_principal(door, revision)
        inventory.link.forget()
        await inventory.offer_edge(edge, revision)
        yield door, edge
        await edge.stop()
        await door.stop()


async def compared(link: Link) -> None:
    """Both sides have been compared, and nothing is asked any more."""
    with trio.fail_after(60):
        while not link.asked["compare"] or link.answered < link.asked.total():  # noqa: ASYNC110
            await trio.sleep(0.05)


async def test_a_resync_costs_a_few_kilobytes_for_unchanged_keys_and_about_a_document_for_each_changed_one(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "copy"
    async with open_inventory(tmp_path, KEYS) as inventory:
        link, state = inventory.link, inventory.relay.principal_state
        async with both(inventory, 1) as (_, edge):
            await inventory.agreed()
            await empty(edge)
            first = link.passed
        copied(state, copy)
        async with both(inventory, 2) as (_, edge):
            await compared(link)
            unchanged = link.passed
            for n in range(10):
                inventory.write(n * 7)
            await inventory.agreed()
            await empty(edge)
        copied(copy, state)
        async with both(inventory, 3) as (_, edge):
            await compared(link)
            await edge.state(lambda observed: observed["units"][1]["figures"]["state_sent_again"] == 10)
            await empty(edge)
            await compared(link)
            changed = link.passed

    assert first > KEYS * DOCUMENT / 2
    assert unchanged < 4096
    assert changed < unchanged + 10 * (DOCUMENT + 1200)
