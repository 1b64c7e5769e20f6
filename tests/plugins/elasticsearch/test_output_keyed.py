"""Keyed state in the `elasticsearch` output: ids, requests, and what an answer means."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shipper.plugin import Answer, Asyncio, Batch, Later, Outcome, Output, OutputContext, Size
from shipper.plugin.state import Version, digest_of
from shipper.testing import BulkDestination, Reply, open_destination
from shipper_plugins.elasticsearch.client import keyed
from shipper_plugins.elasticsearch.output import ElasticsearchOutput

INDEX = "state-inventory"
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_KEYS = st.tuples(_NAMES, _NAMES, _NAMES)


@pytest.fixture
async def destination(aio: Asyncio) -> AsyncIterator[BulkDestination]:
    async with open_destination(aio) as opened:
        yield opened


def state(*changes: tuple[str, int, bytes | None], collection: str = "inventory", owner: str = "") -> Batch:
    """A batch of (key, place, document); None is a deletion."""
    versions = [
        Version(owner, collection, key, place, digest_of(document), document is None)
        for key, place, document in changes
    ]
    return Batch.documents([document or b"{}" for _, _, document in changes]).with_columns(versions=versions)


def output(destination: BulkDestination, **settings: Any) -> ElasticsearchOutput:
    return ElasticsearchOutput(hosts=(destination.url,), **settings)


async def sent(aio: Asyncio, to: Output, *batches: Batch) -> list[dict[int, Answer]]:
    """The answers for each batch, of one sender."""
    async with to.open(OutputContext("main", aio)) as sender:
        return [dict((await sender.send(batch)).others) for batch in batches]


def kept(destination: BulkDestination, index: str = INDEX) -> dict[str, Any]:
    return {id: json.loads(source) for id, source in destination.documents[index].items()}


def outcomes(answers: Mapping[int, Answer]) -> dict[int, Outcome]:
    return {position: answer.outcome for position, answer in answers.items()}


# -- names -------------------------------------------------------------------------------------------------------------


def id_of(owner: str, collection: str, key: str) -> str:
    return keyed.id_of(Version(owner, collection, key, 1, b"", False))


def test_an_id_names_owner_collection_and_key() -> None:
    assert id_of("berlin", "inventory", "web-1") == "berlin:inventory:web-1"
    assert id_of("", "a:b", "c/ü%") == ":a%3Ab:c%2F%C3%BC%25"


@given(_KEYS, _KEYS)
@example(("a", "b", "c"), ("a:b", "c", ""))
@example(("a", "", "b"), ("a", "b", ""))
@example(("", "a", "%3A"), ("", "a", ":"))
@example(("sha256", "", ""), ("", "", "x" * 600))
@example(("", "a", "x" * 600), ("", "a", "x" * 601))
def test_no_two_keys_have_the_same_id(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (id_of(*one) == id_of(*other)) == (one == other)


@given(_KEYS)
@example(("", "a", "x" * 509))
@example(("", "a", "x" * 510))
def test_an_id_is_no_longer_than_the_backend_allows(key: tuple[str, str, str]) -> None:
    assert 0 < len(id_of(*key).encode()) <= 512


@pytest.mark.parametrize(
    ("template", "collection", "index"),
    [
        ("state-{collection}", "inventory", "state-inventory"),
        ("all", "inventory", "all"),
        ("state-{collection}-x", "Über all", "state-_c3_9cber_20all-x"),
        ("state-{collection}", "../*", "state-.._2f_2a"),
    ],
)
def test_the_index_of_a_collection_is_a_name_that_an_index_may_have(template: str, collection: str, index: str) -> None:
    assert keyed.index_of(template, collection) == index


def test_the_index_of_a_long_collection_ends_with_a_digest() -> None:
    one, other = (keyed.index_of("state-{collection}", "A" * 254 + end) for end in "BC")

    assert one != other
    assert len(one) == len(other) == 255


def test_the_places_of_versions_are_the_indices_of_their_collections() -> None:
    made = ElasticsearchOutput(hosts=("http://es:9200",), index="logs")

    assert list(made.targets(state(("a", 1, b"{}"), ("b", 2, None)))) == [INDEX, INDEX]


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_a_version_is_a_document_under_the_id_of_its_key(aio: Asyncio, destination: BulkDestination) -> None:
    document = b'{"os":"linux","n":1.50}'
    batch = state(("web-1", 7, document), ("web-2", 8, b"{}"), owner="berlin")

    assert await sent(aio, output(destination), batch) == [{}]

    assert list(destination.documents[INDEX]) == ["berlin:inventory:web-1", "berlin:inventory:web-2"]
    assert destination.documents[INDEX]["berlin:inventory:web-1"].endswith(b"}," + document[1:])
    assert kept(destination)["berlin:inventory:web-1"] == {
        "shipper": {
            "owner": "berlin",
            "collection": "inventory",
            "key": "web-1",
            "place": 7,
            "digest": digest_of(document).hex(),
            "deleted": False,
        },
        "os": "linux",
        "n": 1.5,
    }
    assert destination.versions[INDEX, "berlin:inventory:web-1"] == 7


async def test_state_passes_no_ingest_pipeline_and_log_events_go_beside_it(
    aio: Asyncio, destination: BulkDestination
) -> None:
    paths = []
    destination.script = lambda request, documents: paths.append((request.path, documents[0].index))
    await sent(
        aio, output(destination, index="logs", pipeline="p"), state(("a", 1, b"{}")), Batch.documents([b'{"n":1}'])
    )

    assert paths == [("/_bulk", INDEX), ("/logs/_bulk", "logs")]


async def test_versions_of_several_collections_have_indices_of_their_own(
    aio: Asyncio, destination: BulkDestination
) -> None:
    versions = [Version("", name, "k", 1, digest_of(b"{}"), False) for name in ("a", "b")]
    await sent(aio, output(destination), Batch.documents([b"{}", b"{}"]).with_columns(versions=versions))

    assert set(destination.documents) == {"state-a", "state-b"}


async def test_a_large_batch_goes_as_several_requests_and_each_version_has_its_answer(
    aio: Asyncio, destination: BulkDestination
) -> None:
    many = [(f"k{n}", n + 1, b'{"text":"%b"}' % (b"x" * 500)) for n in range(400)]
    first, again = await sent(aio, output(destination, bulk_max_bytes=Size(64 << 10)), state(*many), state(*many[:300]))

    assert (first, destination.total) == ({}, 400)
    assert outcomes(again) == dict.fromkeys(range(300), Outcome.DUPLICATE)
    assert len([request for request in destination.log if request.path == "/_bulk"]) > 6


@pytest.mark.parametrize("document", [b'{"shipper":1}', b'{"a":1,"\\u0073hipper":{"place":1}}'])
async def test_a_document_that_has_our_field_is_rejected_and_its_neighbours_go(
    aio: Asyncio, destination: BulkDestination, document: bytes
) -> None:
    good = b'{"a":"shipper","b":{"shipper":1}}'
    batch = state(("a", 1, good), ("b", 2, document), ("c", 3, good), ("c", 3, good))
    (answers,) = await sent(aio, output(destination), batch)

    assert outcomes(answers) == {1: Outcome.REJECTED, 3: Outcome.DUPLICATE}
    assert list(destination.documents[INDEX]) == [":inventory:a", ":inventory:c"]


# -- order -------------------------------------------------------------------------------------------------------------


async def test_an_older_version_is_superseded_by_the_newer_one_that_is_there(
    aio: Asyncio, destination: BulkDestination
) -> None:
    _, answers = await sent(
        aio, output(destination), state(("k", 9, b'{"n":9}')), state(("k", 8, b'{"n":8}'), ("new", 1, b"{}"))
    )

    assert outcomes(answers) == {0: Outcome.SUPERSEDED}
    assert answers[0].fence == (9, digest_of(b'{"n":9}'))
    assert kept(destination)[":inventory:k"]["n"] == 9


async def test_the_same_version_is_a_duplicate_and_another_one_at_its_place_is_not(
    aio: Asyncio, destination: BulkDestination
) -> None:
    one, other = b'{"n":1}', b'{"n":2}'
    _, answers = await sent(aio, output(destination), state(("k", 5, one)), state(("k", 5, one), ("k", 5, other)))

    assert outcomes(answers) == {0: Outcome.DUPLICATE, 1: Outcome.SUPERSEDED}
    assert answers[1].fence == (5, digest_of(one))


async def test_a_deletion_is_a_document_that_says_so(aio: Asyncio, destination: BulkDestination) -> None:
    _, _, again, older = await sent(
        aio,
        output(destination),
        state(("k", 5, b'{"n":1}')),
        state(("k", 6, None)),
        state(("k", 6, None)),
        state(("k", 5, b'{"n":1}')),
    )

    assert set(kept(destination)[":inventory:k"]) == {"shipper"}
    assert kept(destination)[":inventory:k"]["shipper"]["deleted"] is True
    assert outcomes(again) == {0: Outcome.DUPLICATE}
    assert older[0].fence == (6, digest_of(None))


async def test_a_key_may_come_again_after_its_deletion(aio: Asyncio, destination: BulkDestination) -> None:
    batches = [state(("k", 5, None)), state(("k", 6, b'{"n":2}'))]

    assert await sent(aio, output(destination), *batches) == [{}, {}]
    assert kept(destination)[":inventory:k"]["n"] == 2


async def test_a_deletion_deletes_where_that_is_wanted(aio: Asyncio, destination: BulkDestination) -> None:
    _, gone, never, again, older, other = await sent(
        aio,
        output(destination, deletions="delete"),
        state(("k", 5, b'{"n":1}')),
        state(("k", 6, None)),
        state(("never", 3, None)),
        state(("k", 6, None)),
        state(("k", 5, b'{"n":1}')),
        state(("k", 6, b'{"n":6}')),
    )

    assert destination.documents[INDEX] == {}
    assert gone == never == {}
    assert outcomes(again) == {0: Outcome.DUPLICATE}
    assert older[0].fence == other[0].fence == (6, digest_of(None))


async def test_what_the_backend_forgot_of_a_deletion_it_takes_again(aio: Asyncio, destination: BulkDestination) -> None:
    to = output(destination, deletions="delete")
    await sent(aio, to, state(("k", 5, b'{"n":1}')), state(("k", 6, None)))
    await destination.forget_deleted()

    assert await sent(aio, to, state(("k", 5, b'{"n":1}'))) == [{}]


async def test_a_document_that_somebody_edited_fences_with_the_version_of_the_backend(
    aio: Asyncio, destination: BulkDestination
) -> None:
    await sent(aio, output(destination), state(("k", 5, b'{"n":1}')))
    destination.versions[INDEX, ":inventory:k"] = 6

    (answers,) = await sent(aio, output(destination), state(("k", 5, b'{"n":1}')))

    assert outcomes(answers) == {0: Outcome.SUPERSEDED}
    assert answers[0].fence == (6, b"")


# -- answers -----------------------------------------------------------------------------------------------------------


async def test_refusals_of_a_version_are_judged_as_those_of_an_event(
    aio: Asyncio, destination: BulkDestination
) -> None:
    items = {
        0: (429, "rejected_execution_exception"),
        1: (400, "mapper_parsing_exception"),
        2: (403, "security_exception"),
        3: (404, "index_not_found_exception"),
        4: (401, "security_exception"),
    }
    destination.script = lambda request, documents: Reply(items=items)
    batch = state(*[(f"k{n}", 1, None if n == 3 else b"{}") for n in range(6)])
    (answers,) = await sent(aio, output(destination, deletions="delete"), batch)

    assert outcomes(answers) == {
        0: Outcome.LATER,
        1: Outcome.REJECTED,
        2: Outcome.HELD,
        3: Outcome.LATER,
        4: Outcome.HELD,
    }
    assert [position for position, answer in answers.items() if answer.of_target] == [2, 3]


async def conflict_with(aio: Asyncio, destination: BulkDestination, reply: Reply) -> dict[int, Answer]:
    """The answers for a version that is there and a new one, if the question for the first is answered so."""
    await sent(aio, output(destination), state(("k", 5, b"{}")))
    destination.script = lambda request, _: reply if request.path == "/_mget" else None
    (answers,) = await sent(aio, output(destination), state(("k", 5, b"{}"), ("new", 1, b"{}")))
    return answers


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(status=503), Outcome.LATER),
        (Reply(status=413), Outcome.LATER),
        (Reply(status=403), Outcome.HELD),
        (Reply(status=200, body=b'{"docs":[]}'), Outcome.LATER),
        (Reply(status=200, body=b'{"docs":[{"_id":"other","found":true,"_version":5}]}'), Outcome.LATER),
        (Reply(status=200, body=b'{"docs":[{"_id":":inventory:k","found":true,"_version":4}]}'), Outcome.LATER),
        (Reply(status=200, body=b'{"docs":[{"_id":":inventory:k","found":true,"_version":-1}]}'), Outcome.LATER),
        (Reply(items={0: (403, "security_exception")}), Outcome.HELD),
        (Reply(items={0: (404, "index_not_found_exception")}), Outcome.LATER),
        (Reply(items={0: (400, "illegal_argument_exception")}), Outcome.LATER),
        (Reply(cut="middle"), Outcome.LATER),
    ],
    ids=str,
)
async def test_a_conflict_that_cannot_be_looked_up_is_no_final_answer_and_holds_up_no_other(
    aio: Asyncio, destination: BulkDestination, reply: Reply, outcome: Outcome
) -> None:
    assert outcomes(await conflict_with(aio, destination, reply)) == {0: outcome}
    assert destination.total == 2


@pytest.mark.parametrize(
    "source",
    [
        b"{}",
        b'{"shipper":7}',
        b'{"shipper":{"place":5}}',
        b'{"shipper":{"place":5,"digest":"no hex"}}',
        b'{"shipper":{"place":"5","digest":""}}',
        b'{"shipper":{"place":4,"digest":"%b"}}' % digest_of(b"{}").hex().encode(),
    ],
)
async def test_a_document_that_does_not_say_its_version_is_another_one(
    aio: Asyncio, destination: BulkDestination, source: bytes
) -> None:
    body = b'{"docs":[{"_id":":inventory:k","found":true,"_version":5,"_source":%b}]}' % source
    answers = await conflict_with(aio, destination, Reply(status=200, body=body))

    assert answers[0].outcome is Outcome.SUPERSEDED
    assert answers[0].fence == (5, b"")


async def test_a_conflict_with_nothing_that_can_be_seen_has_no_fence(
    aio: Asyncio, destination: BulkDestination
) -> None:
    destination.script = lambda request, _: (
        Reply(items={0: (409, "version_conflict_engine_exception")}) if request.path == "/_bulk" else None
    )
    destination.documents[INDEX] = {}
    (answers,) = await sent(aio, output(destination), state(("k", 5, b"{}")))

    assert outcomes(answers) == {0: Outcome.SUPERSEDED}
    assert answers[0].fence is None


async def test_one_request_asks_for_the_documents_of_all_conflicts(aio: Asyncio, destination: BulkDestination) -> None:
    batch = state(*[(f"k{n}", 1, b"{}") for n in range(50)])
    await sent(aio, output(destination), batch, batch)

    assert [(request.path, request.items) for request in destination.log] == [
        ("/_bulk", 50),
        ("/_bulk", 50),
        ("/_mget", 50),
    ]


async def assert_it_says_nothing(aio: Asyncio, destination: BulkDestination, reply: Reply) -> None:
    destination.script = lambda request, _: reply
    async with output(destination).open(OutputContext("main", aio)) as sender:
        with pytest.raises(Later) as error:
            await sender.send(state(("web-1", 1, b"{}"), ("web-2", 1, b"{}")))
    assert "web-1" not in str(error.value)


async def test_an_answer_with_items_missing_says_nothing(aio: Asyncio, destination: BulkDestination) -> None:
    await assert_it_says_nothing(aio, destination, Reply(count=1))


@pytest.mark.parametrize(
    "item", [b'{"create":{"status":201}}', b"{}", b'{"index":{"_id":"x","status":201}}', b'{"index":{}}']
)
async def test_an_answer_about_something_else_says_nothing(
    aio: Asyncio, destination: BulkDestination, item: bytes
) -> None:
    body = b'{"errors":false,"items":[%b,%b]}' % (item, item)
    await assert_it_says_nothing(aio, destination, Reply(status=200, body=body))


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("only write ops with an op_type of create are allowed in data streams", Outcome.HELD),
        ("no write index is defined for alias [state-inventory]", Outcome.LATER),
    ],
)
async def test_what_the_cluster_causes_gives_no_version_up(
    aio: Asyncio, destination: BulkDestination, reason: str, outcome: Outcome
) -> None:
    body = (
        b'{"errors":true,"items":[{"index":{"status":400,"error":'
        b'{"type":"illegal_argument_exception","reason":"%b"}}}]}' % reason.encode()
    )
    destination.script = lambda request, _: Reply(status=200, body=body)
    (answers,) = await sent(aio, output(destination), state(("k", 1, b"{}")))

    assert answers[0].outcome is outcome
    assert answers[0].of_target
    assert reason in answers[0].reason


_FENCED = "version conflict, current version [%d] is higher or equal to the one provided [5]"


def test_the_version_that_a_conflict_tells_of_is_read_from_its_end() -> None:
    for reason, current in [
        (f"[:c:k]: {_FENCED % 7}", 7),
        (f"[{_FENCED % 9}]: {_FENCED % 7}", 7),
        (f"[{_FENCED % 9}]: something else", None),
        (f"[k]: {_FENCED % 2**63}", None),
        ("", None),
    ]:
        (request,) = keyed.encode(
            state(("k", 5, b"{}")), template="x", deletions="mark", limit=1024, compression="none"
        )
        error = {"type": "version_conflict_engine_exception", "reason": reason}
        answer = json.dumps({"items": [{"index": {"status": 409, "error": error}}]}).encode()

        assert [conflict.current for conflict in keyed.read(answer, request, ["x"]).conflicts] == [current]
