"""Pairs of lines are read many at once: whatever they hold, the outcome is that of lines that come one by one."""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shipper.plugin import DataStream
from shipper_plugins.elasticsearch.server import request as bulk_request
from shipper_plugins.elasticsearch.server.action import ids_at_once
from shipper_plugins.elasticsearch.server.answer import RequestRefused
from shipper_plugins.elasticsearch.server.document import DEEPEST, checked, own_streams
from shipper_plugins.elasticsearch.server.request import BulkRequest


def outcome(blocks, filter_path=""):
    """What is stored and answered, or why the request is refused."""
    request = BulkRequest(stream=DataStream(), filter_path=filter_path)
    try:
        for block in blocks:
            request.feed(block)
        batches = request.finish()
    except RequestRefused as refused:
        return refused.status, refused.body()
    return [(b.body, b.shared, b.route, b.ids, b.count) for b in batches], request.answers.body(7), request.held


def assert_as_one_by_one(lines, filter_path=""):
    blocks = [line + b"\n" for line in lines]

    assert outcome([b"".join(blocks)], filter_path) == outcome(blocks, filter_path)


def nested(levels):
    return b'{"a":' * levels + b"1" + b"}" * levels


HEADS = [
    b'{"create":{}}',
    b'{"index":{}}',
    b'{"create":{"_index":"logs-a-b"}}',
    b'{"index":{"_index":"plain"}}',
    b'{"create":{"_id":"x"}}',
    b'{"create": {"_id": "y", "_index": "plain"}}',
    b'{"create":{"_id":5}}',
    b'{"create":{"_id":1.5}}',
    b'{"create":{"_id":true}}',
]
STRANGE_HEADS = [
    *(b'{"delete":{"_id":"1"}}', b'{"update":{"_id":"1"}}', b"", b" ", b"x", b"{}", b'{"create":{"_index":"UPPER"}}'),
    *(b'{"create":{"_id":""}}', b'{"create":{"_id":"\xff"}}', b'{"create":{"version":3}}', b'{"create":{}}\r'),
]
DOCUMENTS = [
    *(b'{"a":1}', b"{}", b'{"@timestamp":"t","a":"\xc3\xa9"}', b'{"data_stream":{"dataset":"own"}}', b'{"a":1}\r'),
    *(b'{"data_stream.dataset":"own"}', b'{"data\\u005fstream.type":1}', b'{"a": [1, 2], "b": {}}', b'{"a":"\\u001b"}'),
]
STRANGE_DOCUMENTS = [
    *(
        b"",
        b"[]",
        b"1",
        b"{",
        b'{"a":1,"a":2}',
        b'{"a": 1, "a": 2}',
        b'{"a":{"b":[{"c":1,"c":1}]}}',
        b'{"a":1},{"b":2}',
    ),
    *(b'{"a":"\xff"}', b'{"a":1e999}', b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"a":1.50}', b' {"a": 1}', b'{"a":1} '),
    *(
        b'{"a":"\\/"}',
        b'{ "a":1}',
        b'{"a":\r1}',
        b'{"a\\/b":1,"a/b":2}',
        b'{"a":123456789012345678901234567890}',
        b"{ }",
    ),
    *(nested(DEEPEST), nested(DEEPEST + 1), nested(254), nested(255), b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}"),
]

documents = st.dictionaries(
    st.text(max_size=5) | st.sampled_from(["@timestamp", "data_stream", "data_stream.type"]),
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.text(), max_size=2),
    max_size=4,
)
as_bytes = documents.map(lambda made: json.dumps(made).encode()) | documents.map(
    lambda made: json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()
)
pairs = st.tuples(st.sampled_from(HEADS), st.sampled_from(DOCUMENTS) | as_bytes)
strange_pairs = st.tuples(
    st.sampled_from(HEADS + STRANGE_HEADS), st.sampled_from(DOCUMENTS + STRANGE_DOCUMENTS) | as_bytes
)
filters = st.sampled_from(["", "items.*._id", "errors,items.*.status", "took"])


@settings(deadline=None)
@given(st.lists(pairs, min_size=1, max_size=18) | st.lists(strange_pairs, max_size=8), filters)
def test_pairs_are_read_as_one_by_one(pairs, filter_path):
    assert_as_one_by_one([line for pair in pairs for line in pair], filter_path)


def test_one_strange_document_changes_no_other():
    for place, strange in [*((255, one) for one in STRANGE_DOCUMENTS), *((at, b"{") for at in (0, 256, 599))]:
        lines = [b'{"create":{}}', b'{"a":1}'] * 600
        lines[2 * place + 1] = strange

        assert_as_one_by_one(lines)


def test_one_strange_action_changes_no_other():
    for place, strange in [*((255, one) for one in STRANGE_HEADS + HEADS), *((at, b"{") for at in (0, 256, 599))]:
        lines = [line for n in range(600) for line in (b'{"create":{"_id":"id-%d"}}' % n, b'{"a":1}')]
        lines[2 * place] = strange

        assert_as_one_by_one(lines)


def test_documents_are_sound_together_only_if_each_is_and_is_stored_as_it_stands():
    for document in DOCUMENTS + STRANGE_DOCUMENTS + [b"{%b}" % (b" " * 300_000)]:
        found = own_streams([b'{"first":1}', document])

        if found is not None:
            assert checked(document) == (document, found[1])


@pytest.mark.parametrize("levels", [1, DEEPEST - 1, DEEPEST])
def test_documents_are_sound_together_up_to_the_deepest_level(levels):
    assert own_streams([nested(levels)]) == [None]
    assert own_streams([b"{}", nested(DEEPEST + 1)]) is None


def test_documents_of_many_names_for_a_data_stream_are_read_as_one_by_one():
    documents = [orjson.dumps({f"data_stream.{n}": 1, "n": n}) for n in range(300)]

    assert own_streams(documents) is None
    assert_as_one_by_one([line for document in documents for line in (b'{"create":{}}', document)])


def test_batches_are_cut_at_the_same_documents():
    lines = [line for n in range(3000) for line in (HEADS[n % 3000 // 1500], orjson.dumps({"n": n, "x": "y" * n}))]

    assert_as_one_by_one(lines)


def test_the_limits_on_items_and_indices_are_those_of_single_lines(monkeypatch):
    monkeypatch.setattr(bulk_request, "MOST_ITEMS", 30)
    monkeypatch.setattr(bulk_request, "MOST_PLACES", 3)

    for items in (29, 30, 31, 60):
        assert_as_one_by_one([b'{"create":{}}', b"{}"] * items)
    for indices in range(2, 6):
        heads = [b'{"create":{"_index":"i%d"}}' % n for n in range(indices)]
        assert_as_one_by_one([line for head in heads for line in (head, b"{}")])
        assert_as_one_by_one([line for head in [*heads[:2], b"x", *heads[2:]] for line in (head, b"{}")])
    monkeypatch.setattr(bulk_request, "MOST_ITEMS", 2)
    assert_as_one_by_one([line for n in range(6) for line in (b'{"create":{"_index":"i%d"}}' % n, b"{}")])


# -- ids ---------------------------------------------------------------------------------------------------------------

FORMS = [
    b'{"create":{"_id":"%b"}}',
    b'{"index": {"_index": "logs-a-b", "_id": "%b"}}',
    b'{"create":{"_id":"%b","_index":"plain"}}',
    b'{"create":{"_id":"%b","_id":"last"}}',
    b'{"create":{"_id":"first","_id":"%b"}}',
    b'{"create":{"routing":"%b"}}',
    b'{"create":{"x":{"_id":"%b"},"_id":"7"}}',
    b'{"create":{"x":{"_id":"%b"}}}',
    b'{"create":{"x":"\\"_id\\":\\"%b\\""}}',
    b'{"update":{"_id":"%b"}}',
    b'{"create":{"_id":"%b","version":1}}',
]
plain_ids = st.integers(0, 10**9).map(b"id-%d".__mod__)
strange_ids = st.sampled_from(
    [
        b"",
        b"x" * 512,
        b"x" * 513,
        b'a\\"b',
        b"\\u0061",
        b"\xc3\xa9",
        b"\xff",
        b'a","_id":"b',
        b"a b",
        b"\x00",
        b"\x7f",
        b"\\",
    ]
)


@settings(deadline=None)
@given(
    st.sampled_from(FORMS),
    st.lists(plain_ids, min_size=17, max_size=30, unique=True),
    st.lists(strange_ids, max_size=1),
    st.integers(0, 30),
    filters,
)
def test_actions_that_differ_in_their_id_are_read_as_one_by_one(form, ids, strange, place, filter_path):
    ids[place:place] = strange

    assert_as_one_by_one([line for id in ids for line in (form % id, b"{}")], filter_path)


def test_lines_that_differ_in_more_than_their_id_are_not_taken_at_once():
    for last in [b'{"create":{"_id":"bcde', b'{"create":{"_id":"b"}', b'{"create":{"_id":"b"}}}', b"{}", b""]:
        lines = [FORMS[0] % b"a", FORMS[0] % b"c"]

        assert ids_at_once([*lines, last]) is ids_at_once([lines[0], last, lines[1]]) is None


def test_ids_are_found_at_once_where_clients_write_them():
    assert ids_at_once([FORMS[1] % b"a", FORMS[1] % b"b"]) == ["a", "b"]


def test_what_is_no_id_is_not_taken_for_one():
    for form in [FORMS[3], *FORMS[5:9]]:
        assert ids_at_once([form % b"a", form % b"b"]) is None
