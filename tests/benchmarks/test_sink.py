"""The endpoint of the benchmark must answer as Elasticsearch does, or the benchmark measures a dream."""

import gzip
import http.client
import json

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


def bulk(lines, escape=lambda text: text):
    return "".join('{"create":{}}\n' + escape(json.dumps({"message": line.rstrip()})) + "\n" for line in lines).encode()


@pytest.mark.parametrize("escape", [lambda text: text, lambda text: text.replace("/", "\\/")], ids=["as is", "escaped"])
def test_lines_of_the_job_are_told_apart(ask, sink, escape):
    lines = list(access_lines(100))
    ask("/_bulk", bulk([*lines[:60], lines[7], "another [01/Feb/2026:00:00:00]"], escape))
    counts = sink.counts()

    assert (counts["items"], counts["distinct"], counts["unknown"]) == (62, 60, 1)


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
