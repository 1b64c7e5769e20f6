"""Keyed state on a real OpenSearch: external versions, and what it says of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from shipper.plugin import Answer, Batch, ClientTls, Credential, CredentialId, Material, Outcome, OutputContext
from shipper.plugin.state import Version, digest_of
from shipper.sdk.aio import open_asyncio
from shipper_plugins.elasticsearch.output import ElasticsearchOutput

pytestmark = pytest.mark.backend

_READ = ["indices:data/read/mget*"]
_WRITE = ["indices:data/write/bulk*", "indices:data/write/index", "indices:data/write/delete"]
_MAKE = ["indices:admin/create", "indices:admin/mapping/put"]
_KEY = CredentialId("user")


def role(*actions: str, mget: bool = True) -> dict[str, object]:
    cluster = ["indices:data/write/bulk", *(["indices:data/read/mget"] if mget else [])]
    return {
        "cluster_permissions": cluster,
        "index_permissions": [{"index_patterns": ["state-*"], "allowed_actions": list(actions)}],
    }


FULL = role(*_READ, *_WRITE, *_MAKE)


def state(collection: str, *changes: tuple[str, int, bytes | None], owner: str = "") -> Batch:
    versions = [
        Version(owner, collection, key, place, digest_of(document), document is None)
        for key, place, document in changes
    ]
    return Batch.documents([document or b"{}" for _, _, document in changes]).with_columns(versions=versions)


@asynccontextmanager
async def sending(node: Any, user: tuple[str, str], **settings: Any):
    """Sends a batch and returns the answers that are not `delivered`."""
    tls = ClientTls(ca=Material.read(str(node.ca)))
    output = ElasticsearchOutput(hosts=(node.url,), credential=_KEY, tls=tls, **settings)
    login = Credential.parse({"username": user[0], "password": user[1]})
    with trio.fail_after(60):
        async with open_asyncio() as aio, output.open(OutputContext("main", aio, {_KEY: login})) as sender:

            async def send(batch: Batch) -> dict[int, Answer]:
                return dict((await sender.send(batch)).others)

            yield send


def kept(node: Any, index: str) -> dict[str, Any]:
    return {hit["_id"]: hit["_source"] for hit in node.documents(index)}


def outcomes(answers: dict[int, Answer]) -> dict[int, Outcome]:
    return {position: answer.outcome for position, answer in answers.items()}


async def test_an_older_version_is_never_applied_after_a_newer_one(opensearch) -> None:
    user = opensearch.create_writer("state-order", FULL)
    nine, eight = b'{"n":9,"text":"\xc3\xbc"}', b'{"n":8}'
    async with sending(opensearch, user) as send:
        assert await send(state("order", ("k", 9, nine), ("other", 2**63 - 1, b"{}"), owner="berlin")) == {}
        answers = await send(state("order", ("k", 8, eight), ("new", 1, eight), ("k", 9, nine), owner="berlin"))
        equal = await send(state("order", ("k", 9, eight), owner="berlin"))
        newer = await send(state("order", ("k", 10, eight), ("k", 9, nine), owner="berlin"))

    assert outcomes(answers) == {0: Outcome.SUPERSEDED, 2: Outcome.DUPLICATE}
    assert answers[0].fence == equal[0].fence == (9, digest_of(nine))
    assert outcomes(newer) == {1: Outcome.SUPERSEDED}
    documents = kept(opensearch, "state-order")
    assert {id: document.get("n") for id, document in documents.items()} == {
        "berlin:order:k": 8,
        "berlin:order:new": 8,
        "berlin:order:other": None,
    }
    assert documents["berlin:order:k"]["shipper"] == {
        "owner": "berlin",
        "collection": "order",
        "key": "k",
        "place": 10,
        "digest": digest_of(eight).hex(),
        "deleted": False,
    }


async def test_a_deletion_leaves_a_document_that_keeps_its_place(opensearch) -> None:
    user = opensearch.create_writer("state-mark", FULL)
    async with sending(opensearch, user) as send:
        await send(state("mark", ("k", 5, b'{"n":5}')))
        assert await send(state("mark", ("k", 6, None))) == {}
        again = await send(state("mark", ("k", 6, None), ("k", 5, b'{"n":5}')))

    assert outcomes(again) == {0: Outcome.DUPLICATE, 1: Outcome.SUPERSEDED}
    assert again[1].fence == (6, digest_of(None))
    [document] = kept(opensearch, "state-mark").values()
    assert set(document) == {"shipper"}
    assert (document["shipper"]["place"], document["shipper"]["deleted"]) == (6, True)


async def test_a_deletion_that_deletes_fences_as_long_as_the_backend_remembers_it(opensearch) -> None:
    user = opensearch.create_writer("state-delete", FULL)
    async with sending(opensearch, user, deletions="delete") as send:
        assert await send(state("delete", ("first", 3, None))) == {}
        await send(state("delete", ("k", 5, b'{"n":5}')))
        assert await send(state("delete", ("k", 6, None))) == {}
        again = await send(state("delete", ("k", 6, None), ("k", 5, b'{"n":5}'), ("k", 6, b"{}"), ("first", 2, b"{}")))
        assert await send(state("delete", ("k", 7, b'{"n":7}'))) == {}

    assert outcomes(again) == {0: Outcome.DUPLICATE, **dict.fromkeys((1, 2, 3), Outcome.SUPERSEDED)}
    assert [again[at].fence for at in (1, 2, 3)] == [(place, digest_of(None)) for place in (6, 6, 3)]
    assert {id: document["n"] for id, document in kept(opensearch, "state-delete").items()} == {":delete:k": 7}


async def test_a_document_that_was_edited_there_fences_with_the_version_that_it_has(opensearch) -> None:
    user = opensearch.create_writer("state-edit", FULL)
    async with sending(opensearch, user) as send:
        await send(state("edit", ("k", 5, b'{"n":5}')))
        await trio.to_thread.run_sync(
            opensearch.change, "POST", "/state-edit/_update/%3Aedit%3Ak?refresh=true", {"doc": {"n": 99}}
        )
        answers = await send(state("edit", ("k", 5, b'{"n":5}')))

    assert outcomes(answers) == {0: Outcome.SUPERSEDED}
    assert answers[0].fence == (6, b"")


async def test_ids_and_indices_of_unusual_names_are_taken(opensearch) -> None:
    user = opensearch.create_writer("state-names", FULL)
    batch = state(
        "Ünüsual/../ *" + "x" * 200, ("", 1, b"{}"), ("/a b\n\0%", 1, b"{}"), ("ü" * 2000, 1, b"{}"), owner="_"
    )
    async with sending(opensearch, user) as send:
        assert await send(batch) == {}
        assert outcomes(await send(batch)) == dict.fromkeys(range(3), Outcome.DUPLICATE)


async def test_a_data_stream_is_refused_and_no_version_is_given_up(opensearch) -> None:
    user = opensearch.create_writer("state-stream", FULL)
    template = {"index_patterns": ["state-stream*"], "data_stream": {}, "priority": 600}
    await trio.to_thread.run_sync(opensearch.change, "PUT", "/_index_template/state-stream", template)
    for deletions in ("mark", "delete"):
        async with sending(opensearch, user, deletions=deletions) as send:
            answers = await send(state("stream", ("k", 1, b"{}"), ("l", 2, None)))

        assert outcomes(answers) == dict.fromkeys((0, 1), Outcome.HELD)
        assert "data streams" in answers[0].reason


async def test_a_user_that_may_not_read_has_conflicts_held_and_all_others_taken(opensearch) -> None:
    for name, rights in {
        "state-blind": role(*_WRITE, *_MAKE, mget=False),
        "state-half-blind": role(*_WRITE, *_MAKE),
    }.items():
        user = opensearch.create_writer(name, rights)
        async with sending(opensearch, user, state_index=name) as send:
            await send(state("c", ("k", 1, b"{}")))
            answers = await send(state("c", ("k", 1, b"{}"), ("l", 1, b"{}")))

        assert outcomes(answers) == {0: Outcome.HELD}
        assert "403" in answers[0].reason or "security_exception" in answers[0].reason
        assert opensearch.count(name) == 2
