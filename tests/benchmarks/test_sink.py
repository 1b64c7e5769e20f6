"""The endpoint of the benchmark must answer as Elasticsearch does, or the benchmark measures a dream."""

import gzip
import http.client
import json

import pytest

from tests.benchmarks import sink as endpoint
from tests.benchmarks.job import access_lines

TWO = b'{"create":{"_id":"a.1"}}\n{"message":"x"}\n{"index":{"_index":"logs-x","_id":"a.2"}}\n{"message":"y"}\n'


@pytest.fixture(scope="module")
def sink():
    with endpoint.sink() as running:
        yield running


@pytest.fixture
def ask(sink):
    sink.reset()
    connection = http.client.HTTPConnection("127.0.0.1", sink.port, timeout=10)

    def request(path, body, headers=None, **more):
        connection.request("POST", path, body, headers or {}, **more)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    yield request
    connection.close()


def test_each_item_is_answered_with_its_own_id(ask):
    status, answer = ask("/_bulk?filter_path=errors,items.*._id,items.*.status", TWO)

    assert status == 200
    assert answer == {
        "errors": False,
        "items": [{"create": {"_id": "a.1", "status": 201}}, {"index": {"_id": "a.2", "status": 201}}],
    }


def test_without_a_filter_the_answer_is_whole(ask):
    _, answer = ask("/logs-x/_bulk", TWO)

    assert answer["took"] >= 0
    assert answer["items"][0]["create"]["result"] == "created"


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (TWO, {}),
        (gzip.compress(TWO), {"headers": {"Content-Encoding": "gzip"}}),
        ([TWO[:10], TWO[10:11], TWO[11:]], {"headers": {"Transfer-Encoding": "chunked"}, "encode_chunked": True}),
    ],
    ids=["plain", "gzip", "chunked"],
)
def test_every_form_of_body_is_counted(ask, sink, body, more):
    first, second = (ask("/_bulk", iter(body) if isinstance(body, list) else body, **more) for _ in range(2))
    counts = sink.counts()

    assert first == second
    assert (counts["requests"], counts["items"], counts["bytes"]) == (2, 4, 2 * len(TWO))


@pytest.mark.parametrize("body", [b"", TWO[:-1], b"{}\n{}\n", b"\n", b'{"delete":{"_id":"1"}}\n{}\n'])
def test_a_body_that_is_no_bulk_request_is_refused(ask, sink, body):
    assert ask("/_bulk", body)[0] == 400
    assert sink.counts()["items"] == 0


def test_large_requests_on_several_connections_are_all_answered(sink):
    sink.reset()
    body = TWO * 50_000
    connections = [http.client.HTTPConnection("127.0.0.1", sink.port, timeout=30) for _ in range(4)]
    for connection in connections:
        connection.request("POST", "/_bulk?filter_path=items.*.status", body)
    answers = [json.loads(connection.getresponse().read()) for connection in connections]
    for connection in connections:
        connection.close()

    assert [len(answer["items"]) for answer in answers] == [100_000] * 4
    assert sink.counts()["items"] == 400_000


def test_the_lines_are_the_same_each_time():
    first, second = (list(access_lines(1000)) for _ in range(2))

    assert first == second
    assert len(set(first)) == 1000
    assert 140 < sum(map(len, first)) / 1000 < 160
