"""The bulk format: bodies of requests, and what an answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from shipper.plugin import Answer, Batch, Held, Later, Outcome, TooLarge
from shipper.sdk.joining import together
from shipper_plugins.elasticsearch.client import bulk, encoding

_MIB = 1 << 20
_STREAM = {"type": "logs", "dataset": "nginx", "namespace": "prod"}
_SECRET = "hunter2"


def lines(count: int, shared: Mapping[str, Any] | None = None) -> Batch:
    text = b"".join(b"line %d\n" % i for i in range(count))
    batch = Batch.lines(text, offset=0, shared={"data_stream": _STREAM} if shared is None else dict(shared))
    return replace(batch, origin=b"0123456789abcdef", seq=7)


def encode(batch: Batch, index: str | None = None, limit: int = _MIB) -> list[encoding.Request]:
    return encoding.encode(batch, index=index, limit=limit, compression="none")


def text(request: encoding.Request) -> bytes:
    return b"".join(request.body)


def pairs(request: encoding.Request) -> list[tuple[Any, Any]]:
    rows = [json.loads(row) for row in text(request).split(b"\n")[:-1]]
    return list(zip(rows[::2], rows[1::2], strict=True))


def one(batch: Batch, index: str | None = None) -> encoding.Request:
    (request,) = encode(batch, index)
    return request


# -- requests ----------------------------------------------------------------------------------------------------------


def test_an_event_is_a_create_under_its_id_and_the_document() -> None:
    batch = lines(2)
    request = one(batch)

    assert pairs(request) == [
        ({"create": {"_id": id}}, event) for id, event in zip(request.ids(), batch.whole(), strict=True)
    ]
    assert request.ids() == ["MDEyMzQ1Njc4OWFiY2RlZg-7-0", "MDEyMzQ1Njc4OWFiY2RlZg-7-1"]


@pytest.mark.parametrize(
    ("index", "client", "shared", "expected"),
    [
        ("own", "client", {"data_stream": _STREAM}, "own"),
        (None, "client", {"data_stream": _STREAM}, "client"),
        (None, None, {"data_stream": _STREAM}, "logs-nginx-prod"),
        (None, None, {}, "logs-generic-default"),
    ],
)
def test_the_index_is_ours_or_the_clients_or_the_data_stream(
    index: str | None, client: str | None, shared: dict[str, Any], expected: str
) -> None:
    request = one(replace(lines(2, shared), route=client), index)

    assert request.index == expected
    assert all(action["create"].keys() == {"_id"} for action, _ in pairs(request))


def test_events_of_several_data_streams_each_name_their_own() -> None:
    request = one(Batch.events([{"data_stream": _STREAM}, {"data_stream": {"dataset": "app"}}]))

    assert request.index is None
    assert [action["create"]["_index"] for action, _ in pairs(request)] == ["logs-nginx-prod", "logs-app-default"]


def test_events_of_several_inputs_and_clients_go_in_one_request_each_to_its_own_index() -> None:
    streams = [{"data_stream": {**_STREAM, "dataset": name}} for name in ("a", "b")]
    batches = [
        replace(lines(2, streams[0]), seq=1),
        replace(lines(1, streams[1]), seq=2),
        replace(lines(1, {}), seq=3, route="theirs"),
        replace(lines(1, streams[0]), seq=4),
    ]
    joined = together(batches, ["data_stream"])
    request = one(joined)

    assert [action["create"]["_index"] for action, _ in pairs(request)] == [
        *["logs-a-prod"] * 2,
        "logs-b-prod",
        "theirs",
        "logs-a-prod",
    ]
    assert [document for _, document in pairs(request)] == [event for batch in batches for event in batch.whole()]
    assert request.ids() == [id for batch in batches for id in batch.id_texts()]


def test_events_that_all_name_the_same_data_stream_need_not_say_so() -> None:
    assert one(Batch.events([{"data_stream": _STREAM}] * 2)).index == "logs-nginx-prod"


def test_a_name_that_is_not_plain_never_gets_into_the_url() -> None:
    for name in ['a"}}\n{"delete":{}}', "../x", "_search?q=", "a b", "é", "a\r\nHost: b", "A"]:
        request = one(replace(lines(2), route=name))

        assert request.index is None
        assert [action["create"]["_index"] for action, _ in pairs(request)] == [name, name]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 2000))
def test_however_it_is_split_no_event_is_lost(sizes: list[int], limit: int) -> None:
    batch = Batch.lines(b"".join(b"x" * size + b"\n" for size in sizes), offset=0, shared={})
    requests = encode(batch, limit=limit)

    assert b"".join(map(text, requests)) == text(one(batch))
    assert [id for request in requests for id in request.ids()] == one(batch).ids()
    assert [request.first for request in requests] == [sum(r.count for r in requests[:i]) for i in range(len(requests))]
    assert all(len(text(request)) <= limit or request.count == 1 for request in requests)


def test_a_batch_without_events_needs_no_request() -> None:
    assert encode(Batch.documents([])) == []


def test_gzip_is_the_same_body() -> None:
    (request,) = encoding.encode(lines(50), index=None, limit=_MIB, compression="gzip")

    assert isal_zlib.decompress(text(request), 31) == text(one(lines(50)))


def test_a_batch_whose_count_is_wrong_is_never_sent() -> None:
    with pytest.raises(ValueError, match="a column of 2 for 3 rows"):
        one(replace(lines(2), count=3))
    with pytest.raises(ValueError, match="a batch of 99999 events has 40000 lines"):
        encode(replace(lines(40_000), count=99_999))


def test_ids_that_a_client_gave_are_known_when_they_are_too_long() -> None:
    batch = Batch.documents([b"{}"] * 4, ids=["x" * 512, "x" * 513, "é" * 257, None])

    assert list(encoding.unfit(batch)) == [1, 2]


# -- answers -----------------------------------------------------------------------------------------------------------


def answer(request: encoding.Request, changes: Mapping[int, Mapping[str, Any]] | None = None, **top: Any) -> bytes:
    items = [
        {"create": {"_id": id, "status": 201} | dict((changes or {}).get(i, {}))} for i, id in enumerate(request.ids())
    ]
    return json.dumps({"errors": bool(changes), "items": items} | top, separators=(",", ":")).encode()


def refused(status: int, type: str | None = None, reason: str | None = None) -> dict[str, Any]:
    return {"status": status, "error": {"type": type, "reason": reason}}


def settlement(status: int, type: str | None = None, reason: str | None = None) -> Answer | None:
    request = one(lines(1))
    return bulk.read(answer(request, {0: refused(status, type, reason)}), request).get(0)


def test_the_common_answer_is_read_without_parsing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request = one(lines(3))
    monkeypatch.setattr(bulk, "_bulk", None)

    assert bulk.read(answer(request), request) == {}


@pytest.mark.parametrize("indent", [None, 2])
def test_however_it_is_written_all_created_is_all_delivered(indent: int | None) -> None:
    request = one(lines(3))
    shuffled = {"items": [{"create": {"status": 200, "_id": id, "x": [1]}} for id in request.ids()], "errors": True}

    assert bulk.read(json.dumps(shuffled, indent=indent).encode(), request) == {}


def test_each_item_has_its_own_answer() -> None:
    request = one(lines(4))
    changes = {1: refused(409), 2: refused(429, "rejected_execution_exception"), 3: refused(400, "x_exception")}

    assert bulk.read(answer(request, changes), request) == {
        1: Answer(Outcome.DUPLICATE, "409"),
        2: Answer(Outcome.LATER, "429 rejected_execution_exception", code="overloaded"),
        3: Answer(Outcome.REJECTED, "400 x_exception"),
    }


_NO_WRITE_INDEX = (
    "no write index is defined for alias [logs]. The write index may be explicitly disabled using is_write_index=false"
    " or the alias points to multiple indices without one being designated as a write index"
)


def test_answers_of_a_later_request_have_their_place_in_the_batch() -> None:
    second = encode(lines(100), limit=1024)[1]

    assert list(bulk.read(answer(second, {2: refused(409)}), second)) == [second.first + 2]


def test_status_and_type_decide() -> None:
    for status, type, outcome in [
        (200, None, None),
        (201, None, None),
        (409, "version_conflict_engine_exception", Outcome.DUPLICATE),
        (409, None, Outcome.DUPLICATE),
        (409, "illegal_state_exception", Outcome.LATER),
        (400, "mapper_parsing_exception", Outcome.REJECTED),
        (400, "document_parsing_exception", Outcome.REJECTED),
        (400, "invalid_index_name_exception", Outcome.REJECTED),
        (400, "index_closed_exception", Outcome.LATER),
        (413, None, Outcome.REJECTED),
        (422, None, Outcome.REJECTED),
        (404, "index_not_found_exception", Outcome.LATER),
        (429, "rejected_execution_exception", Outcome.LATER),
        (429, "cluster_block_exception", Outcome.LATER),
        (403, "cluster_block_exception", Outcome.LATER),
        (403, "security_exception", Outcome.HELD),
        (403, None, Outcome.HELD),
        (401, "security_exception", Outcome.HELD),
        (408, None, Outcome.LATER),
        (500, None, Outcome.LATER),
        (503, "unavailable_shards_exception", Outcome.LATER),
        (0, None, Outcome.LATER),
        (302, None, Outcome.LATER),
        (999, None, Outcome.LATER),
    ]:
        found = settlement(status, type)

        assert (found.outcome if found else None) == outcome


def test_what_an_index_is_the_cause_of_holds_for_all_its_events() -> None:
    for status, type, of_index in [
        (403, "security_exception", True),
        (404, "index_not_found_exception", True),
        (403, "cluster_block_exception", True),
        (400, "index_closed_exception", True),
        (503, "unavailable_shards_exception", True),
        (500, "illegal_state_exception", True),
        (401, "security_exception", False),
        (429, "es_rejected_execution_exception", False),
        (400, "mapper_parsing_exception", False),
        (409, "version_conflict_engine_exception", False),
        (500, None, False),
    ]:
        found = settlement(status, type)

        assert found is not None
        assert found.of_target is of_index


_ARGUMENT = "illegal_argument_exception"
_OF_THE_CLUSTER = {
    (Outcome.LATER, "validation_exception"): [
        "Validation Failed: 1: this action would add [2] shards, but this cluster currently has [63]/[1]"
        " maximum normal shards open; for more information, see https://www.elastic.co/guide;",
        "Validation Failed: 1: this action would add [2] total shards, but this cluster currently has"
        " [67]/[1] maximum shards open;",
    ],
    (Outcome.LATER, _ARGUMENT): [
        _NO_WRITE_INDEX,
        "alias [logs] has more than one index associated with it [logs-1, logs-2], can't execute a single index op",
        "Alias [logs] has more than one index associated with it [[logs-1, logs-2]], can't execute a single index op",
        "Number of documents in the index can't exceed [2147483519]",
        "Number of documents in the shard cannot exceed [2147483519]; for more information, see [https://…]",
        "Number of documents in shard [logs][0] exceeds the limit of [2147483519] documents per shard",
        "the number of source shards [4] must be a factor of [7]",
        "unknown setting [index.knn] please check that any required plugins are installed, or check the"
        " breaking changes documentation for removed settings",
        "Unknown filter type [pattern_capture] for [email]",
    ],
    (Outcome.LATER, "mapper_parsing_exception"): [
        "Failed to parse mapping: unknown parameter [properties] on mapper [a] of type [keyword]",
        "Failed to parse mapping [_doc]: unknown parameter [properties] on mapper [a] of type [keyword]",
    ],
    (Outcome.LATER, "invalid_alias_name_exception"): [
        "Invalid alias name [taken]: an index or data stream exists with the same name as the alias",
        "Invalid alias name [taken], an index exists with the same name as the alias",
    ],
    (Outcome.HELD, _ARGUMENT): [
        "pipeline with id [geoip] does not exist",
        "only write ops with an op_type of create are allowed in data streams",
        "index request with op_type=create targeting backing indices is disallowed, target corresponding"
        " data stream [logs-app-prod] instead",
        "index request with op_type=index and no if_primary_term and if_seq_no set targeting backing"
        " indices is disallowed, target corresponding data stream [logs-app-prod] instead",
        "no matching index template found for data stream [logs-app-prod]",
        "matching index template [logs] for data stream [logs-app-prod] has no data stream template",
    ],
    (Outcome.HELD, "validation_exception"): [
        "Validation Failed: 1: Operation [INDEX] is not allowed with a custom document id :c:a key as"
        " setting `index.append_only.enabled` is enabled for this index: state-c;",
        "Validation Failed: 1: Operation [DELETE] is not allowed as setting `index.append_only.enabled` is"
        " enabled for this index: state-c;",
    ],
}
"""As Elasticsearch 8.19 and OpenSearch 2.19 say it, where they could be brought to say it."""


@pytest.mark.parametrize(
    ("outcome", "type", "reason"), [(*of, reason) for of, reasons in _OF_THE_CLUSTER.items() for reason in reasons]
)
def test_a_400_that_says_nothing_of_the_event_makes_no_dead_letter(outcome: Outcome, type: str, reason: str) -> None:
    found = settlement(400, type, reason)

    assert found is not None
    assert found.outcome is outcome
    assert found.of_target
    assert found.reason.startswith(f"400 {type}: {reason[:20]}")


def test_a_time_series_makes_no_dead_letters_of_events_for_their_ids() -> None:
    reason = (
        "[1:48] failed to parse: _id must be unset or set to [Ydun6DMGQpWEVIQoAAABoiSZ-AA] but was [0123-7] because"
        " [.ds-metrics-2026.11.29-000001] is in time_series mode"
    )
    found = settlement(400, "document_parsing_exception", reason)

    assert found is not None
    assert (found.outcome, found.of_target) == (Outcome.HELD, True)
    assert found.reason == "400 document_parsing_exception: _id must be unset"


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        ("document_parsing_exception", "[1:23] failed to parse: Limit of total fields [2] has been exceeded"),
        ("illegal_argument_exception", "Limit of total fields [2] has been exceeded"),
        ("document_parsing_exception", "[1:13] failed to parse: Limit of mapping depth [2] has been exceeded due to"),
        ("strict_dynamic_mapping_exception", "mapping set to strict, dynamic introduction of [a] within [_doc]"),
        ("timestamp_error", "the document timestamp [2020-01-01T00:00:00.000Z] is outside of ranges of currently"),
        ("illegal_argument_exception", "Error extracting routing: source didn't contain any routing fields"),
        ("illegal_argument_exception", "Field name [abcdefghij] is longer than the limit of [5] characters"),
        ("illegal_argument_exception", "data_stream [logs-A] must be lowercase"),
        ("invalid_index_name_exception", "Invalid index name [Foo], must be lowercase"),
        ("document_parsing_exception", "[1:8] failed to parse: data stream timestamp field [@timestamp] is missing"),
        ("mapper_parsing_exception", "failed to parse"),
        ("document_parsing_exception", "[1:2] failed to parse: no write index is defined for alias [logs]"),
        ("document_parsing_exception", "[1:10] failed to parse field [a]. Preview of value: 'maximum shards open'"),
        (
            "document_parsing_exception",
            "[1:2] failed to parse field [a] of type [long]: because [a] is in time_series mode",
        ),
    ],
)
def test_a_400_that_says_something_of_the_event_makes_a_dead_letter_of_it_alone(type: str, reason: str) -> None:
    found = settlement(400, type, reason)

    assert found is not None
    assert (found.outcome, found.of_target) == (Outcome.REJECTED, False)


def test_an_index_that_wants_a_routing_makes_no_dead_letters_of_events_that_have_none() -> None:
    found = settlement(400, "routing_missing_exception", "routing is required for [logs]/[1]")

    assert found is not None
    assert (found.outcome, found.of_target) == (Outcome.HELD, True)


def test_a_request_that_the_state_of_the_cluster_refuses_as_a_whole_is_later() -> None:
    error = {"type": "illegal_argument_exception", "reason": _NO_WRITE_INDEX}
    refused = bulk.refusal(400, {}, json.dumps({"error": error, "status": 400}).encode(), "es:9200")

    assert isinstance(refused, Later)
    assert str(refused).endswith("(illegal_argument_exception): no write index is defined for alias [logs]")


@pytest.mark.parametrize("error", ["a text", None, {}, {"type": "x", "caused_by": {"reason": [1]}}])
def test_an_error_may_have_any_form(error: Any) -> None:
    request = one(lines(1))
    found = bulk.read(answer(request, {0: {"status": 400, "error": error}}), request)

    assert found[0].outcome is Outcome.REJECTED


# -- nothing of an event in a reason -----------------------------------------------------------------------------------

_QUOTING = [
    f"failed to parse field [size] of type [long] in document with id 'x'. Preview of field's value: '{_SECRET}'",
    f"[1:12] failed to parse field [a.b] of type [date] in document with id 'x'. Preview of field's value: '{_SECRET}'",
    f"failed to parse date field [{_SECRET}] with format [strict_date_optional_time]",
    f'For input string: "{_SECRET}"',
    f"unable to parse '{_SECRET}' as ip",
    f"[{_SECRET}] is not an IP string literal.",
    f'Document contains at least one immense term in field="message" (whose UTF8 encoding is longer than the max'
    f" length 32766), all of which were skipped. The prefix of the first immense term is: '[104, 117]...' {_SECRET}",
    f"object mapping for [user] tried to parse field [user] as object, but found a concrete value {_SECRET}",
    f"mapping set to strict, dynamic introduction of [{_SECRET} text] within [_doc] is not allowed",
    f"failed to parse field [{_SECRET} with spaces] of type [long]",
    f"{_SECRET}: failed to parse field [size] of type [long]",
    f"failed to parse\nfailed to parse field [{_SECRET}] of type [long]",
    f"data stream timestamp field [@timestamp] is missing {_SECRET}",
]


def test_a_reason_never_quotes_a_value() -> None:
    for reason in _QUOTING:
        found = settlement(400, "document_parsing_exception", reason)

        assert found is not None
        assert found.reason.startswith("400 document_parsing_exception")
        assert _SECRET not in found.reason


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_unknown_text_of_a_backend_is_repeated(type: str, reason: str) -> None:
    found = settlement(400, type + "!", reason + _SECRET)

    assert found is not None
    assert found.reason == "400"


def test_type_and_field_are_told() -> None:
    for reason, expected in [
        (_QUOTING[0], "400 x: failed to parse field [size] of type [long]"),
        (_QUOTING[1], "400 x: failed to parse field [a.b] of type [date]"),
        (
            "object mapping for [a.user] tried to parse field [user] as object, but found a concrete value",
            "400 x: object mapping for [a.user] tried to parse field [user] as object",
        ),
        ("no such index [logs-a] and [action.auto_create_index] is [false]", "400 x: no such index [logs-a]"),
        (
            "index [a] blocked by: [FORBIDDEN/8/index write (api)];",
            "400 x: index [a] blocked by: [FORBIDDEN/8/index write (api)]",
        ),
        (
            "blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has"
            " read-only-allow-delete block; for more information, see https://www.elastic.co];",
            "400 x: blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index has"
            " read-only-allow-delete block",
        ),
        (
            "no such index [a] and [action.auto_create_index] contains [-a*] which forbids automatic creation of the",
            "400 x: no such index [a]",
        ),
        (
            "no such index [composable template [a*] forbids index auto creation]",
            "400 x: no such index [composable template [a*] forbids index auto creation]",
        ),
        (
            "[1:8] failed to parse: data stream timestamp field [@timestamp] is missing",
            "400 x: data stream timestamp field [@timestamp] is missing",
        ),
        ("Limit of total fields [1000] has been exceeded", "400 x: Limit of total fields [1000] has been exceeded"),
    ]:
        found = settlement(400, "x", reason)

        assert found is not None
        assert found.reason == expected


_DENIED = [
    "action [indices:data/write/bulk[s]] is unauthorized for API key id [Ruext-ZMB_1] of user [elastic] on indices"
    " [logs-nginx-default], this action is granted by the index privileges [create_doc,create,delete,index,write,all]",
    "action [indices:admin/auto_create] is unauthorized for user [shipper] with effective roles [a,b] on indices"
    " [logs-a-b], this action is granted by the index privileges [auto_configure,create_index,manage,all]",
    "action [cluster:monitor/main] is unauthorized for user [bob] with roles [reporting], this action is granted by"
    " the cluster privileges [monitor,manage,all]",
    "action [indices:data/write/bulk] is unauthorized for service account [elastic/fleet-server]",
]


@pytest.mark.parametrize("reason", _DENIED)
def test_which_action_is_missing_and_what_grants_it_is_told(reason: str) -> None:
    found = settlement(403, "security_exception", reason)
    body = json.dumps({"error": {"type": "security_exception", "reason": reason}}).encode()
    whole = bulk.refusal(403, {}, body, "es")

    assert found is not None
    assert found.reason == f"403 security_exception: {reason}"
    assert str(whole) == f"403 Forbidden from es (security_exception): {reason}"


@pytest.mark.parametrize("reason", _DENIED)
def test_what_follows_such_a_reason_or_hides_in_its_brackets_is_not(reason: str) -> None:
    for bracket in range(reason.count("[")):
        before, after = reason.split("[")[: bracket + 1], reason.split("[")[bracket + 1 :]
        forged = "[".join(before) + f"[the password is {_SECRET} and " + "[".join(after)
        found = settlement(403, "security_exception", forged)

        assert found is not None
        assert _SECRET not in found.reason
    for forged in (reason + _SECRET, f"{_SECRET} {reason}", f"fai[1:2] led to parse {_SECRET}"):
        found = settlement(403, "security_exception", forged)

        assert found is not None
        assert _SECRET not in found.reason


# -- answers that say nothing ------------------------------------------------------------------------------------------


def test_no_beginning_of_an_answer_is_an_answer() -> None:
    request = one(lines(3))
    whole = answer(request)

    for length in range(len(whole)):
        with pytest.raises(Later):
            bulk.read(whole[:length], request)


def test_an_answer_that_is_none_says_later() -> None:
    for body in [
        b"",
        b"<html>502</html>",
        b"null",
        b"[]",
        b'"created"',
        b'{"errors":false}',
        b'{"errors":false,"items":{}}',
        b'{"errors":false,"items":[]}',
        b'{"errors":false,"items":[{"create":{}},{"create":{}}]}',
        b'{"errors":false,"items":[{"index":{"status":201}},{"index":{"status":201}}]}',
        b'{"errors":false,"items":[{"create":{"status":"201"}},{"create":{"status":201}}]}',
        b'{"errors":false,"items":[{"create":{"status":1e400}},{"create":{"status":201}}]}',
        b'{"errors":false,"items":[null,null]}',
        b'{"error":{"type":"x","reason":"y"},"status":400}',
        b'{"items":' + b"[" * 100_000,
        b'{"x":' + b"[" * 100_000,
        b"\xff\xfe",
        b'{"errors":false,"items":[{"create":{"_id":"\xff","status":201}},{"create":{"status":400}}]}',
    ]:
        with pytest.raises(Later):
            bulk.read(body, one(lines(2)))


@pytest.mark.parametrize("count", [2, 4])
def test_an_answer_for_fewer_or_more_events_says_nothing_of_any(count: int) -> None:
    other = one(lines(count))

    with pytest.raises(Later, match=f"{count} items for 3 events"):
        bulk.read(answer(other), one(lines(3)))
    with pytest.raises(Later):
        bulk.read(answer(other, {0: refused(409)}), one(lines(3)))


def test_an_item_too_many_is_seen_although_all_events_were_created() -> None:
    request = one(lines(2))
    body = answer(request).replace(b'"items":[', b'"items":[{"create":{"status":400}},')

    with pytest.raises(Later, match="3 items for 2 events"):
        bulk.read(body, request)


def test_items_in_another_order_say_nothing() -> None:
    request = one(lines(2))
    first, second = request.ids()
    items = [{"create": {"_id": second, **refused(400)}}, {"create": {"_id": first, "status": 201}}]

    with pytest.raises(Later, match="order"):
        bulk.read(json.dumps({"errors": True, "items": items}).encode(), request)


@pytest.mark.parametrize("ids", [None, ["a", None, 'c"é'], ["a", "b", None]])
def test_an_answer_that_is_another_requests_says_nothing_though_it_says_created(ids: list[str | None] | None) -> None:
    """A proxy that answers twice, or mixes connections up, must not make delivered what was never sent on."""
    batch = replace(lines(3), ids=ids)
    request, retried, other = one(batch), one(batch), one(replace(batch, seq=8, ids=ids and ["a", "x", "y"]))

    assert bulk.read(answer(retried), request) == {}
    with pytest.raises(Later, match="order"):
        bulk.read(answer(other), request)


def test_the_answer_for_another_part_of_a_batch_is_another_requests() -> None:
    first, second = encode(lines(2), limit=100)

    with pytest.raises(Later, match="order"):
        bulk.read(answer(first), second)


def test_a_backend_that_never_tells_ids_is_believed() -> None:
    request = one(lines(2))
    items = [{"create": {"status": 201}}] * 2

    assert bulk.read(json.dumps({"errors": False, "items": items}, separators=(",", ":")).encode(), request) == {}


def test_an_item_without_its_id_is_taken_by_its_place() -> None:
    """OpenSearch answers 403 with `"_id": null`."""
    request = one(lines(2))

    assert list(bulk.read(answer(request, {1: {"_id": None, **refused(403)}}), request)) == [1]


def test_the_flag_alone_is_never_believed() -> None:
    request = one(lines(2))

    assert list(bulk.read(answer(request, {1: refused(400)}, errors=False), request)) == [1]


def test_an_id_cannot_stand_in_for_an_item() -> None:
    """A client's id is text of a stranger: it must not be counted as an answer."""
    forged = 'x","status":201}},{"create":{"_id":"y'
    request = one(Batch.documents([b"{}"], ids=[forged]))

    assert bulk.read(answer(request), request) == {}
    assert bulk.read(answer(request, {0: refused(400)}, errors=False), request)[0].outcome is Outcome.REJECTED


# -- content encodings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
def test_a_gzipped_answer_is_inflated(encoding: str) -> None:
    assert bulk.inflated(isal_zlib.compress(b"answer", 1, 31), encoding) == b"answer"


def test_a_broken_or_strange_encoding_says_later() -> None:
    for body, name in [
        (b"no gzip", "gzip"),
        (isal_zlib.compress(b"answer" * 100, 1, 31)[:-9], "gzip"),
        (b"", "gzip"),
        (b"x", "br"),
        (b"x", "gzip, gzip"),
    ]:
        with pytest.raises(Later):
            bulk.inflated(body, name)


# -- requests as a whole -----------------------------------------------------------------------------------------------


def test_a_request_that_was_refused_as_a_whole() -> None:
    for status, body, kind, code, reason in [
        (401, b"Unauthorized", Held, "unauthorized", "401 Unauthorized from es:9200"),
        (403, b"", Held, "forbidden", "403 Forbidden from es:9200"),
        (403, _said("security_exception"), Held, "forbidden", "(security_exception)"),
        (403, _said("cluster_block_exception"), Later, "unavailable", "(cluster_block_exception)"),
        (413, b"", TooLarge, "too_large", "413"),
        (429, _said("rejected_execution_exception"), Later, "overloaded", "429 Too Many Requests"),
        (408, b"", Later, "unavailable", "408"),
        (500, b"hunter2", Later, "unavailable", "500 Internal Server Error from es:9200"),
        (503, b"OpenSearch Security not initialized.", Later, "unavailable", "503 Service Unavailable from es:9200"),
        (502, b"<html>hunter2</html>", Later, "unavailable", "502 Bad Gateway from es:9200"),
        (599, b"", Later, "unavailable", "599 from es:9200"),
        (204, b"", Later, "unavailable", "204"),
        (400, _said("illegal_argument_exception"), Held, "refused", "(illegal_argument_exc"),
        (404, b'{"error":"no handler hunter2"}', Held, "refused", "404 Not Found from es:9200"),
        (405, b"", Held, "refused", "405"),
        (406, b'{"error":"Content-Type hunter2","status":406}', Held, "refused", "406 Not Acceptable from es:9200"),
        (302, b"", Held, "refused", "302 Found from es:9200"),
    ]:
        error = bulk.refusal(status, {}, body, "es:9200")

        assert (type(error), error.code) == (kind, code)
        assert reason in str(error)
        assert _SECRET not in str(error)


def _said(type: str) -> bytes:
    return b'{"error":{"type":"%b","reason":"hunter2"}}' % type.encode()


@given(st.binary(max_size=300), st.sampled_from([400, 401, 403, 413, 429, 500]), st.sampled_from(["", "gzip", "br"]))
def test_no_body_of_an_error_is_repeated_or_breaks_anything(body: bytes, status: int, encoding: str) -> None:
    error = bulk.refusal(status, {"Content-Encoding": encoding}, body, "es:9200")

    assert str(error) == str(bulk.refusal(status, {}, b"", "es:9200"))


def test_the_type_of_an_error_that_came_gzipped_is_read() -> None:
    body = isal_zlib.compress(b'{"error":{"type":"cluster_block_exception"}}', 1, 31)

    assert isinstance(bulk.refusal(403, {"Content-Encoding": "gzip"}, body, "es:9200"), Later)


_NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def test_a_wish_to_wait_is_seconds_or_a_date_and_at_most_an_hour() -> None:
    for value, seconds in [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("999999", 3600.0),
        (format_datetime(_NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(_NOW - timedelta(seconds=90), usegmt=True), 0.0),
        (format_datetime(_NOW + timedelta(days=90), usegmt=True), 3600.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("٧", None),
        ("Fri, 99 Nov 2026 12:00:00 GMT", None),
    ]:
        assert bulk.retry_after({"Retry-After": value}, _NOW) == seconds


def test_a_date_is_compared_with_the_backends_own_clock() -> None:
    headers = {
        "Date": format_datetime(_NOW - timedelta(days=400), usegmt=True),
        "Retry-After": format_datetime(_NOW - timedelta(days=400, seconds=-5), usegmt=True),
    }

    assert bulk.retry_after(headers, _NOW) == 5.0


@given(st.text(max_size=60))
def test_no_wish_to_wait_breaks_anything(value: str) -> None:
    seconds = bulk.retry_after({"Retry-After": value, "Date": value}, _NOW)

    assert seconds is None or 0 <= seconds <= 3600
