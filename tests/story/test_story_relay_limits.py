"""What a relay does not undo by itself, as its documentation says, and what undoes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.testing

from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext
from shipper_plugins.relay.input import Edge
from tests.plugins.relay.pair import Principal, principal
from tests.story.driver import Message, Sidecar
from tests.story.test_story_relay import PACE, copied, empty, running
from tests.story.test_story_relay_state import COLLECTION, Chain, open_chain
from tests.story.world import secret

K1 = {"k1": {"api_key": "k1:a-secret-of-the-test"}}
KEYS, ROUNDS = 520, 3
"""An edge of so many keys may have 1,000 more that are deleted: the first deletions give way in the last round."""
OF_EDGE = {"berlin": Edge(credentials=("k1",), collections=(COLLECTION,))}


def write(directory: Path, *names: str) -> None:
    for name in names:
        (directory / f"{name}.new").write_text('{"n": 1}')
        (directory / f"{name}.new").rename(directory / f"{name}.json")


def remove(directory: Path, *names: str) -> None:
    for name in names:
        (directory / f"{name}.json").unlink()


def alive(context: RecordingInputContext) -> set[str]:
    return {key for (_, _, key), (document, _) in context.state.items() if document is not None}


async def has(context: RecordingInputContext, *names: str) -> None:
    with trio.fail_after(60):
        await context.wait_until(lambda: alive(context) == {*names})


def policy(documents: Path, *urls: str, name: str = "berlin", credential: str = "k1") -> str:
    up = f"type: relay, name: {name}, hosts: {json.dumps(urls)}, credential: {credential}, {PACE}"
    files = f'type: state, paths: ["{documents}/*.json"], collection: {COLLECTION}'
    return f"version: 1\ninputs:\n  files: {{{files}}}\noutputs:\n  up: {{{up}}}\n"


# -- two principals beside each other ----------------------------------------------------------------------------------


@asynccontextmanager
async def two_principals() -> AsyncIterator[tuple[Principal, Principal]]:
    async with (
        open_asyncio() as aio,
        principal(aio, context=RecordingInputContext(aio=aio), edges=OF_EDGE) as first,
        principal(aio, context=RecordingInputContext(aio=aio), edges=OF_EDGE) as second,
    ):
        yield first, second


async def offer(edge: Sidecar, revision: int, text: str) -> None:
    await edge.policy(revision, text, K1)
    await edge.ack(revision, "active")


@asynccontextmanager
async def edge_that_lost_its_directory(
    directory: Path, first: Principal, second: Principal
) -> AsyncIterator[tuple[Sidecar, Path]]:
    """It gave the document `removed` to the second principal only, and forgot that; the document is removed."""
    documents = directory / "documents"
    documents.mkdir()
    async with running(directory / "edge") as edge:
        await offer(edge, 1, policy(documents, second.url))
        write(documents, "removed", "stays")
        await has(second.context, "removed", "stays")
        await empty(edge)
        await edge.kill()
    shutil.rmtree(directory / "edge")
    remove(documents, "removed")
    async with running(directory / "edge") as edge:
        await offer(edge, 1, policy(documents, first.url, second.url))
        await has(first.context, "stays")
        await empty(edge)
        yield edge, documents


async def test_a_removed_document_that_another_principal_knows_is_deleted_when_that_one_is_the_first_host(
    tmp_path: Path,
) -> None:
    async with (
        two_principals() as (first, second),
        edge_that_lost_its_directory(tmp_path, first, second) as (edge, documents),
    ):
        assert alive(second.context) == {"removed", "stays"}
        await offer(edge, 2, policy(documents, second.url, first.url))
        await has(second.context, "stays")
        await empty(edge)


async def test_an_order_to_forget_the_edge_deletes_all_that_another_principal_knows_until_the_edge_uses_it(
    tmp_path: Path,
) -> None:
    async with (
        two_principals() as (first, second),
        edge_that_lost_its_directory(tmp_path, first, second) as (edge, documents),
    ):
        with trio.fail_after(60):
            while any(one.connected_seconds is not None for one in second.source.edges()):
                await trio.testing.wait_all_tasks_blocked(0.05)
        assert await second.source.forget_edge("berlin", "delete") == 2
        assert alive(second.context) == set()
        deleted = second.context.state["berlin", COLLECTION, "stays"][1].place
        await offer(edge, 2, policy(documents, second.url, first.url))
        await has(second.context, "stays")
        await empty(edge)

        assert second.context.state["berlin", COLLECTION, "stays"][1].place > deleted


# -- a principal in the middle whose own one goes back -----------------------------------------------------------------


def policies(chain: Chain, documents: Path) -> tuple[str, str]:
    """Of the edge and of the middle."""
    door = f"berlin: {{credentials: [e], collections: [{COLLECTION}], max_keys: {KEYS}}}"
    to_middle = (
        f'version: 1\ninputs:\n  door: {{type: relay, address: "127.0.0.1:{chain.up}", edges: {{{door}}}}}\n'
        f'outputs:\n  up: {{type: relay, name: middle, hosts: ["http://127.0.0.1:{chain.far}"],'
        f" credential: k1, {PACE}}}\n"
    )
    return policy(documents, f"http://127.0.0.1:{chain.up}", credential="e"), to_middle


@asynccontextmanager
async def middle_of(chain: Chain, text: str) -> AsyncIterator[Sidecar]:
    async with running(chain.principal_state) as middle, chain.sink():
        await middle.policy(1, text, K1 | {"e": secret("e")})
        await middle.ack(1, "drained")
        yield middle


@asynccontextmanager
async def edge_of(chain: Chain, text: str) -> AsyncIterator[Sidecar]:
    async with running(chain.edge_state) as edge:
        await edge.policy(1, text, {"e": secret("e")})
        await edge.ack(1, "drained")
        yield edge


async def test_what_the_principal_of_a_principal_gives_back_of_forgotten_deletions_is_deleted_by_either_remedy(
    tmp_path: Path,
) -> None:
    """It has documents of the edge from before they were deleted, which the middle has forgotten; the edge is away."""
    documents = tmp_path / "documents"
    documents.mkdir()
    async with open_chain(tmp_path) as chain:
        to_edge, to_middle = policies(chain, documents)
        copies = []
        async with middle_of(chain, to_middle) as middle, edge_of(chain, to_edge) as edge:
            for number in range(ROUNDS):
                names = {f"k{number}-{at}" for at in range(KEYS)}
                write(documents, *names)
                await has(chain.context, *names)
                copies.append(dict(chain.context.state))
                remove(documents, *names)
                await has(chain.context)
                await empty(edge, middle)
            await edge.stop()
            await middle.stop()
        copied(chain.principal_state, tmp_path / "kept")

        for remedy in (the_edge_compares, the_edge_is_forgotten):
            chain.context.state = dict(copies[0])
            async with middle_of(chain, to_middle) as middle:
                await middle.state(lambda observed: _adopted(observed) > 0)
                await empty(middle)
                assert 0 < len(alive(chain.context)) < KEYS
                await remedy(chain, middle, to_edge)
                await has(chain.context)
                await empty(middle)
                await middle.kill()
            copied(tmp_path / "kept", chain.principal_state)


async def the_edge_compares(chain: Chain, middle: Sidecar, text: str) -> None:
    async with edge_of(chain, text) as edge:
        await has(chain.context)
        await empty(edge)


async def the_edge_is_forgotten(chain: Chain, middle: Sidecar, text: str) -> None:
    done = await middle.action("forget_edge", edge="berlin", keys="delete")
    assert done["status"] == "SUCCESS", done


def _adopted(observed: Message) -> float:
    [up] = [unit for unit in observed["units"] if unit["id"] == "outputs.up"]
    return float(up.get("figures", {}).get("state_adopted", 0))
