"""Keyed state over two real shippers to a door in the test: its last word arrives, whoever was killed or went back."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from shipper.plugin import Asyncio, Backpressure, Batch
from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext
from shipper_demo.ports import free_port
from shipper_plugins.relay.input import Edge
from tests.campaign_relay.writers import put
from tests.canary import EVENT
from tests.plugins.relay.pair import Principal, principal
from tests.story.driver import Sidecar
from tests.story.test_story_relay import PACE, copied, empty, open_proxy, running
from tests.story.world import key as key_of
from tests.story.world import secret

COLLECTION = "things"
SINK = {"middle": Edge(credentials=("k1",), collections=(COLLECTION,))}


class Chain:
    """A program puts keys at an edge, which relays them to a principal, which relays them to a door of the test."""

    def __init__(self, directory: Path, aio: Asyncio) -> None:
        self.edge_state, self.principal_state = directory / "edge", directory / "principal"
        self.door, self.up, self.far = free_port(), free_port(), free_port()
        self.context = RecordingInputContext(aio=aio)
        self.puts: dict[str, int] = {}
        self.aio = aio

    @asynccontextmanager
    async def sink(self) -> AsyncIterator[Principal]:
        async with principal(self.aio, context=self.context, port=self.far, edges=SINK) as door:
            yield door

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Sidecar, Sidecar]]:
        """All three: the edge and the principal are yielded."""
        async with self.sink(), running(self.edge_state) as edge, running(self.principal_state) as middle:
            yield edge, middle

    async def offer_edge(self, sidecar: Sidecar, revision: int = 1, *, port: int | None = None) -> None:
        text = _policy(self.door, "local", "p", port or self.up, "berlin", "e")
        await sidecar.policy(revision, text, {"p": secret("p"), "e": secret("e")})
        await sidecar.ack(revision, "active")

    async def offer_principal(self, sidecar: Sidecar, revision: int = 1) -> None:
        text = _policy(self.up, "berlin", "e", self.far, "middle", "k1")
        await sidecar.policy(revision, text, {"e": secret("e"), "k1": {"api_key": "k1:a-secret-of-the-test"}})
        await sidecar.ack(revision, "active")

    async def put(self, *keys: str, n: int) -> None:
        """Each is durable at the edge when this returns."""
        for key in keys:
            assert await put(self.door, key_of("p"), "PUT", f"{COLLECTION}/{key}", b'{"n":%d}' % n) == 200
            self.puts[key] = n

    async def delete(self, key: str) -> None:
        assert await put(self.door, key_of("p"), "DELETE", f"{COLLECTION}/{key}", b"") == 200
        del self.puts[key]

    def arrived(self) -> dict[str, int]:
        """The keys at the end, and their numbers."""
        found = {}
        for (owner, collection, key), (document, _) in self.context.state.items():
            assert (owner, collection) == ("middle/berlin/local", COLLECTION)
            if document is not None:
                found[key] = json.loads(document)["n"]
        return found

    async def agreed(self) -> None:
        """What was put last is at the end, and nothing else."""
        with trio.fail_after(60):
            await self.context.wait_until(lambda: self.arrived() == self.puts)


def _policy(port: int, edge: str, key: str, up: int, name: str, credential: str) -> str:
    edges = f"{{{edge}: {{credentials: [{key}], collections: [{COLLECTION}]}}}}"
    return (
        f'version: 1\ninputs:\n  door: {{type: relay, address: "127.0.0.1:{port}", edges: {edges}}}\n'
        f'outputs:\n  up: {{type: relay, name: {name}, hosts: ["http://127.0.0.1:{up}"],'
        f" credential: {credential}, {PACE}}}\n"
    )


@asynccontextmanager
async def open_chain(directory: Path) -> AsyncIterator[Chain]:
    async with open_asyncio() as aio:
        yield Chain(directory, aio)


async def test_the_last_word_of_each_key_arrives_over_two_hops_and_deletions_too(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.running() as (edge, middle):
        await chain.offer_edge(edge)
        await chain.offer_principal(middle)
        await chain.put("a", "b", "c", n=1)
        await chain.put("a", n=2)
        await chain.delete("b")
        await chain.agreed()
        await empty(edge, middle)


async def test_t117_1_with_the_principal_down_updates_take_one_place_a_key(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.edge_state) as edge:
        await chain.offer_edge(edge)
        for n in range(20):
            await chain.put("a", "b", "c", n=n)
        await edge.holds(3)
        async with running(chain.principal_state) as middle:
            await chain.offer_principal(middle)
            await chain.agreed()
            await empty(edge, middle)


async def test_t117_2_no_key_is_lost_with_a_principal_that_is_killed_again_and_again(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.edge_state) as edge:
        await chain.offer_edge(edge)
        for revision in range(1, 4):
            async with running(chain.principal_state) as middle:
                await chain.offer_principal(middle, revision)
                await chain.put(*(f"k{n}" for n in range(20)), n=revision)
                await middle.kill()
        async with running(chain.principal_state) as middle:
            await chain.offer_principal(middle, 4)
            await chain.agreed()
            await empty(edge, middle)


async def test_t117_4_a_principal_that_lost_its_directory_has_all_keys_again_though_they_did_not_change(
    tmp_path: Path,
) -> None:
    async with open_chain(tmp_path) as chain, running(chain.edge_state) as edge:
        async with chain.sink(), running(chain.principal_state) as middle:
            await chain.offer_edge(edge)
            await chain.offer_principal(middle)
            await chain.put(*(f"k{n}" for n in range(50)), n=1)
            await chain.agreed()
            await empty(edge, middle)
            await middle.kill()
        shutil.rmtree(chain.principal_state)
        chain.context.state.clear()
        async with chain.sink(), running(chain.principal_state) as middle:
            await chain.offer_principal(middle)
            await chain.put("another", n=1)  # else it is a heartbeat that shows that the connection is gone
            await chain.agreed()


async def test_an_edge_that_was_killed_goes_on_above_all_places_that_it_gave(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.principal_state) as middle:
        await chain.offer_principal(middle)
        for revision in range(1, 4):
            async with running(chain.edge_state) as edge:
                await chain.offer_edge(edge, revision)
                await chain.put("a", "b", n=revision)
                if revision == 3:
                    await chain.agreed()
                    await empty(edge, middle)
                else:
                    await edge.kill()


async def test_t117_9_a_connection_that_is_cut_again_and_again_loses_no_key(tmp_path: Path) -> None:
    async with open_chain(tmp_path) as chain, open_proxy(chain.up) as proxy, chain.running() as (edge, middle):
        await chain.offer_edge(edge, port=proxy.port)
        await chain.offer_principal(middle)
        for n in range(5):
            proxy.cut()
            await chain.put("a", "b", "c", n=n)
        await chain.agreed()
        await empty(edge, middle)


class NoEvents(RecordingInputContext):
    """Has room for keyed state only."""

    refused = 0

    async def emit(self, *batches: Batch, **how: Any) -> None:
        if batches:
            self.refused += 1
            self._notify()
            raise Backpressure("there is no room")
        await super().emit(*batches, **how)


async def test_keyed_state_passes_log_events_that_the_principal_has_no_room_for(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("".join(f"{EVENT} {n}\n" for n in range(2000)))
    async with open_chain(tmp_path) as chain, running(chain.edge_state) as edge:
        chain.context = context = NoEvents(aio=chain.aio)
        text = _policy(chain.door, "local", "p", chain.far, "middle", "k1")
        text = text.replace("outputs:", f'  access: {{type: file, paths: ["{log}"]}}\noutputs:')
        async with chain.sink():
            await edge.policy(1, text, {"p": secret("p"), "k1": {"api_key": "k1:a-secret-of-the-test"}})
            await edge.ack(1, "active")
            await edge.state(lambda observed: observed["queue"]["events"] >= 2000)
            with trio.fail_after(60):
                await context.wait_until(lambda: context.refused >= 2)
            for n in range(3):
                await chain.put("a", "b", n=n)
            with trio.fail_after(60):
                await context.wait_until(lambda: len(context.state) == 2)
                owner = "middle/local"
                await context.wait_until(
                    lambda: all(context.state[owner, COLLECTION, key][0] == b'{"n":2}' for key in "ab")
                )
            await edge.holds(2000)


async def test_t117_4_a_principal_that_went_back_is_reported_and_has_the_same_keys_again_and_no_others(
    tmp_path: Path,
) -> None:
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.edge_state) as edge:
        async with running(chain.principal_state) as middle:
            await chain.offer_edge(edge)
            await chain.offer_principal(middle)
            await chain.put("a", "b", "gone", n=1)
            await chain.agreed()
            await empty(edge, middle)
            await middle.stop()
        copied(chain.principal_state, tmp_path / "copy")
        async with running(chain.principal_state) as middle:
            await chain.offer_principal(middle, 2)
            await chain.put("b", "c", n=2)
            await chain.delete("gone")
            await chain.agreed()
            await empty(edge, middle)
            await middle.kill()
        copied(tmp_path / "copy", chain.principal_state)
        chain.context.state.clear()  # what is there comes from this principal's directory alone
        async with running(chain.principal_state) as middle:
            await chain.offer_principal(middle, 2)
            await chain.put("d", n=3)
            await chain.agreed()
            await edge.state(lambda observed: "principal_went_back" in [unit["code"] for unit in observed["units"]])
            await middle.state(lambda observed: [one["keys"] for one in observed["edges"]] == [4])
            await empty(edge, middle)
            await chain.agreed()


class Goes(NamedTuple):
    """What is done to the directory of an edge while nothing runs there; `copy` is from before."""

    name: str
    back: Callable[[Path, Path], None]


def _to_the_copy(state: Path, copy: Path) -> None:
    copied(copy, state)


def _away(state: Path, copy: Path) -> None:
    shutil.rmtree(state)


@pytest.mark.parametrize("goes", [Goes("back", _to_the_copy), Goes("away", _away)], ids=lambda goes: goes.name)
async def test_an_edge_whose_directory_is_lost_or_went_back_takes_back_what_came_by_its_door(
    tmp_path: Path, goes: Goes
) -> None:
    copy = tmp_path / "copy"
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.principal_state) as middle:
        await chain.offer_principal(middle)
        async with running(chain.edge_state) as edge:
            await chain.offer_edge(edge)
            await chain.put("same", "changed", "gone", n=1)
            await empty(edge, middle)
            await edge.stop()
        copied(chain.edge_state, copy)
        async with running(chain.edge_state) as edge:
            await chain.offer_edge(edge, 2)
            await chain.put("changed", "new", n=2)
            await chain.delete("gone")
            await chain.agreed()
            await empty(edge, middle)
            await edge.kill()
        goes.back(chain.edge_state, copy)
        before = dict(chain.context.state)
        async with running(chain.edge_state) as edge:
            await chain.offer_edge(edge, 3)
            adopted = 2 if goes.name == "back" else 3
            await edge.state(lambda observed: _figure(observed, "state_adopted") >= adopted)
            await empty(edge, middle)
            assert chain.context.state == before
            await chain.delete("new")  # by the version that it took back
            await chain.put("changed", n=3)
            await chain.agreed()
            await empty(edge, middle)


def _figure(observed: dict[str, Any], name: str) -> float:
    figures = [unit.get("figures", {}) for unit in observed["units"] if unit["id"] == "outputs.up"]
    return float(sum(each.get(name, 0) for each in figures))  # none before the policy runs


@pytest.mark.parametrize("goes", [Goes("back", _to_the_copy), Goes("away", _away)], ids=lambda goes: goes.name)
async def test_the_keys_of_documents_follow_these_when_the_directory_of_an_edge_is_lost_or_went_back(
    tmp_path: Path, goes: Goes
) -> None:
    copy, documents = tmp_path / "copy", tmp_path / "documents"
    async with open_chain(tmp_path) as chain, chain.sink():
        documents.mkdir()
        text = (
            f'version: 1\ninputs:\n  files: {{type: state, paths: ["{documents}/*.json"], collection: {COLLECTION}}}\n'
            f'outputs:\n  up: {{type: relay, name: middle, hosts: ["http://127.0.0.1:{chain.far}"],'
            f" credential: k1, {PACE}}}\n"
        )

        async def offer(edge: Sidecar, revision: int) -> None:
            await edge.policy(revision, text, {"k1": {"api_key": "k1:a-secret-of-the-test"}})
            await edge.ack(revision, "active")

        async def arrived(**expected: int) -> None:
            with trio.fail_after(60):
                await chain.context.wait_until(lambda: _documents(chain.context) == expected)

        async with running(chain.edge_state) as edge:
            await offer(edge, 1)
            _write(documents, same=1, changed=1, removed=1)
            await arrived(same=1, changed=1, removed=1)
            await empty(edge)
            await edge.stop()
        copied(chain.edge_state, copy)
        async with running(chain.edge_state) as edge:
            await offer(edge, 2)
            _write(documents, changed=2, new=2, other=2)
            await arrived(same=1, changed=2, removed=1, new=2, other=2)
            await empty(edge)
            await edge.kill()
        goes.back(chain.edge_state, copy)
        _write(documents, changed=1)  # as it is in the copy
        (documents / "removed.json").unlink()
        (documents / "new.json").unlink()
        hidden = documents.rename(tmp_path / "hidden")
        async with running(chain.edge_state) as edge:
            await offer(edge, 3)
            await edge.state(lambda observed: _degraded(observed, "inputs.files", "no such directory"))
            await empty(edge)
            assert not _degraded(await edge.observe(), "outputs.up")
            assert _documents(chain.context) == {"same": 1, "changed": 2, "removed": 1, "new": 2, "other": 2}
            hidden.rename(documents)
            await arrived(same=1, changed=1, other=2)
            await empty(edge)


def _degraded(observed: dict[str, Any], id: str, text: str = "") -> bool:
    return any(
        unit["id"] == id and unit["state"] == "DEGRADED" and text in unit["message"] for unit in observed["units"]
    )


def _write(directory: Path, **documents: int) -> None:
    for name, number in documents.items():
        beside = directory / f"{name}.new"
        beside.write_text(json.dumps({"n": number}))
        beside.rename(directory / f"{name}.json")


def _documents(context: RecordingInputContext) -> dict[str, int]:
    return {key: json.loads(text)["n"] for (_, _, key), (text, _) in context.state.items() if text is not None}


async def test_deletions_that_a_principal_has_forgotten_are_none_that_differ(tmp_path: Path) -> None:
    """Neither its own principal, which remembers them, nor the edge, which forgot them at once, sends any again.

    An edge of 600 keys may have 1,600, deleted or not: the first deletions give way in the third round.
    """
    rounds, size, most = 3, 600, 1600
    documents = tmp_path / "documents"
    async with open_chain(tmp_path) as chain, chain.sink(), running(chain.edge_state) as edge:
        documents.mkdir()
        files = f'files: {{type: state, paths: ["{documents}/*.json"], collection: {COLLECTION}}}'
        text = _policy(chain.door, "local", "p", chain.up, "berlin", "e")
        text = f"{text[: text.index('  door:')]}  {files}\n{text[text.index('outputs:') :]}"
        text_of_middle = _policy(chain.up, "berlin", "e", chain.far, "middle", "k1")
        text_of_middle = text_of_middle.replace("]}}", f"], max_keys: {size}}}}}")
        secrets = {"e": secret("e"), "k1": {"api_key": "k1:a-secret-of-the-test"}}

        async def arrived(keys: set[str]) -> None:
            with trio.fail_after(60):
                await chain.context.wait_until(lambda: _documents(chain.context).keys() == keys)
            await empty(edge, middle)

        async with running(chain.principal_state) as middle:
            await middle.policy(1, text_of_middle, secrets)
            await middle.ack(1, "active")
            await edge.policy(1, text, {"e": secret("e")})
            await edge.ack(1, "active")
            for number in range(rounds):
                names = {f"k{number}-{at}" for at in range(size)}
                _write(documents, **dict.fromkeys(names, number))
                await arrived(names)
                for name in names:
                    (documents / f"{name}.json").unlink()
                await arrived(set())
            at_first = _figure(await edge.observe(), "state_sent_again")  # of keys that waited when it first compared
            await middle.stop()
        given = len(chain.context.state)
        async with running(chain.principal_state) as middle:
            await middle.policy(2, text_of_middle, secrets)
            await middle.ack(2, "active")
            _write(documents, last=1)
            await arrived({"last"})
            observed = await middle.observe()
            assert size < observed["keyed"]["keys"] <= most
            for sidecar, before in ((edge, at_first), (middle, 0.0)):
                observed = await sidecar.observe()
                assert _figure(observed, "state_sent_again") - before <= 1  # the last one, which waited then
                assert _figure(observed, "state_surplus") == 0
                assert not _degraded(observed, "outputs.up")
        assert given == rounds * size
        assert len(chain.context.state) == given + 1
