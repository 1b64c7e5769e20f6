"""The endpoint of the benchmark must answer as Elasticsearch does, or the benchmark measures a dream."""

import gzip
import http.client
import json
import time

import pytest

from tests.benchmarks import sink as endpoint
from tests.benchmarks.job import access_lines

pytestmark = pytest.mark.needs("cc", "libc6-dev", "zlib1g-dev")  # tests/benchmarks/sink.c
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


def bulk(lines, escape=lambda text: text):
    return "".join('{"create":{}}\n' + escape(json.dumps({"message": line.rstrip()})) + "\n" for line in lines).encode()


@pytest.mark.parametrize("escape", [lambda text: text, lambda text: text.replace("/", "\\/")], ids=["as is", "escaped"])
def test_lines_of_the_job_are_told_apart(ask, sink, escape):
    lines = list(access_lines(100))
    ask("/_bulk", bulk([*lines[:60], lines[7], "another [01/Feb/2026:00:00:00]"], escape))
    counts = sink.counts()

    assert (counts["items"], counts["distinct"], counts["unknown"]) == (62, 60, 1)


def test_the_time_of_items_is_told_on_the_clock_of_this_process(ask, sink):
    before = time.monotonic()
    ask("/_bulk", TWO)
    between = time.monotonic()
    ask("/_bulk", TWO)
    counts = sink.counts()

    assert before < counts["first"] < between < counts["last"] < time.monotonic()


def field(number, content):
    """One length-delimited field of a protobuf message."""
    size, length = len(content), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def record(line):
    """A log record: the time (fixed64), the severity (a number) and the body (a text)."""
    return b"\x09" + bytes(8) + b"\x10\x09" + field(5, field(1, line.encode()))


def logs(records):
    scope = field(1, b"") + b"".join(field(2, each) for each in records)
    return field(1, field(1, b"") + field(2, scope))


def post_logs(sink, body, kind="application/x-protobuf", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", sink.port, timeout=10)
    connection.request("POST", "/v1/logs", body, {"Content-Type": kind, **headers})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, answer.headers["Content-Type"], text


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_logs_by_otlp_are_counted_record_by_record(sink, compress):
    sink.reset()
    lines = list(access_lines(50))
    body = logs(map(record, lines[:30])) + logs(map(record, [*lines[20:], "no line"]))
    headers = {"Content-Encoding": "gzip"} if compress is gzip.compress else {}
    answer = post_logs(sink, compress(body), **headers)
    counts = sink.counts()

    assert answer == (200, "application/x-protobuf", b"")
    assert (counts["items"], counts["distinct"], counts["unknown"], counts["bytes"]) == (61, 50, 1, len(body))


@pytest.mark.parametrize(
    "body", [b"", b"{}", logs([]), logs([record("x")])[:-1], b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"]
)
def test_a_body_that_holds_no_logs_is_refused(sink, body):
    sink.reset()

    assert post_logs(sink, body)[0] == 400
    assert sink.counts()["items"] == 0


def test_otlp_in_json_is_refused_rather_than_miscounted(sink):
    assert post_logs(sink, b"{}", "application/json")[0] == 400


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/", 200, "8.19.4"),
        ("/?human=false", 200, "8.19.4"),
        ("/_license", 200, "active"),
        ("/_cluster/health", 200, "green"),
        ("/_cat/health", 200, "green"),
        ("/_nodes", 404, "no such path"),
    ],
)
def test_what_clients_ask_first_is_answered(sink, method, path, status, word):
    connection = http.client.HTTPConnection("127.0.0.1", sink.port, timeout=10)
    for _ in range(2):
        connection.request(method, path)
        answer = connection.getresponse()
        text = answer.read().decode()

        assert (answer.status, answer.headers["X-Elastic-Product"]) == (status, "Elasticsearch")
        assert word in text if method == "GET" else text == ""
    connection.close()


def test_marks_are_noted_when_they_come_until_a_reset(ask, sink):
    probed = [b'{"create":{}}\n{"message":"GET /~probe:%d HTTP"}\n' % number for number in (7, 8)]
    ask("/_bulk", probed[0])
    assert sink.probes() == {}

    sink.note_probes()
    before = time.monotonic()
    ask("/_bulk", TWO + b"".join(probed))
    ask("/_bulk", gzip.compress(probed[0]), {"Content-Encoding": "gzip"})
    after = time.monotonic()
    probes, last = sink.probes(), sink.counts()["last"]
    sink.reset()

    assert probes.keys() == {7, 8}
    assert before < probes[7] == probes[8] < last < after
    assert sink.probes() == {}


def test_a_hung_sink_answers_what_came_meanwhile_when_it_goes_on(sink):
    sink.reset()
    connection = http.client.HTTPConnection("127.0.0.1", sink.port, timeout=0.2)
    with sink.hung():
        connection.request("POST", "/_bulk", TWO)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        went_on = time.monotonic()
    connection.sock.settimeout(10)

    assert sink.counts()["items"] == 2
    assert sink.counts()["last"] > went_on
    connection.close()


def test_answers_come_as_late_as_was_said_until_a_reset(ask, sink):
    taken = []
    for late in (True, False):
        sink.answer_after(0.2) if late else sink.reset()
        begun = time.monotonic()
        ask("/_bulk", TWO)
        taken.append((time.monotonic() - begun, sink.counts()["last"] - begun))

    assert min(taken[0]) >= 0.2 > min(taken[1])


def test_the_lines_are_the_same_each_time():
    first, second = (list(access_lines(1000)) for _ in range(2))

    assert first == second
    assert len(set(first)) == 1000
    assert 140 < sum(map(len, first)) / 1000 < 160
