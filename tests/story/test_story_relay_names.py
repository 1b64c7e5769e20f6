"""What two real shippers say of each other: in `observed`, in metrics, and in what `drained` and `ready` confirm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.story.driver import Message, Sidecar, launched
from tests.story.test_story_metrics import scraped
from tests.story.test_story_relay_state import Chain, open_chain, running


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
        alone = await edge.state(lambda observed: principal_of(observed)["reason"] != "not connected yet")
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
