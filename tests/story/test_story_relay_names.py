"""What two real shippers say of each other: in `observed`, in metrics, and in what `drained` and `ready` confirm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.story.driver import Message, Sidecar, launched
from tests.story.test_story_metrics import scraped
from tests.story.test_story_relay import empty, open_relay
from tests.story.test_story_relay_state import Chain, open_chain, running
from tests.story.world import secret


def edge_of(observed: Message) -> dict[str, Any]:
    (edge,) = observed["edges"]
    return dict(edge)


def principal_of(observed: Message) -> dict[str, Any]:
    (principal,) = observed["principals"]
    return dict(principal)


async def agreed(chain: Chain, middle: Sidecar, keys: int) -> Message:
    await chain.agreed()
    return await middle.state(lambda observed: edge_of(observed)["keys"] == keys)


async def test_both_sides_name_each_other_with_what_waits(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.edge_state) as edge:
        await chain.offer_edge(edge)
        await chain.put("a", "b", n=1)
        alone = await edge.state(
            lambda observed: (
                principal_of(observed)["reason"] != "not connected yet"
                and principal_of(observed)["unconfirmed_keys"] == 2
            )
        )
        async with launched(chain.principal_state, "--http", "127.0.0.1:0") as middle:
            address = (await middle.hello())["http"]
            await chain.offer_principal(middle)
            there = await agreed(chain, middle, 2)
            seen = await scraped(address)
            both = await edge.state(lambda observed: principal_of(observed)["unconfirmed_keys"] == 0)
            await middle.kill()
        await chain.put("c", n=1)
        again = await edge.state(lambda observed: principal_of(observed)["connected_seconds"] is None)

    assert principal_of(alone)["host"] == f"127.0.0.1:{chain.up}"
    assert (principal_of(alone)["connected_seconds"], principal_of(alone)["unconfirmed_keys"]) == (None, 2)
    assert principal_of(alone)["oldest_seconds"] > 0
    assert (edge_of(there)["input"], edge_of(there)["name"]) == ("door", "berlin")
    assert edge_of(there)["connected_seconds"] is not None
    assert edge_of(there)["bytes"] > 0
    assert seen['shipper_edge_connected{edge="berlin",input="door"}'] == 1
    assert seen['shipper_edge_keys{edge="berlin",input="door"}'] == 2
    assert seen['shipper_principal_connected{output="up"}'] == 1
    assert principal_of(both)["connected_seconds"] is not None
    assert (principal_of(both)["reason"], principal_of(both)["confirms"]) == ("", "stored")
    assert principal_of(again)["reason"]


@pytest.mark.parametrize("worth", ["stored", "delivered"])
async def test_what_is_drained_at_an_edge_is_named_as_its_principal_confirms_it(tmp_path: Path, worth: str) -> None:
    mode = f"acknowledge: {worth}"
    async with open_relay(tmp_path) as relay, running(relay.principal_state) as door:
        await relay.offer_principal(door, 1, "k1", "k2", mode=mode)
        backend = await door.ack(1, "drained")
        async with running(relay.edge_state) as edge:
            await relay.offer_edge(edge, 1, "k1")
            first = await edge.ack(1, "drained")
            relay.world.write(5)
            await relay.delivered()
            await empty(edge)
            await relay.offer_edge(edge, 2, "k2")
            second = await edge.ack(2, "drained")
            relay.world.write(5)
            await relay.delivered()
            await empty(edge)
            there = await edge.observe()
            await edge.kill()
        async with launched(relay.edge_state) as edge:
            ready = await edge.hello()
            await edge.policy(2, relay.of_edge("k2"), {"k2": secret("k2")})
            again = await edge.ack(2, "drained")

    assert "confirms" not in backend
    assert "confirms" not in first
    assert (second["confirms"], there["confirms"], ready["confirms"], again["confirms"]) == (worth,) * 4


async def test_keyed_state_is_confirmed_as_stored(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.running() as (edge, middle):
        await chain.offer_edge(edge)
        await chain.offer_principal(middle)
        await chain.put("a", n=1)
        await chain.agreed()
        await empty(edge)
        await chain.offer_edge(edge, 2, port=chain.far)
        assert (await edge.ack(2, "drained"))["confirms"] == "stored"


async def test_an_edge_is_forgotten_by_an_order_that_deletes_its_keys_at_the_end_of_the_way(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.principal_state) as middle:
        await chain.offer_principal(middle)
        async with running(chain.edge_state) as edge:
            await chain.offer_edge(edge)
            await chain.put("a", "b", n=1)
            await agreed(chain, middle, 2)
            refused = await middle.action("forget_edge", edge="berlin", keys="delete")
            await edge.stop()
        await middle.state(lambda observed: edge_of(observed)["connected_seconds"] is None)
        unknown = await middle.action("forget_edge", edge="oslo", keys="delete")
        wrong = await middle.action("forget_edge", edge="berlin", keys="burn")
        done = await middle.action("forget_edge", edge="berlin", keys="delete")
        chain.puts.clear()
        await agreed(chain, middle, 0)

    assert (refused["status"], refused["code"]) == ("FAILED", "edge_connected")
    assert (unknown["status"], unknown["code"]) == ("FAILED", "nothing_to_order")
    assert (wrong["status"], wrong["code"]) == ("FAILED", "bad_params")
    assert (done["status"], done["result"]) == ("SUCCESS", {"deleted": 2})
