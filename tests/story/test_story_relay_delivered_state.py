"""Keyed state in the mode `delivered`, with real shippers: a barrier of an edge waits for its principal's backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import trio

from shipper.testing import Reply
from shipper_demo.ports import free_port
from tests.campaign_relay.writers import put
from tests.story.driver import Message, Sidecar
from tests.story.test_story_relay import PACE, running
from tests.story.world import World, key, open_world, secret

COLLECTION = "things"
DELIVERED = "acknowledge: delivered"


class Site:
    """A program puts keys at an edge, which relays them to a principal, which writes them to a backend."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.edge_state, self.principal_state = world.directory / "edge", world.directory / "principal"
        self.door, self.up = free_port(), free_port()

    async def offer_edge(self, sidecar: Sidecar, revision: int, credential: str) -> None:
        text = _policy(_door(self.door, "local", "p"), _relay("up", self.up, credential))
        await sidecar.policy(revision, text, {id: secret(id) for id in ("p", credential)})
        await sidecar.ack(revision, "active")

    async def offer_principal(self, sidecar: Sidecar, revision: int, *backends: str, port: int | None = None) -> None:
        outputs = "".join(
            f'  {name}: {{type: elasticsearch, hosts: ["{self.world.destination.url}"], credential: {name},'
            f' state_index: "{name}-{{collection}}", backoff: {{first: 50ms, longest: 200ms}}}}\n'
            for name in backends
        )
        text = _policy(_door(port or self.up, "berlin", "k1", "k2", mode=DELIVERED), outputs)
        await sidecar.policy(revision, text, {id: secret(id) for id in ("k1", "k2", *backends)})
        await sidecar.ack(revision, "active")

    async def put(self, *keys: str, n: int) -> None:
        """Each is durable at the edge when this returns."""
        for name in keys:
            assert await put(self.door, key("p"), "PUT", f"{COLLECTION}/{name}", b'{"n":%d}' % n) == 200

    def arrived(self, backend: str = "backend") -> dict[str, int]:
        """By key, the numbers at the backend."""
        index = self.world.destination.documents.get(f"{backend}-{COLLECTION}", {})
        return {id.rpartition(":")[2]: orjson.loads(document)["n"] for id, document in list(index.items())}

    async def has(self, backend: str = "backend", **numbers: int) -> None:
        with trio.fail_after(60):
            await self.world.destination.wait_until(lambda: self.arrived(backend) == numbers)


def _door(port: int, edge: str, *keys: str, mode: str = "acknowledge: stored") -> str:
    edges = f"{{{edge}: {{credentials: [{', '.join(keys)}], collections: [{COLLECTION}]}}}}"
    return f'  door: {{type: relay, address: "127.0.0.1:{port}", edges: {edges}, {mode}}}\n'


def _relay(output: str, port: int, credential: str) -> str:
    hosts = f'["http://127.0.0.1:{port}"]'
    return f"  {output}: {{type: relay, name: berlin, hosts: {hosts}, credential: {credential}, {PACE}}}\n"


def _policy(inputs: str, outputs: str) -> str:
    return f"version: 1\ninputs:\n{inputs}outputs:\n{outputs}"


@asynccontextmanager
async def both(site: Site) -> AsyncIterator[tuple[Sidecar, Sidecar]]:
    """The principal and the edge."""
    async with running(site.principal_state) as principal, running(site.edge_state) as edge:
        yield principal, edge


@asynccontextmanager
async def open_site(directory: Path, *backends: str) -> AsyncIterator[Site]:
    async with open_world(directory, *backends) as world:
        yield Site(world)


async def test_t117_4_an_edge_does_not_drain_before_the_backend_has_its_documents_whoever_is_killed(
    tmp_path: Path,
) -> None:
    drained: list[Message] = []
    async with open_site(tmp_path) as site:
        async with both(site) as (principal, edge):
            await site.offer_principal(principal, 1, "backend")
            await site.offer_edge(edge, 1, "k1")
            await site.put("a", "b", n=1)
            await principal.holds(2)
            await site.offer_edge(edge, 2, "k2")
            await principal.kill()
            async with running(site.principal_state) as principal:
                await site.offer_principal(principal, 2, "backend")
                await site.put("c", n=1)
                await principal.holds(3)
                await edge.holds(3)
                await edge.kill()
        async with both(site) as (principal, edge):
            await site.offer_principal(principal, 3, "backend")
            await site.offer_edge(edge, 3, "k2")
            await edge.send({"type": "credentials", "credentials": {"k1": secret("k1")}})
            async with trio.open_nursery() as nursery:

                async def drain() -> None:
                    drained.append(await edge.ack(3, "drained"))

                nursery.start_soon(drain)
                await site.put("c", n=2)
                await principal.holds(3)
                assert drained == []
                site.world.grant("backend")
                await site.has(a=1, b=1, c=2)
            await edge.holds(0)

    assert drained[0]["credentials"] == {"in_use": ["k2", "p"], "released": ["k1"]}
    assert drained[0]["confirms"] == "delivered"
    ledger = drained[0]["ledger"]
    assert (ledger["accepted"], ledger["delivered"] + ledger["superseded"]) == (2, 2)


async def test_t117_4_a_document_that_the_backend_refuses_counts_as_a_dead_letter_at_both(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, both(site) as (principal, edge):
        site.world.destination.script = lambda request, documents: Reply(items={0: (400, "mapper_parsing_exception")})
        await site.offer_principal(principal, 1, "backend")
        await site.offer_edge(edge, 1, "k1")
        await site.put("a", n=1)
        await principal.holds(1)
        await site.offer_edge(edge, 2, "k2")
        site.world.grant("backend")
        drained = await edge.ack(2, "drained")
        listed = [await one.action("dead_letters", list=True) for one in (edge, principal)]

    assert (drained["ledger"]["accepted"], drained["ledger"]["dead_letter"]) == (1, 1)
    assert [len(each["result"]["dead_letters"]) for each in listed] == [0, 1]


async def test_t117_4_what_an_order_drops_at_the_principal_is_dropped_for_the_edge(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, both(site) as (principal, edge):
        await site.offer_principal(principal, 1, "backend")
        await site.offer_edge(edge, 1, "k1")
        await site.put("a", n=1)
        await principal.holds(1)
        await site.offer_edge(edge, 2, "k2")
        await site.offer_principal(principal, 2, "other")
        await principal.action("drop", revision=1)
        drained = await edge.ack(2, "drained")

    assert (drained["ledger"]["accepted"], drained["ledger"]["dropped"]) == (1, 1)


async def test_t117_4_two_outputs_answer_both_before_an_edge_hears_of_it(tmp_path: Path) -> None:
    async with open_site(tmp_path, "backend") as site, both(site) as (principal, edge):
        await site.offer_principal(principal, 1, "backend", "other")
        await site.offer_edge(edge, 1, "k1")
        await site.put("a", "b", n=1)
        await site.has(a=1, b=1)
        await edge.holds(2)
        await site.put("a", n=2)
        await site.has(a=2, b=1)
        before = (await edge.observe())["queue"]["events"]
        site.world.grant("other")
        await site.has("other", a=2, b=1)
        await edge.holds(0)

    assert before == 2


async def test_t117_4_a_newer_version_under_another_credential_ends_the_wait_for_an_older_one(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site, both(site) as (principal, edge):
        await site.offer_principal(principal, 1, "backend")
        await site.offer_edge(edge, 1, "k1")
        await site.put("a", n=1)
        await principal.holds(1)
        await site.offer_edge(edge, 2, "k2")
        await site.put("a", n=2)
        drained = await edge.ack(2, "drained", seconds=60)
        site.world.grant("backend")
        await site.has(a=2)
        await edge.holds(0)

    assert drained["credentials"] == {"in_use": ["k2", "p"], "released": ["k1"]}
    assert (drained["ledger"]["accepted"], drained["ledger"]["superseded"]) == (1, 1)


async def test_t117_4_the_answer_of_the_backend_for_a_document_passes_two_hops(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        far = free_port()
        text = _policy(_door(site.up, "berlin", "k1", mode=DELIVERED), _relay("on", far, "k2"))
        async with (
            running(tmp_path / "far") as last,
            running(site.principal_state) as middle,
            running(site.edge_state) as edge,
        ):
            await site.offer_principal(last, 1, "backend", port=far)
            await middle.policy(1, text, {id: secret(id) for id in ("k1", "k2")})
            await middle.ack(1, "active")
            await site.offer_edge(edge, 1, "k1")
            await site.put("a", n=1)
            await last.holds(1)
            waiting = [(await one.observe())["queue"]["events"] for one in (edge, middle)]
            site.world.grant("backend")
            await site.has(a=1)
            await edge.holds(0)
            await middle.holds(0)

    assert waiting == [1, 1]
