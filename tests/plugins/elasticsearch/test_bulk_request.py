"""A bulk request is read in blocks of any size; what is stored is valid, and every item has its answer."""

import json
import time
import tracemalloc

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.plugin import DataStream
from shipper_plugins import data_streams
from shipper_plugins.elasticsearch.server import answer as bulk_answer
from shipper_plugins.elasticsearch.server import request as bulk_request
from shipper_plugins.elasticsearch.server.answer import RequestRefused, filtered
from shipper_plugins.elasticsearch.server.request import BulkRequest

STREAM = {"type": "logs", "dataset": "generic", "namespace": "default"}


def read(body, *, step=None, index=None, filter_path=""):
    """The batches and the decoded answer of a body that comes in blocks of `step` bytes."""
    request = BulkRequest(stream=DataStream(), index=index, filter_path=filter_path)
    step = step or len(body) or 1
    for at in range(0, len(body), step):
        request.feed(body[at : at + step])
    batches = request.finish()
    return batches, orjson.loads(request.answers.body(7))


def body_of(*lines):
    return b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines)


def refusal(body, **options):
    with pytest.raises(RequestRefused) as caught:
        read(body, **options)
    return caught.value


def statuses(answer):
    return [item["status"] for entry in answer["items"] for item in entry.values()]


def one(document):
    """The stored document and its status, of a request with this one document."""
    batches, answer = read(body_of({"create": {}}, document))
    return (batches[0].body if batches else None), statuses(answer)[0]


# -- where documents go ------------------------------------------------------------------------------------------------


def test_an_index_of_the_form_of_a_data_stream_is_shared_by_the_batch():
    [batch], answer = read(body_of({"create": {"_index": "logs-nginx.access-prod"}}, {"@timestamp": "t", "a": 1}))

    assert batch.route is None
    assert batch.shared == {"data_stream": {"type": "logs", "dataset": "nginx.access", "namespace": "prod"}}
    assert batch.body == b'{"@timestamp":"t","a":1}\n'
    assert answer == {
        "errors": False,
        "took": 7,
        "items": [
            {
                "create": {
                    "_index": "logs-nginx.access-prod",
                    "_id": "",
                    "_version": 1,
                    "result": "created",
                    "status": 201,
                }
            }
        ],
    }


def test_any_other_index_is_kept_as_the_index():
    [batch], _ = read(body_of({"index": {"_index": "shop"}}, {"@timestamp": "t"}))

    assert (batch.route, batch.shared) == ("shop", {})


def test_the_index_of_the_url_counts_where_the_action_names_none():
    first, second = read(body_of({"index": {}}, {}, {"index": {"_index": "b"}}, {}), index="a")[0]

    assert (first.route, second.route) == ("a", "b")


def test_without_any_index_the_stream_of_the_input_counts():
    [batch], answer = read(body_of({"index": {}}, {"@timestamp": "t"}))

    assert batch.shared == {"data_stream": STREAM}
    assert answer["items"][0]["index"]["_index"] == "logs-generic-default"


@pytest.mark.parametrize(
    "document",
    [
        *(
            b'{"data_stream":{"dataset":"own"}}',
            b'{"data_stream.dataset":"own"}',
            b'{"data\\u005fstream.dataset":"own"}',
        ),
        *(
            b'{"data_stream":null}',
            b'{"data_stream":{"dataset":"BAD X/../"}}',
            b'{"data_stream":["x"],"data_stream.type":1}',
        ),
    ],
)
def test_an_own_data_stream_becomes_that_of_the_named_index_and_goes_where_the_client_is_told(document):
    [named], _ = read(body_of({"create": {"_index": "logs-a-b"}}, document))
    [unnamed], answer = read(body_of({"create": {}}, document))

    assert named.whole()[0]["data_stream"] == {"type": "logs", "dataset": "a", "namespace": "b"}
    assert (named.route, unnamed.route) == ("logs-a-b", None)
    assert data_streams.of(unnamed) == [answer["items"][0]["create"]["_index"]]
    assert [key for batch in (named, unnamed) for key in batch.whole()[0] if key.startswith("data_stream.")] == []


@pytest.mark.parametrize(
    ("document", "stream"),
    [
        (b'{"data_stream":{"type":"metrics","dataset":"own","namespace":"prod"}}', "metrics-own-prod"),
        (b'{"data_stream":{"dataset":"own"},"n":1}', "logs-own-default"),
        (b'{"data_stream.dataset":"own","data_stream.namespace":"-"}', "logs-own-default"),
        (b'{"data_stream":{"type":"Logs","dataset":7,"namespace":"prod"}}', "logs-generic-prod"),
        (b'{"data_stream":{"type":"%b","namespace":"prod"}}' % (b"a" * 101), "logs-generic-prod"),
        (b'{"data_stream":"logs-own-prod"}', "logs-generic-default"),
    ],
)
def test_an_own_data_stream_is_kept_where_no_index_is_named_and_the_client_is_told(document, stream):
    [batch], answer = read(body_of({"create": {}}, document))

    assert (batch.route, data_streams.of(batch)) == (None, [stream])
    assert answer["items"][0]["create"]["_index"] == stream


def test_a_type_that_is_too_long_for_a_data_stream_is_part_of_a_plain_index():
    [longest, longer], _ = read(
        body_of(*(line for n in (100, 101) for line in ({"create": {"_index": "a" * n + "-b-c"}}, {"n": 1})))
    )

    assert longest.shared["data_stream"]["type"] == "a" * 100
    assert (longer.route, "data_stream" in longer.shared) == ("a" * 101 + "-b-c", False)


def test_a_document_that_says_where_it_goes_stays_the_bytes_that_came():
    document = b'{"n":1.50,"data_stream":{"type":"metrics","dataset":"own","namespace":"prod"}}'
    [batch], _ = read(body_of({"create": {}}, document))

    assert batch.body == document + b"\n"


@pytest.mark.parametrize("document", [b'{"data_stream":{"dataset":"own"}}', b'{"data_stream.dataset":"own"}'])
def test_an_own_data_stream_is_kept_under_an_index_that_is_none(document):
    [batch], _ = read(body_of({"create": {"_index": "plain"}}, document))

    assert (batch.route, batch.body) == ("plain", document + b"\n")


def test_an_own_data_stream_that_is_the_addressed_one_stays_as_it_stands():
    document = b'{"n":1.50,"data_stream": {"type":"logs","dataset":"a","namespace":"b"}}'
    [batch], _ = read(body_of({"create": {"_index": "logs-a-b"}}, document))

    assert (batch.route, batch.body) == ("logs-a-b", document + b"\n")


def test_what_else_stands_in_a_document_with_another_data_stream_stays_as_it_was_written():
    document = (
        b'{"n": 1.50,"data_stream":{"dataset":"own","more":1},"data_stream.x":2,"big":123456789012345678901234567890}'
    )
    [batch], _ = read(body_of({"create": {"_index": "logs-a-b"}}, document))

    assert batch.body.startswith(b'{"n":1.50,"big":123456789012345678901234567890,')
    assert batch.whole()[0]["data_stream"] == {"type": "logs", "dataset": "a", "namespace": "b", "more": 1, "x": 2}


def test_documents_with_and_without_a_time_go_in_one_batch_as_they_came():
    [batch], _ = read(body_of({"create": {}}, {"n": 1}, {"create": {}}, {"n": 2, "@timestamp": "own"}))

    assert batch.body == b'{"n":1}\n{"n":2,"@timestamp":"own"}\n'
    assert "@timestamp" not in batch.shared


@pytest.mark.parametrize("said", [b"1.50", b"1.5", b"1e2", b"100.0", b"-0", b"12345678901234567890123", b"true"])
def test_an_id_that_is_no_string_is_the_text_that_stands_there(said):
    """Two ids of a client are never one: the second document would be taken for the first."""
    batches, answer = read(b'{"index":{"_id": %b }}\n{"n":1}\n' % said)

    assert [batch.ids for batch in batches] == [(said.decode(),)]
    assert answer["items"][0]["index"]["_id"] == said.decode()


@pytest.mark.parametrize("said", [b"[1]", b"{}", b'"\xff"', b"1e999"])
def test_a_value_that_can_be_no_id_refuses_the_request(said):
    with pytest.raises(RequestRefused, match="Malformed action"):
        read(b'{"index":{"_id":%b}}\n{"n":1}\n' % said)


def test_an_id_of_the_client_is_kept():
    lines = [{"create": {"_id": 'a"b'}}, {}, {"create": {"_id": 5}}, {}, {"create": {}}, {}]
    [batch], answer = read(body_of(*lines))

    assert batch.ids == ('a"b', "5", None)
    assert [item["create"]["_id"] for item in answer["items"]] == ['a"b', "5", ""]


def test_many_documents_become_batches_of_about_a_mebibyte():
    document = orjson.dumps({"message": "x" * 10_000})
    batches, answer = read(body_of({"create": {}}, document) * 500, step=65536)

    assert sum(batch.count for batch in batches) == len(answer["items"]) == 500
    assert max(len(batch.body) for batch in batches) <= (1 << 20) + len(document)
    assert len(batches) == 5


# -- items that are refused --------------------------------------------------------------------------------------------


def test_update_and_delete_are_refused_and_their_lines_consumed():
    body = body_of(
        {"delete": {"_index": "a", "_id": "1"}}, {"update": {"_index": "a", "_id": "2"}}, {"doc": {}}, {"index": {}}, {}
    )
    [batch], answer = read(body)

    assert batch.count == 1
    assert statuses(answer) == [400, 400, 201]
    assert answer["errors"] is True


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"1",
        b"null",
        b'"text"',
        b"",
        b"{",
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":"\xff"}',
        b'{"\xff":1}',
        b'{"a":"\x00"}',
        b'{"a":1,"a":2}',
        b'{"a":{"b":[{"c":1,"c":1}]}}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":1}{"b":2}',
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"[" * 900 + b"]" * 900 + b',"a":1}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_sound_object_is_refused_and_the_others_go_on(document):
    [batch], answer = read(body_of({"create": {}}, document, {"create": {}}, {"ok": 1}))

    assert batch.body == b'{"ok":1}\n'
    assert statuses(answer) == [400, 201]
    assert answer["items"][0]["create"]["error"]["type"] == "document_parsing_exception"


def test_half_of_a_surrogate_pair_is_taken_as_the_backends_take_it():
    """JavaScript cuts texts in the middle of an emoji; a client drops what is answered 400."""
    cut = rb'{"message":"cut \ud83d","\udE00":"\ud83d\ude00 \\ud83d"}'
    batches, answer = read(body_of({"create": {}}, {"n": 1}, {"create": {}}, cut, {"create": {}}, {"n": 2}))

    assert statuses(answer) == [201] * 3
    stored = [orjson.loads(line) for batch in batches for line in batch.body.splitlines()]
    assert stored == [{"n": 1}, {"message": "cut \ufffd", "\ufffd": "\U0001f600 \\ud83d"}, {"n": 2}]


@pytest.mark.parametrize(
    "meta",
    [
        {"_index": name}
        for name in ("", "UPPER", "a/b", "a b", "-a", "_bulk", "+a", "..", "a*", "a\n", "a\x00", "é" * 200, "<a-{now}>")
    ]
    + [{"_id": ""}, {"_id": "x" * 513}, {"if_seq_no": 0, "if_primary_term": 1}, {"version": 3}],
)
def test_an_action_that_cannot_be_kept_is_refused(meta):
    batches, answer = read(body_of({"index": meta}, {}))

    assert batches == []
    assert statuses(answer) == [400]


@pytest.mark.parametrize(("member", "step"), [(b"{},", 1000), (b"0,", None)])
def test_a_document_that_would_unfold_to_too_much_is_refused_unread_and_the_others_go_on(member, step):
    document = b'{"a":[%b0]}' % (member * (4_000_000 // len(member)))
    tracemalloc.start()
    try:
        [batch], answer = read(body_of({"create": {}}, document, {"create": {}}, {"ok": 1}), step=step)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert batch.body == b'{"ok":1}\n'
    assert statuses(answer) == [400, 201]
    assert answer["items"][0]["create"]["error"]["reason"] == "the document would take more than 32MiB of memory"
    assert peak < 24 << 20


def test_what_a_document_unfolds_to_counts_as_held_while_it_comes():
    request = BulkRequest(stream=DataStream())
    request.feed(b'{"create":{}}\n{"a":"%b","b":[' % (b"x" * 600_000))
    before = request.held
    request.feed(b"[]," * 80_000)
    heavy = request.held
    request.feed(b"[]," * 1_000_000)

    assert before < 1 << 20 < 16 << 20 < heavy
    assert request.held < 1000


def test_an_answer_quotes_nothing_of_a_document():
    _, answer = read(body_of({"create": {}}, b'{"password":"hunter2"', {"create": {}}, b'{"hunter2":1,"hunter2":2}'))

    assert statuses(answer) == [400, 400]
    assert "hunter2" not in json.dumps(answer)


# -- requests that are refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        b"[]",
        b"x",
        b'{"create":1}',
        b'{"create":null}',
        b'{"frobnicate":{}}',
        b'{"create":{},"index":{}}',
        b"{}",
        b'{"create":{"_index":5}}',
        b'{"create":{"_id":{}}}',
        b'{"create":{"_index":"\xff"}}',
        b'{"create":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_a_malformed_action_refuses_the_whole_request(action):
    refused = refusal(body_of({"create": {}}, {"ok": 1}, action, {}))

    assert (refused.status, refused.type) == (400, "illegal_argument_exception")
    assert "line [3]" in refused.reason


@pytest.mark.parametrize("form", [b'{"create":{"version":[%b0]}}', b'{"create":{"_id":"%b"}}'])
@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_an_action_that_is_longer_than_anybody_needs_refuses_the_request(form, size):
    refused = refusal(body_of({"create": {}}, {"ok": 1}, form % (b"{}," * (size // 3)), {}), step=1 << 18)

    assert (refused.status, refused.reason) == (400, "the action of line [3] is longer than 64KiB")


@pytest.mark.parametrize("body", [b'{"create":{}}\n{}', b'{"create":{}}\n', b"\n\n", b"x"])
def test_a_body_that_ends_too_early_or_is_empty_is_refused(body):
    assert refusal(body).status == 400


def test_too_many_items_indices_or_data_streams_are_refused(monkeypatch):
    monkeypatch.setattr(bulk_request, "MOST_ITEMS", 3)
    monkeypatch.setattr(bulk_request, "MOST_PLACES", 2)

    assert refusal(body_of({"create": {}}, {}) * 4).status == 413
    assert refusal(body_of(*[line for i in range(3) for line in ({"create": {"_index": f"i{i}"}}, {})])).status == 413
    streams = [line for i in range(3) for line in ({"create": {}}, {"data_stream.dataset": f"i{i}"})]
    assert refusal(body_of(*streams)).status == 413


@pytest.mark.parametrize("head", [{"index": {}}, {"index": {"_id": "x"}}, {"delete": {}}])
def test_answers_that_are_larger_than_anybody_reads_refuse_the_request(head):
    """Two lines of 16 bytes are answered by the name of the index in the URL, whatever its length."""
    lines = (head,) if "delete" in head else (head, {})
    refused = refusal(body_of(*lines) * 20_000, index="a" * 4000, step=1 << 18)

    assert (refused.status, refused.reason) == (413, "the answers for so many items are larger than 64MiB")


def test_as_many_items_as_a_request_may_have_are_answered():
    """The answer to each is as long as that to any other."""
    _, answer = read(b'{"create":{}}\n{}\n' * 5000, step=1 << 18)

    assert len(answer["items"]) == 5000
    assert len(orjson.dumps(answer)) * bulk_request.MOST_ITEMS < 5000 * bulk_answer.MOST_BYTES


def test_what_is_answered_counts_as_held():
    request = BulkRequest(stream=DataStream(), index="a" * 200)
    request.feed(b'{"create":{}}\n{}\n' * 1000)

    assert request.held > request.answers.size > len(request.answers.body(1)) * 0.9


# -- bytes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b'{"a":1.50,"b":"\\/"}', b'{"a":1.50,"b":"\\/"}\n'),
        (b'{"a" : 1}', b'{"a" : 1}\n'),
        (b' {"a": 1}', b'{"a":1}\n'),
        (b'{ "a": 123456789012345678901234567890 }', b'{"a":123456789012345678901234567890}\n'),
        (b'{"a":\r1}', b'{"a":1}\n'),
        (b"{ }", b"{}\n"),
        (b'{"a":1}\r', b'{"a":1}\n'),
    ],
)
def test_a_document_stays_as_it_is_unless_it_begins_with_white_space_or_holds_a_carriage_return(sent, stored):
    assert one(sent) == (stored, 201)


def test_blank_lines_between_items_and_line_ends_of_windows_are_read():
    [batch], answer = read(b'\r\n{"create":{}}\r\n{"a":1}\r\n\n{"create":{}}\n{"b":2}\n \n')

    assert batch.body == b'{"a":1}\n{"b":2}\n'
    assert statuses(answer) == [201, 201]


def test_a_long_line_in_small_blocks_costs_linear_time():
    document = orjson.dumps({"message": "x" * (1 << 20)})
    [batch], _ = read(body_of({"create": {}}, document), step=64)

    assert len(batch.body) == len(document) + 1


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter_path", "expected"),
    [
        ("errors", {"errors": True}),
        ("took,items.*.status", {"took": 7, "items": [{"create": {"status": 201}}, {"index": {"status": 400}}]}),
        (
            "errors,items.*._id,items.*.error.type",
            {
                "errors": True,
                "items": [
                    {"create": {"_id": "1"}},
                    {"index": {"_id": "2", "error": {"type": "document_parsing_exception"}}},
                ],
            },
        ),
        ("items.*.error.ty*", {"items": [{"index": {"error": {"type": "document_parsing_exception"}}}]}),
        ("items.index.status", {"items": [{"index": {"status": 400}}]}),
        ("**.status", {"items": [{"create": {"status": 201}}, {"index": {"status": 400}}]}),
        ("nothing", {}),
    ],
)
def test_filter_path_keeps_what_it_names(filter_path, expected):
    body = body_of({"create": {"_id": "1"}}, {}, {"index": {"_id": "2"}}, [])

    assert read(body, filter_path=filter_path)[1] == expected


@given(st.text(alphabet="ab.*,-i", max_size=20))
def test_any_filter_path_gives_json(filter_path):
    assert isinstance(read(body_of({"create": {}}, {}), filter_path=filter_path)[1], dict)


@pytest.mark.parametrize("filter_path", ["**." * 2700 + "_id", "**." * 100 + "_id", "**.*." * 90 + "_id"])
def test_a_filter_of_many_stars_is_answered_soon(filter_path):
    """Each of many indices has its own answers; a hundred stars took 0.5 s for each, a thousand a RecursionError."""
    body = body_of(*({"create": {"_index": f"i{n}"}} if even else {} for n in range(900) for even in (True, False)))
    began = time.thread_time()
    _, answer = read(body, filter_path=filter_path)

    assert time.thread_time() - began < 2
    assert answer in ({}, {"items": [{"create": {"_id": ""}}] * 900})


def test_a_filter_of_more_names_than_anybody_needs_is_refused():
    refused = refusal(b"", filter_path=",".join(f"items.*.f{n}" for n in range(100)))

    assert (refused.status, refused.reason) == (400, "a filter_path has at most 200 names")


def test_the_filter_of_one_index_shows_another():
    body = body_of({"create": {"_index": ""}}, {}, {"create": {"_index": "logs"}}, {}, {"create": {"_index": ".."}}, {})
    answer = read(body, filter_path="items.*._index")[1]

    assert answer == {"items": [{"create": {"_index": index}} for index in ("", "logs", "..")]}


def test_a_filter_keeps_whole_branches():
    assert filtered({"a": {"b": 1}, "c": 2}, [("a",)]) == {"a": {"b": 1}}


# -- properties --------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(
    st.text(max_size=5).filter(lambda key: not key.startswith("data_stream")), values, max_size=5
)
metas = st.fixed_dictionaries(
    {},
    optional={
        "_index": st.sampled_from(["logs-a-b", "plain", "logs-x.y-prod"]),
        "_id": st.text(min_size=1, max_size=20),
    },
)
items = st.lists(st.tuples(st.sampled_from(["create", "index"]), metas, documents), min_size=1, max_size=8)


@given(items, st.integers(1, 200), st.booleans())
def test_what_is_built_is_read_back(built, step, spaced):
    dumps = (lambda value: json.dumps(value).encode()) if spaced else orjson.dumps
    lines = [dumps(line) for op, meta, document in built for line in ({op: meta}, document)]
    batches, answer = read(body_of(*lines), step=step)
    found = [(id, event) for b in batches for id, event in zip(b.ids or [None] * b.count, b.own(), strict=True)]

    assert statuses(answer) == [201] * len(built)
    assert sorted(map(repr, found)) == sorted(repr((meta.get("_id"), document)) for _, meta, document in built)


whole_lines = [b'{"create":{}}', b'{"index":{"_id":"1"}}', b'{"delete":{}}', b'{"update":{}}', b"{}", b'{"a":1}', b""]
scraps = [b"{", b"}", b"[", b"]", b'"', b'"a"', b",", b":", b"\r", b" ", b"\\u", b"\xff", b"\x00", b"1e9", b"NaN"]
fragments = st.sampled_from(whole_lines).map(lambda line: line + b"\n") | st.sampled_from(scraps)


@given(st.lists(fragments | st.binary(max_size=5), max_size=30).map(b"".join), st.integers(1, 50))
def test_any_bytes_are_answered_and_nothing_invalid_is_stored(body, step):
    try:
        batches, answer = read(body, step=step)
    except RequestRefused:
        return
    lines = [line for batch in batches for line in batch.body.split(b"\n")[:-1]]

    assert statuses(answer).count(201) == len(lines) == sum(batch.count for batch in batches)
    for line in lines:
        assert line.startswith((b'{"', b"{}"))
        assert isinstance(orjson.loads(line), dict)
        assert isinstance(msgspec.json.decode(line), dict)


@given(st.lists(fragments | st.binary(max_size=5), max_size=30).map(b"".join), st.integers(1, 50))
def test_the_cuts_between_blocks_do_not_matter(body, step):
    def outcome(step):
        try:
            return read(body, step=step)
        except RequestRefused as refused:
            return refused.body()

    assert outcome(step) == outcome(None)
