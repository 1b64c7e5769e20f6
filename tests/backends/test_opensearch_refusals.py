"""Refusals of a real OpenSearch that the state of the cluster causes: beside them sound events are taken, and once
somebody has mended the cluster, the same events are."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from shipper.plugin import (
    Answer,
    Batch,
    ClientTls,
    Condition,
    Credential,
    CredentialId,
    Material,
    Outcome,
    OutputContext,
)
from shipper.plugin.state import Version, digest_of
from shipper.sdk.aio import open_asyncio
from shipper_plugins.elasticsearch.client.index_cases import IndexCase
from shipper_plugins.elasticsearch.output import ElasticsearchOutput

pytestmark = pytest.mark.backend

_KEY = CredentialId("user")
_ROUTED = {"mappings": {"_routing": {"required": True}}}
_TAKEN = {"index_patterns": ["refused-taken"], "priority": 600, "template": {"aliases": {"refused-name": {}}}}

CAUSES = {
    "closed": [("PUT", "/refused-closed", None), ("POST", "/refused-closed/_close", None)],
    "alias": [
        ("PUT", "/refused-1", {"aliases": {"refused-alias": {"is_write_index": False}}}),
        ("PUT", "/refused-2", {"aliases": {"refused-alias": {"is_write_index": False}}}),
    ],
    "blocked": [("PUT", "/refused-blocked", {"settings": {"index.blocks.write": True}})],
    "full": [("PUT", "/refused-full", {"settings": {"index.blocks.read_only_allow_delete": True}})],
    "taken": [("PUT", "/_index_template/refused", _TAKEN), ("PUT", "/refused-name", None)],
    "piped": [("PUT", "/refused-piped", {"settings": {"index.default_pipeline": "refused"}})],
    "routed": [("PUT", "/refused-routed", _ROUTED)],
    "strict": [("PUT", "/refused-strict", {"mappings": {"dynamic": "strict"}})],
    "limited": [("PUT", "/refused-limited", {"settings": {"index.mapping.total_fields.limit": 1}})],
}
"""What makes the index of an event refuse it."""
MENDED = {
    "closed": [("POST", "/refused-closed/_open", None)],
    "alias": [
        (
            "POST",
            "/_aliases",
            {"actions": [{"add": {"index": "refused-1", "alias": "refused-alias", "is_write_index": True}}]},
        )
    ],
    "blocked": [("PUT", "/refused-blocked/_settings", {"index.blocks.write": None})],
    "full": [("PUT", "/refused-full/_settings", {"index.blocks.read_only_allow_delete": None})],
    "taken": [("DELETE", "/refused-name", None)],
    "piped": [("PUT", "/_ingest/pipeline/refused", {"processors": []})],
    "routed": [("DELETE", "/refused-routed", None)],
}
"""What a person does about it; an event that is itself the cause is refused for good."""
HELD = {"piped", "routed"}


@asynccontextmanager
async def sending(node: Any, **settings: Any):
    """Sends a batch and returns the answers that are not `delivered`."""
    tls = ClientTls(ca=Material.read(str(node.ca)))
    output = ElasticsearchOutput(hosts=(node.url,), credential=_KEY, tls=tls, **settings)
    login = Credential.parse({"username": node.admin[0], "password": node.admin[1]})
    with trio.fail_after(120):
        async with open_asyncio() as aio, output.open(OutputContext("main", aio, {_KEY: login})) as sender:

            async def send(batch: Batch) -> dict[int, Answer]:
                return dict((await sender.send(batch)).others)

            yield send


async def act(node: Any, *changes: tuple[str, str, object]) -> None:
    for change in changes:
        await trio.to_thread.run_sync(node.change, *change)


async def no_more_shards(node: Any, most: int | None) -> None:
    await act(node, ("PUT", "/_cluster/settings", {"persistent": {"cluster.max_shards_per_node": most}}))


async def test_what_the_cluster_causes_is_delivered_once_it_is_mended_and_sound_events_at_once(opensearch) -> None:
    names = [*CAUSES, "sound"]
    cases = tuple(IndexCase(index=f"refused-{name}", when=Condition(equals={"to": name})) for name in names)
    batch = Batch.documents([b'{"to":"%b"}' % name.encode() for name in names])
    batch = replace(batch, origin=b"0123456789abcdef", seq=1)
    for changes in CAUSES.values():
        await act(opensearch, *changes)
    async with sending(opensearch, index="refused-sound", indices=cases) as send:
        answers = await send(batch)
        found = {names[at]: answer.outcome for at, answer in answers.items()}
        for changes in MENDED.values():
            await act(opensearch, *changes)
        again = await send(batch.pick([names.index(name) for name in MENDED]))

    later = dict.fromkeys(MENDED.keys() - HELD, Outcome.LATER)
    assert found == later | dict.fromkeys(HELD, Outcome.HELD) | dict.fromkeys(("strict", "limited"), Outcome.REJECTED)
    assert {names[at] for at, answer in answers.items() if answer.of_target} == MENDED.keys()
    assert again == {}
    assert {name: opensearch.count(f"refused-{name}") for name in names} == {
        name: int(name not in ("strict", "limited")) for name in names
    }


async def test_no_room_for_the_shards_of_a_new_index_keeps_its_events_and_no_others(opensearch) -> None:
    names = ["new", "old"]
    cases = tuple(IndexCase(index=f"shards-{name}", when=Condition(equals={"to": name})) for name in names)
    batch = replace(Batch.documents([b'{"to":"new"}', b'{"to":"old"}']), origin=b"0123456789abcdef", seq=2)
    await act(opensearch, ("PUT", "/shards-old", None))
    async with sending(opensearch, index="shards-old", indices=cases) as send:
        await no_more_shards(opensearch, 1)
        try:
            answers = await send(batch)
        finally:
            await no_more_shards(opensearch, None)
        again = await send(batch.pick([0]))

    assert {at: answer.outcome for at, answer in answers.items()} == {0: Outcome.LATER}
    assert answers[0].of_target
    assert again == {}


def state(*collections: str) -> Batch:
    versions = [Version("", collection, "k", 1, digest_of(b"{}"), False) for collection in collections]
    return Batch.documents([b"{}"] * len(collections)).with_columns(versions=versions)


async def test_keyed_state_that_the_cluster_refuses_is_given_up_by_nobody(opensearch) -> None:
    appended = {"settings": {"index.append_only.enabled": True}}
    stream = {"index_patterns": ["kept-stream"], "data_stream": {}, "priority": 600}
    for change in [
        ("PUT", "/kept-1", {"aliases": {"kept-alias": {"is_write_index": False}}}),
        ("PUT", "/kept-appended", appended),
        ("PUT", "/_index_template/kept", stream),
    ]:
        await act(opensearch, change)
    async with sending(opensearch, state_index="kept-{collection}") as send:
        answers = await send(state("alias", "appended", "stream", "sound"))
        for change in [
            ("POST", "/_aliases", {"actions": [{"remove": {"index": "kept-1", "alias": "kept-alias"}}]}),
            ("DELETE", "/kept-appended", None),
            ("DELETE", "/_data_stream/kept-stream", None),
            ("DELETE", "/_index_template/kept", None),
        ]:
            await act(opensearch, change)
        again = await send(state("alias", "appended", "stream"))

    assert {at: answer.outcome for at, answer in answers.items()} == {
        0: Outcome.LATER,
        1: Outcome.HELD,
        2: Outcome.HELD,
    }
    assert again == {}
