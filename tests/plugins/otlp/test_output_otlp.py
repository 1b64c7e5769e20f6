"""The output of OTLP over real sockets: to a server of grpcio, and one of the standard library."""

import gzip
import http.server
import os
import socket
import threading
import traceback
from concurrent import futures
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

import grpc
import pytest
import trio
import trustme
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,
)

from shipper.plugin import (
    BadOption,
    Batch,
    Code,
    Credential,
    Held,
    Later,
    NotBegun,
    Outcome,
    OutputContext,
    StartFailed,
    TooLarge,
)
from shipper.plugin.asking import Question
from shipper.sdk.aio import open_asyncio
from shipper.sdk.http_answer import NoAnswer, Unreachable
from shipper.sdk.joining import together
from shipper.testing import check_close
from shipper_plugins.otlp import events, jsons, protobuf, status
from shipper_plugins.otlp import output as module
from shipper_plugins.otlp.client import channel
from shipper_plugins.otlp.model import Group, Record, Resource, Scope
from shipper_plugins.otlp.output import OtlpOutput
from shipper_plugins.otlp.status import HTTP_OF, Grpc
from tests import certificates
from tests.raw_http import raw_server

TOKEN = Credential.parse({"bearer_token": "secret.of-the-test"})
KEY = Credential.parse({"token": "raw-key"})
PROTOCOLS = ["grpc", "http"]
both = pytest.mark.parametrize("protocol", PROTOCOLS)


BATCH = replace(events.batches([Group(records=[Record(body=n, time=n + 1) for n in range(8)])])[0], origin=b"o" * 16)


class Refuse(Exception):
    def __init__(self, code, message="", retry_after=None):
        self.code, self.message, self.retry_after = code, message, retry_after


class Receiver(LogsServiceServicer):
    """`script` is called with the bodies of the records of each request, and returns how many are rejected."""

    def __init__(self, script=lambda bodies: 0):
        self.script = script
        self.groups, self.headers, self.requests = [], [], []
        self.peers = set()

    def take(self, groups, headers):
        bodies = [record.body for group in groups for record in group.records]
        self.requests.append(bodies)
        self.headers.append({name.lower(): value for name, value in headers})
        rejected = self.script(bodies)
        self.groups += groups
        return rejected

    @property
    def bodies(self):
        return [record.body for group in self.groups for record in group.records]

    def Export(self, request, context):
        self.peers.add(context.peer())
        try:
            groups = protobuf.decoded(request.SerializeToString()).groups
            rejected = self.take(groups, context.invocation_metadata())
            return ExportLogsServiceResponse.FromString(protobuf.answer(rejected, "some" if rejected else ""))
        except Refuse as refuse:
            details = status.written(refuse.code, refuse.message, refuse.retry_after)
            context.set_trailing_metadata([("grpc-status-details-bin", details)])
            code = next(one for one in grpc.StatusCode if one.value[0] == refuse.code)
            context.abort(code, refuse.message)


@contextmanager
def over_grpc(receiver, credentials=None, port=0, **options):
    server = grpc.server(futures.ThreadPoolExecutor(4), **options)
    add_LogsServiceServicer_to_server(receiver, server)
    where = f"127.0.0.1:{port}"
    bound = server.add_insecure_port(where) if credentials is None else server.add_secure_port(where, credentials)
    server.start()
    try:
        yield bound
    finally:
        server.stop(0).wait()


@contextmanager
def over_http(receiver):
    """Its port. What went wrong in a connection fails the test; a client ends it by a reset, as the output does."""
    wrong = []

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, request, client_address):
            wrong.append(traceback.format_exc())

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one write for an answer: who has all of it, without a body, may close at once

        def handle_one_request(self):
            self.is_asked = False
            try:
                super().handle_one_request()
            except ConnectionResetError:
                if self.is_asked:
                    raise
                self.close_connection = True

        def do_POST(self):
            self.is_asked = True
            receiver.peers.add(self.client_address)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            codec = jsons if self.headers["Content-Type"] == "application/json" else protobuf
            assert self.path == "/base/v1/logs"
            extra = {}
            try:
                code, answer = 200, codec.answer(receiver.take(codec.decoded(body).groups, self.headers.items()), "")
            except Refuse as refuse:
                too_large = "larger" in refuse.message
                code, answer = 413 if too_large else HTTP_OF[refuse.code], status.written(refuse.code, refuse.message)
                extra = {} if refuse.retry_after is None else {"Retry-After": str(int(refuse.retry_after))}
            self.send_response(code)
            headers = {"Content-Type": codec.CONTENT_TYPE, "Content-Length": str(len(answer)), **extra}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not wrong


@asynccontextmanager
async def opened(protocol, port, credential=None, context=None, **settings):
    async with open_asyncio() as aio:
        url = f"http://127.0.0.1:{port}" + ("/base" if protocol == "http" else "")
        settings = {"endpoint": url, "credential": None if credential is None else "key", **settings}
        output = OtlpOutput(protocol=protocol, **settings)
        output.load()
        context = context or OutputContext("main", aio, {} if credential is None else {"key": credential})
        async with output.open(replace(context, aio=aio)) as sender:
            yield sender


@asynccontextmanager
async def sending(protocol, receiver, **options):
    with (over_grpc if protocol == "grpc" else over_http)(receiver) as port:
        async with opened(protocol, port, **options) as sender:
            with trio.fail_after(30):
                yield sender


def refusing(code, message="", retry_after=None):
    def script(bodies):
        raise Refuse(code, message, retry_after)

    return script


def flat(groups):
    return [repr((group.resource, group.scope, record)) for group in groups for record in group.records]


@pytest.mark.parametrize(
    "settings", [{"protocol": "grpc"}, {"protocol": "http"}, {"protocol": "http", "encoding": "json"}]
)
@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_records_arrive_with_their_types(settings, compression):
    values = [
        (1 << 63) - 1,
        -(1 << 63),
        b"\0\xff",
        "",
        {},
        [],
        None,
        float("nan"),
        -0.0,
        True,
        {"a": [1.0, {"b": b""}]},
    ]
    groups = [
        Group(
            resource=Resource(attributes={"r": value}, dropped=1, schema_url="s"),
            scope=Scope(name="n", version="v", attributes={"s": value}),
            records=[Record(time=1, observed=2, severity=9, body=value, attributes={"a": value}, trace_id=b"\1" * 16)],
        )
        for value in values
    ]
    receiver = Receiver()
    async with sending(receiver=receiver, compression=compression, **settings) as sender:
        for batch in events.batches(groups):
            answers = await sender.send(batch)
            assert (answers.count, answers.others) == (batch.count, {})

    assert flat(receiver.groups) == flat(groups)


@both
async def test_a_request_of_megabytes_arrives(protocol):
    receiver = Receiver()
    batch = Batch.lines(b"".join(b"%s\n" % os.urandom(500).hex().encode() for _ in range(1500)), offset=0, shared={})
    async with sending(protocol, receiver) as sender:
        for _ in range(3):
            assert not (await sender.send(batch)).others

    assert len(receiver.bodies) == 4500
    assert len(receiver.peers) == 1


async def test_an_answer_may_be_compressed():
    receiver = Receiver()
    with over_grpc(receiver, compression=grpc.Compression.Gzip) as port:
        async with opened("grpc", port) as sender:
            assert not (await sender.send(BATCH)).others


@both
async def test_requests_at_once_have_connections_of_their_own(protocol):
    barrier = threading.Barrier(2)
    receiver = Receiver(lambda bodies: barrier.wait(30) and 0)
    async with sending(protocol, receiver) as sender, trio.open_nursery() as nursery:
        nursery.start_soon(sender.send, BATCH)
        nursery.start_soon(sender.send, BATCH)

    assert len(receiver.peers) == 2


@both
async def test_the_credential_and_the_headers_go_with_each_request(protocol):
    receiver = Receiver()
    async with sending(protocol, receiver, credential=TOKEN, headers={"x-scope-orgid": "a b"}) as sender:
        await sender.send(BATCH)

    assert receiver.headers[0]["authorization"] == "Bearer secret.of-the-test"
    assert receiver.headers[0]["x-scope-orgid"] == "a b"


@both
async def test_a_secret_stands_in_the_header_that_is_named(protocol):
    receiver = Receiver()
    async with sending(protocol, receiver, credential=KEY, credential_header="api-key") as sender:
        await sender.send(BATCH)

    assert receiver.headers[0]["api-key"] == "raw-key"


async def test_a_credential_without_a_header_of_its_own_needs_one():
    with pytest.raises(StartFailed):
        async with opened("grpc", 1, KEY):
            pass


@both
@pytest.mark.parametrize("code", [Grpc.UNAVAILABLE, Grpc.RESOURCE_EXHAUSTED])
async def test_a_receiver_that_asks_to_wait_is_asked_later(protocol, code):
    receiver = Receiver(refusing(code, "sending queue is full", 7))
    async with sending(protocol, receiver) as sender:
        with pytest.raises(Later, match="sending queue is full") as why:
            await sender.send(BATCH)

    assert why.value.retry_after == 7
    assert len(receiver.requests) == 1


@both
@pytest.mark.parametrize(
    ("code", "held"),
    [
        (Grpc.UNAUTHENTICATED, Code.UNAUTHORIZED),
        (Grpc.PERMISSION_DENIED, Code.FORBIDDEN),
        (Grpc.NOT_FOUND, Code.REFUSED),
    ],
)
async def test_what_a_setting_causes_is_held(protocol, code, held):
    async with sending(protocol, Receiver(refusing(code, "secret text"))) as sender:
        with pytest.raises(Held) as why:
            await sender.send(BATCH)

    assert why.value.code == held
    assert "secret text" not in str(why.value)


async def test_a_quota_without_a_time_is_held():
    async with sending("grpc", Receiver(refusing(Grpc.RESOURCE_EXHAUSTED, "quota"))) as sender:
        with pytest.raises(Held):
            await sender.send(BATCH)


@both
async def test_events_that_are_refused_are_found_by_halves(protocol):
    def script(bodies):
        if 5 in bodies:
            raise Refuse(Grpc.INVALID_ARGUMENT, "the body 5 is bad")
        return 0

    receiver = Receiver(script)
    async with sending(protocol, receiver) as sender:
        answers = await sender.send(BATCH)

    assert {place: answer.outcome for place, answer in answers.others.items()} == {5: Outcome.REJECTED}
    assert "is bad" not in answers.others[5].reason
    assert receiver.bodies == [0, 1, 2, 3, 4, 6, 7]


def mixed(count=6):
    """Events of three resources in turns, as ten inputs give them."""
    groups = [
        Group(resource=Resource(attributes={"service.name": f"s{n % 3}"}), records=[Record(body=n)])
        for n in range(count)
    ]
    return together([replace(batch, origin=b"o" * 16) for batch in events.batches(groups)], ("resource", "scope"))


@both
async def test_events_of_several_resources_go_in_one_request_each_resource_once(protocol):
    receiver = Receiver()
    async with sending(protocol, receiver) as sender:
        assert not (await sender.send(mixed())).others

    assert len(receiver.requests) == 1
    assert [
        (group.resource.attributes["service.name"], [record.body for record in group.records])
        for group in receiver.groups
    ] == [
        ("s0", [0, 3]),
        ("s1", [1, 4]),
        ("s2", [2, 5]),
    ]


@both
@pytest.mark.parametrize("code", [Grpc.INVALID_ARGUMENT, Grpc.INTERNAL])
async def test_a_resource_that_is_refused_rejects_no_events_of_others(protocol, code):
    def script(bodies):
        if {1, 4} & set(bodies):
            raise Refuse(code, "no")
        return 0

    receiver = Receiver(script)
    async with sending(protocol, receiver) as sender:
        answers = await sender.send(mixed())

    assert {at: answer.outcome for at, answer in answers.others.items()} == dict.fromkeys([1, 4], Outcome.REJECTED)
    assert sorted(receiver.bodies) == [0, 2, 3, 5]


@both
async def test_what_was_not_sent_when_a_later_request_gets_no_answer_is_later(protocol):
    def script(bodies):
        if len(bodies) > 2:
            raise Refuse(Grpc.RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 8)")
        if 1 in bodies:
            raise Refuse(Grpc.UNAVAILABLE)
        return 0

    receiver = Receiver(script)
    async with sending(protocol, receiver) as sender:
        answers = await sender.send(mixed())

    assert {at: answer.outcome for at, answer in answers.others.items()} == dict.fromkeys([1, 2, 4, 5], Outcome.LATER)
    assert receiver.bodies == [0, 3]


@both
async def test_after_many_requests_what_is_refused_is_rejected_together(protocol, monkeypatch):
    monkeypatch.setattr(module, "MOST_REQUESTS", 5)
    receiver = Receiver(refusing(Grpc.INVALID_ARGUMENT, "no"))
    async with sending(protocol, receiver) as sender:
        answers = await sender.send(BATCH)

    assert sorted(answers.others) == list(range(8))
    assert len(receiver.requests) <= 8


@both
async def test_an_internal_error_is_final_and_not_asked_again(protocol):
    receiver = Receiver(refusing(Grpc.INTERNAL, "no"))
    async with sending(protocol, receiver) as sender:
        answers = await sender.send(BATCH)

    assert [answer.outcome for answer in answers.others.values()] == [Outcome.REJECTED] * 8
    assert len(receiver.requests) == 1


@both
async def test_a_request_that_is_too_large_goes_in_halves(protocol):
    def script(bodies):
        if len(bodies) > 2:
            raise Refuse(Grpc.RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 8)")
        return 0

    receiver = Receiver(script)
    async with sending(protocol, receiver) as sender:
        assert not (await sender.send(BATCH)).others

    assert receiver.bodies == list(range(8))


@both
async def test_one_event_that_is_too_large_is_said_to_be(protocol):
    async with sending(protocol, Receiver(refusing(Grpc.RESOURCE_EXHAUSTED, "larger than max"))) as sender:
        with pytest.raises(TooLarge):
            await sender.send(BATCH.pick([0]))


@both
async def test_requests_are_no_larger_than_the_limit(protocol):
    receiver = Receiver()
    batch = Batch.documents([b'{"message":"%s"}' % (b"x" * 300) for _ in range(16)])
    async with sending(protocol, receiver, request_max_bytes=1024) as sender:
        assert not (await sender.send(batch)).others

    assert sum(map(len, receiver.requests)) == 16
    assert max(map(len, receiver.requests)) == 2


@both
async def test_a_partial_success_is_not_asked_again_and_rejects_all_events_of_the_request(protocol):
    receiver = Receiver(lambda bodies: 2)
    async with sending(protocol, receiver) as sender:
        answers = await sender.send(BATCH)

    assert len(receiver.requests) == 1
    assert sorted(answers.others) == list(range(8))
    assert answers.others[0].outcome is Outcome.REJECTED
    assert answers.others[0].reason.startswith("2 of the 8 events of a request were rejected by 127.0.0.1:")


@both
async def test_what_was_answered_before_trouble_counts(protocol):
    def script(bodies):
        if len(bodies) > 4:
            raise Refuse(Grpc.INVALID_ARGUMENT)
        if 4 in bodies:
            raise Refuse(Grpc.UNAVAILABLE, "", 3)
        return 0

    async with sending(protocol, Receiver(script)) as sender:
        answers = await sender.send(BATCH)

    assert {place: answer.outcome for place, answer in answers.others.items()} == dict.fromkeys(
        range(4, 8), Outcome.LATER
    )
    assert answers.retry_after == 3


def port_of(url):
    return int(url.rpartition(":")[2])


@asynccontextmanager
async def answered(*, status=200, kind=None, body=b"", encoding="protobuf"):
    """A sender whose requests get this answer over HTTP."""
    head = f"HTTP/1.1 {status} Said\r\nConnection: close\r\n" + (f"Content-Type: {kind}\r\n" if kind else "")
    head += "" if status == 204 else f"Content-Length: {len(body)}\r\n"

    async def talk(stream):
        await stream.receive_some()
        await stream.send_all(head.encode() + b"\r\n" + body)
        await stream.aclose()

    async with raw_server(talk) as url, opened("http", port_of(url), encoding=encoding, compression="none") as sender:
        yield sender


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
@pytest.mark.parametrize(
    "answer",
    [
        {"status": 204},
        {"status": 202, "kind": "application/json", "body": b'{"accepted": 8}'},
        {},
        {"kind": "application/json"},
        {"kind": "application/json", "body": b"{}"},
        {"kind": "application/x-protobuf", "body": b'{"partialSuccess":{}}'},
        {"kind": "text/plain; charset=utf-8", "body": b"ok"},
    ],
)
async def test_each_success_over_http_is_one_though_it_says_nothing_of_records(answer, encoding):
    """Loki answers 204, Fluent Bit 201, others nothing, or JSON to protobuf: sent again, it would arrive for ever."""
    async with answered(encoding=encoding, **answer) as sender:
        answers = await sender.send(BATCH)

    assert not answers.others


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
async def test_a_partial_success_is_read_as_what_it_is(encoding):
    async with answered(kind="application/json", body=jsons.answer(8, "no"), encoding=encoding) as sender:
        answers = await sender.send(BATCH)

    assert {answer.outcome for answer in answers.others.values()} == {Outcome.REJECTED}


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "text/html", "body": b"<html>"},
        {"body": b"<!DOCTYPE html>"},
        {"kind": "application/x-protobuf", "body": b"\x0a\xff"},
        {"kind": "application/json", "body": b'{"partialSuccess":'},
        {"kind": "application/json", "body": jsons.answer(9, "one more than were sent")},
        {"kind": "application/x-protobuf", "body": protobuf.answer(-1, "absurd")},
    ],
)
async def test_an_answer_that_no_receiver_gives_is_a_bad_one(answer):
    async with answered(**answer) as sender:
        with pytest.raises(Later) as bad:
            await sender.send(BATCH)

    assert bad.value.code == Code.BAD_ANSWER


@pytest.mark.parametrize("status", ["\xb2", "\u0661".encode().decode("latin-1"), "-1", "1e0", "9" * 5000])
def test_a_status_of_grpc_that_is_no_number_is_a_bad_answer(status):
    """A digit for `str.isdigit` is not always one for `int`: that error is no fault of the events."""
    call = channel._Call(1)
    call.headers = {":status": "200", "grpc-status": status}
    with pytest.raises(channel._Broken, match="not one of gRPC"):
        channel._reply(call)


async def test_an_answer_on_which_its_reader_fails_is_a_bad_one(monkeypatch):
    """The core would take an unknown error for the fault of some event, and make dead letters of sound ones."""

    def fail(*_):
        raise KeyError("a text of the peer")

    monkeypatch.setattr(channel, "_reply", fail)
    async with sending("grpc", Receiver()) as sender:
        with pytest.raises(NoAnswer, match="the answer cannot be read") as bad:
            await sender.send(BATCH)

    assert bad.value.code == Code.BAD_ANSWER
    assert "peer" not in str(bad.value)


# -- connections -------------------------------------------------------------------------------------------------------


@both
async def test_nobody_there_is_unreachable(protocol):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with opened(protocol, free.getsockname()[1]) as sender:
            with pytest.raises(Unreachable, match="connection refused"):
                await sender.send(BATCH)


@both
async def test_a_receiver_that_says_nothing_is_left_after_a_time(protocol):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with opened(protocol, silent.getsockname()[1], timeout=0.2) as sender:
            with pytest.raises(NoAnswer, match=r"timed out after 0\.2s"):
                await sender.send(BATCH)


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 64])
@both
async def test_what_is_no_answer_comes_later(protocol, words):
    async def talk(stream):
        await stream.receive_some()
        await stream.send_all(words)
        await stream.aclose()

    async with raw_server(talk) as url, opened(protocol, port_of(url)) as sender:
        with pytest.raises((Later, Held)):
            await sender.send(BATCH)


async def test_a_connection_that_its_server_has_closed_is_not_used_again():
    first, second = Receiver(), Receiver()
    with ExitStack() as servers:
        port = servers.enter_context(over_grpc(first))
        async with opened("grpc", port) as sender:
            await sender.send(BATCH)
            servers.pop_all().close()
            servers.enter_context(over_grpc(second, port=port))
            await sender.send(BATCH)

    assert first.bodies == second.bodies == list(range(8))


@both
async def test_no_request_begins_when_none_may(protocol):
    receiver = Receiver()
    context = OutputContext("main", None, may_begin=lambda: False)
    async with sending(protocol, receiver, context=context) as sender:
        with pytest.raises(NotBegun):
            await sender.send(BATCH)

    assert not receiver.peers


@both
async def test_a_request_is_told_before_it_is_written_and_its_answer_counted(protocol):
    told = []

    async def begins():
        assert not receiver.peers
        told.append(True)

    receiver = Receiver(refusing(Grpc.UNAVAILABLE))
    context = OutputContext("main", None, begins=begins)
    async with sending(protocol, receiver, context=context) as sender:
        with pytest.raises(Later):
            await sender.send(BATCH)

    assert told == [True]
    assert context.requests.responses == {"503": 1}


@both
async def test_nothing_is_sent_after_it_was_closed(protocol):
    large = Batch.documents([b'{"n":"%s"}' % os.urandom(1 << 19).hex().encode() for _ in range(4)])
    async with open_asyncio() as aio:
        await check_close(
            lambda host, port: OtlpOutput(endpoint=f"http://{host}:{port}", protocol=protocol),
            OutputContext("main", aio),
            large,
        )


@pytest.fixture
def ca():
    return trustme.CA()


def identity(ca):
    certificate, key = certificates.identity(ca, "localhost")
    return key.encode(), certificate.encode()


@pytest.mark.parametrize("is_mutual", [False, True])
async def test_grpc_goes_over_tls(ca, is_mutual):
    trusted = certificates.pem(ca).encode() if is_mutual else None
    credentials = grpc.ssl_server_credentials([identity(ca)], trusted, is_mutual)
    receiver = Receiver()
    with over_grpc(receiver, credentials) as port:
        async with opened(
            "grpc",
            port,
            certificates.credential(ca, "client") if is_mutual else TOKEN,
            endpoint=f"https://localhost:{port}",
            tls=certificates.trust(ca),
        ) as sender:
            for _ in range(3):
                assert not (await sender.send(BATCH)).others

    assert len(receiver.bodies) == 24
    assert len(receiver.peers) == 1


async def test_a_certificate_of_a_stranger_is_refused(ca):
    with over_grpc(Receiver(), grpc.ssl_server_credentials([identity(ca)])) as port:
        async with opened("grpc", port, endpoint=f"https://localhost:{port}") as sender:
            with pytest.raises(Unreachable, match="certificate verify failed") as why:
                await sender.send(BATCH)

    assert why.value.code == Code.TLS_FAILED


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_be_are_refused():
    for settings in [
        {"endpoint": "http://user@x:1"},
        {"endpoint": "http://x:0"},
        {"endpoint": "http://x:4317/path"},
        {"encoding": "json"},
        {"headers": {"authorization": "x"}},
        {"headers": {"content-type": "x"}},
        {"headers": {"x-bin": "x"}},
        {"credential_header": "api-key"},
        {"timeout": 0},
        {"request_max_bytes": 1},
    ]:
        with pytest.raises(BadOption):
            OtlpOutput(**{"endpoint": "http://127.0.0.1:4317", **settings})


def test_a_credential_in_the_clear_is_warned_of():
    assert OtlpOutput(endpoint="http://collector:4317", credential="key").warnings()
    assert not OtlpOutput(endpoint="http://localhost:4317", credential="key").warnings()
    assert not OtlpOutput(endpoint="https://collector:4317", credential="key").warnings()


def test_a_page_of_a_proxy_rejects_nothing():
    from shipper.sdk.http_answer import Response
    from shipper_plugins.otlp.client.answers import check_http

    with pytest.raises(Held):
        check_http(Response(400, {"Content-Type": "text/html"}, b"<html>"), "x:1")
    with pytest.raises(Later):
        check_http(Response(500, {"Content-Type": "text/html"}, b"<html>"), "x:1")


async def findings(protocol, receiver, **settings):
    """What a receiver is found to say, by what was asked."""
    told = []
    with (over_grpc if protocol == "grpc" else over_http)(receiver) as port:
        url = f"http://127.0.0.1:{port}" + ("/base" if protocol == "http" else "")
        output = OtlpOutput(endpoint=url, protocol=protocol, credential="key", **settings)
        output.load()
        async with open_asyncio() as aio:
            with trio.fail_after(60):
                await output.ask(OutputContext("main", aio, {"key": TOKEN}), Question(), told.append)
    return {finding.asked: (finding.verdict, finding.text) for finding in told}


@both
@pytest.mark.parametrize("compression", ["gzip", "none"])
async def test_a_receiver_is_asked_by_an_export_without_logs(protocol, compression):
    receiver = Receiver()
    told = await findings(protocol, receiver, compression=compression)

    assert told == {
        "address": ("good", ""),
        "login": ("good", "it takes an export without logs"),
        "destination": ("good", "a receiver of OTLP"),
    }
    assert receiver.requests == [[]]
    assert receiver.headers[0]["authorization"] == "Bearer secret.of-the-test"


@both
@pytest.mark.parametrize(
    ("code", "asked", "verdict"),
    [
        (Grpc.UNAUTHENTICATED, "login", "bad"),
        (Grpc.PERMISSION_DENIED, "login", "bad"),
        (Grpc.UNAVAILABLE, "destination", "bad"),
        (Grpc.UNIMPLEMENTED, "destination", "bad"),
        (Grpc.INVALID_ARGUMENT, "destination", "unknown"),
    ],
)
async def test_what_a_receiver_refuses_is_told_apart(protocol, code, asked, verdict):
    told = await findings(protocol, Receiver(refusing(code, "secret.of-the-test")))

    assert told["address"] == ("good", "")
    assert told[asked][0] == verdict
    assert "secret" not in told[asked][1]


@both
async def test_a_receiver_that_is_not_there_is_an_address(protocol):
    told = []
    async with open_asyncio() as aio:
        output = OtlpOutput(endpoint="http://127.0.0.1:1", protocol=protocol)
        await output.ask(OutputContext("main", aio, {}), Question(), told.append)

    assert [(finding.asked, finding.verdict, finding.text) for finding in told] == [
        ("address", "bad", "connection refused")
    ]
