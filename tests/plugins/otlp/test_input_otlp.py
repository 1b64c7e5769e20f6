"""The receiver of OTLP over real sockets: grpcio, the library of OpenTelemetry, and raw HTTP."""

import gzip
import http.client
import ssl
import struct
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial

import grpc
import h2.config
import h2.connection
import h2.errors
import h2.events
import orjson
import pytest
import trio
import trio.testing
import trustme
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from shipper.plugin import BadOption, Credential, Endpoint, Material
from shipper.sdk import bodies
from shipper.sdk.server import Limits
from shipper.testing import RecordingInputContext
from shipper_plugins.otlp import events, jsons, libraries, protobuf, status
from shipper_plugins.otlp import grpc as otlp_grpc
from shipper_plugins.otlp.input import OtlpInput, OtlpServerTls
from shipper_plugins.otlp.model import Group, Record, Resource, Unfit
from shipper_plugins.otlp.output import OtlpOutput
from shipper_plugins.otlp.server import frames
from shipper_plugins.otlp.server.grpc import talk as over_grpc
from tests.plugins.running import becomes, running

OLD = Credential.parse({"bearer_token": "old-secret.of-the-test"})
NEW = Credential.parse({"bearer_token": "old.secret-of-the-test"})
ANN = Credential.parse({"username": "ann", "password": "pass"})
CREDENTIALS = {"old": OLD, "new": NEW, "ann": ANN}
FREE = "127.0.0.1:0"
GROUPS = [Group(resource=Resource(attributes={"service.name": "shop"}), records=[Record(body="one"), Record(body=2)])]
PROTOCOLS = ["grpc", "http"]
HEAD = "POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Receiver:
    """An input that runs, and clients for it, which run in threads."""

    def __init__(self, context, source, protocol, port):
        self.context, self.source, self.protocol, self.port = context, source, protocol, port

    def change(self, **settings):
        self.source.change(an_input(self.protocol, **settings), CREDENTIALS)

    async def export(self, groups=GROUPS, *, key=None, compressed=False):
        """The code of gRPC, the rejected records, and the time after which to come again."""
        body = protobuf.encoded(groups)
        call = self._over_grpc if self.protocol == "grpc" else self._over_http
        return await trio.to_thread.run_sync(call, body, key, compressed)

    def _over_grpc(self, body, key, compressed):
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            return exported(channel, body, key, compressed)

    def _over_http(self, body, key, compressed):
        headers = {"Content-Type": "application/x-protobuf"}
        if compressed:
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        if key is not None:
            headers["Authorization"] = key.authorization()
        code, answer, after = self.post(body, headers)
        if code != 200:
            assert status.message_of(answer, "application/x-protobuf")
            return answer[1], 0, after
        return 0, ExportLogsServiceResponse.FromString(answer).partial_success.rejected_log_records, after

    async def connect(self):
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    def post(self, body, headers, path="/v1/logs", method="POST"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            after = answer.headers.get("Retry-After")
            return answer.status, answer.read(), None if after is None else float(after)
        finally:
            connection.close()


def exported(channel, body, key=None, compressed=False):
    metadata = [] if key is None else [("authorization", key.authorization())]
    compression = grpc.Compression.Gzip if compressed else grpc.Compression.NoCompression
    request = ExportLogsServiceRequest.FromString(body)
    try:
        answer = LogsServiceStub(channel).Export(request, metadata=metadata, compression=compression, timeout=60)
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
        return error.code().value[0], 0, status.retry_delay(details)
    return 0, answer.partial_success.rejected_log_records, None


def an_input(protocol, **settings):
    return OtlpInput(**{"grpc": None, "http": None, protocol: FREE, **settings})


@asynccontextmanager
async def receiving(protocol, context=None, **settings):
    context = context or RecordingInputContext(credentials=CREDENTIALS)
    configured = an_input(protocol, **settings)
    configured.load()
    async with running(configured, context) as source:
        port = (await context.listen(Endpoint("tcp", "127.0.0.1"))).getsockname()[1]
        yield Receiver(context, source, protocol, port)


def received(context):
    return [record for batch in context.batches for group in events.groups(batch) for record in group.records]


both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
@pytest.mark.parametrize("compressed", [False, True])
async def test_an_export_is_stored_when_it_is_answered(protocol, compressed):
    async with receiving(protocol) as receiver:
        assert await receiver.export(compressed=compressed) == (0, 0, None)

        assert receiver.context.batches[0].shared["resource"] == {"attributes": {"service.name": "shop"}}
        assert received(receiver.context) == GROUPS[0].records


async def test_an_export_in_json_is_answered_in_json():
    async with receiving("http") as receiver:
        headers = {"Content-Type": "application/json; charset=utf-8"}
        answer = await trio.to_thread.run_sync(receiver.post, jsons.encoded(GROUPS), headers)

        assert answer == (200, b"{}", None)
        assert received(receiver.context) == GROUPS[0].records


@both
async def test_a_megabyte_of_records_is_taken(protocol):
    records = [Record(body="x" * 1000, attributes={"n": n}) for n in range(3000)]
    async with receiving(protocol) as receiver:
        assert await receiver.export([Group(records=records)]) == (0, 0, None)

        assert received(receiver.context) == records
        assert len(receiver.context.batches) > 1


@both
async def test_records_that_cannot_be_taken_are_counted_and_the_others_stored(protocol):
    groups = [Group(records=[Record(time=1 << 63), Record(body="sound")])]
    async with receiving(protocol) as receiver:
        assert await receiver.export(groups) == (0, 1, None)

        assert [record.body for record in received(receiver.context)] == ["sound"]


@both
async def test_a_fault_of_ours_is_told_by_its_place_and_quotes_no_event(protocol, caplog):
    async def broken(*batches, wait):
        raise ValueError(batches[0].body)

    async with receiving(protocol) as receiver:
        receiver.source._intake._emit = broken
        assert (await receiver.export())[0] == 13

    (told,) = caplog.records
    assert told.getMessage().startswith("a request could not be answered: ValueError at test_input_otlp.py:")
    assert not told.exc_info


@both
async def test_without_room_a_client_is_told_when_to_come_again(protocol):
    async with receiving(protocol) as receiver:
        receiver.context.full = True

        assert await receiver.export() == (8, 0, 1.0)
        assert not receiver.context.batches


@both
@pytest.mark.parametrize("key", [OLD, ANN])
async def test_a_key_opens_the_door(protocol, key):
    async with receiving(protocol, credentials=("old", "ann")) as receiver:
        assert await receiver.export(key=key) == (0, 0, None)
        assert await receiver.export(key=NEW) == (16, 0, None)
        assert await receiver.export() == (16, 0, None)

        assert receiver.context.count == 2


async def test_a_removed_key_is_refused_on_a_connection_that_is_open():
    async with receiving("grpc", credentials=("old",)) as receiver:
        with grpc.insecure_channel(f"127.0.0.1:{receiver.port}") as channel:
            ask = partial(trio.to_thread.run_sync, exported, channel, protobuf.encoded(GROUPS))
            assert (await ask(OLD))[0] == 0
            receiver.change(credentials=("new",))
            assert (await ask(OLD))[0] == 16
            assert (await ask(NEW))[0] == 0


@both
async def test_a_connection_that_has_shown_a_removed_key_is_closed_before_the_key_is_released(protocol):
    a_door = receiving(protocol, credentials=("old", "new"))
    async with a_door as receiver, await connected(receiver, OLD) as old, await connected(receiver, NEW):
        receiver.change(credentials=("new",))
        await receiver.source.changed()
        while await old.receive_some():
            pass

        assert len(receiver.source._servers[protocol]._peers) == 1


async def connected(receiver, key):
    """A connection that has shown a key in a request, over HTTP/2 in one whose body never comes."""
    stream = await receiver.connect()
    if receiver.protocol == "http":
        head = HEAD + f"Authorization: {key.authorization()}\r\nContent-Length: 2\r\n\r\n{{}}"
        await stream.send_all(head.encode())
        await stream.receive_some()
    else:
        client, begun = begun_grpc(headers=[("authorization", key.authorization())])
        client.send_data(1, otlp_grpc.framed(b""), end_stream=True)
        await stream.send_all(begun + client.data_to_send())
        await headers_of(client, stream)
    return stream


async def test_a_request_that_never_comes_whole_holds_up_the_release_of_its_key_for_a_while_only():
    async with receiving("grpc", credentials=("old",)) as receiver:
        receiver.source._servers["grpc"].limits = Limits(leaving_seconds=0.05)
        async with await receiver.connect() as stream:
            await stream.send_all(begun_grpc(headers=[("authorization", OLD.authorization())])[1])
            await becomes(lambda: any(peer.shown for peer in receiver.source._servers["grpc"]._peers))
            receiver.change(credentials=("new",))
            await receiver.source.changed()

        assert not receiver.source._servers["grpc"]._peers


async def test_a_connection_that_ends_for_a_removed_key_answers_what_it_has_and_takes_no_more():
    """A client of gRPC sends a refused stream again, on another connection."""
    a_door = receiving("grpc", credentials=("old", "new"))
    async with a_door as receiver, await receiver.connect() as stream:
        client, begun = begun_grpc(headers=[("authorization", OLD.authorization())])
        await stream.send_all(begun)
        await becomes(lambda: receiver.source._servers["grpc"].rooms._busy)
        receiver.change(credentials=("new",))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.source.changed)
            await trio.testing.wait_all_tasks_blocked()
            headers = [*HEADERS_OF_GRPC, ("authorization", NEW.authorization())]
            client.send_headers(3, headers, end_stream=True)
            await stream.send_all(client.data_to_send())
            reset = await event_of(client, stream, h2.events.StreamReset)
            client.send_data(1, otlp_grpc.framed(b""), end_stream=True)
            await stream.send_all(client.data_to_send())
            answer = await headers_of(client, stream)

        assert (reset.stream_id, reset.error_code) == (3, h2.errors.ErrorCodes.REFUSED_STREAM)
        assert answer[":status"] == "200"


@both
async def test_with_withdrawn_keys_nobody_may_enter_until_one_is_there_again(protocol):
    async with receiving(protocol, credentials=("old",)) as receiver:
        receiver.source.change(an_input(protocol, credentials=("old",)), {})
        assert (await receiver.export(key=OLD))[0] == 16
        assert receiver.context.problem

        receiver.change(credentials=("old",))
        assert (await receiver.export(key=OLD))[0] == 0
        assert receiver.context.problem is None


@both
async def test_a_body_over_the_limit_is_refused(protocol):
    async with receiving(protocol, max_body_bytes=100) as receiver:
        groups = [Group(records=[Record(body="x" * 200)])]

        assert (await receiver.export(groups))[0] == 8
        assert (await receiver.export(groups, compressed=True))[0] == 0


@both
async def test_a_bomb_is_refused(protocol):
    async with receiving(protocol, max_decompressed_bytes=1 << 20) as receiver:
        groups = [Group(records=[Record(body="x" * (2 << 20))])]

        assert (await receiver.export(groups, compressed=True))[0] == 8
        assert not receiver.context.batches


@both
async def test_requests_hold_so_much_memory_together(protocol, monkeypatch):
    async with receiving(protocol) as receiver:
        memory = receiver.source._intake.memory
        memory.held = memory.limit

        assert await receiver.export() == (8, 0, 1.0)

        memory.held = 0
        assert (await receiver.export())[0] == 0
        await becomes(lambda: not memory.held)


async def test_traces_are_answered_unimplemented_over_grpc():
    async with receiving("grpc") as receiver:

        def ask():
            with grpc.insecure_channel(f"127.0.0.1:{receiver.port}") as channel, pytest.raises(grpc.RpcError) as why:
                TraceServiceStub(channel).Export(ExportTraceServiceRequest(), timeout=60)
            return why.value.code()

        assert await trio.to_thread.run_sync(ask) is grpc.StatusCode.UNIMPLEMENTED


async def test_what_cannot_be_answered_is_refused_with_a_status():
    for method, path, headers, code in [
        ("POST", "/v1/traces", {}, 404),
        ("POST", "/v1/metrics", {}, 404),
        ("POST", "/elsewhere", {}, 404),
        ("GET", "/v1/logs", {}, 405),
        ("POST", "/v1/logs", {"Content-Type": "text/plain"}, 415),
        ("POST", "/v1/logs", {"Content-Encoding": "br"}, 415),
        ("POST", "/v1/logs", {"Content-Encoding": "gzip"}, 400),
        ("POST", "/v1/logs", {"Content-Encoding": "deflate"}, 400),
        ("POST", "/v1/logs", {"Host": "evil.example"}, 421),
    ]:
        async with receiving("http") as receiver:
            headers = {"Content-Type": "application/json", **headers}
            found, body, _ = await trio.to_thread.run_sync(receiver.post, b"{}", headers, path, method)

            assert found == code
            assert orjson.loads(body)["message"]


async def test_bytes_that_are_no_request_are_refused():
    async with receiving("http") as receiver:
        for kind in ("application/json", "application/x-protobuf"):
            code, _, _ = await trio.to_thread.run_sync(receiver.post, b"\xff{", {"Content-Type": kind})
            assert code == 400


async def test_the_refusal_of_what_is_no_http_arrives_though_more_is_sent():
    async with receiving("http") as receiver, await receiver.connect() as stream:
        await stream.send_all(HEAD.encode() + b"no header\r\n\r\n" + b"x" * 200_000)
        answer = await stream.receive_some()
        await stream.send_eof()
        while await stream.receive_some():
            pass
        assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("garbage", [b"GET\r\n\r\n", b"\0" * 100])
async def test_over_grpc_garbage_ends_the_connection(garbage, caplog):
    async with receiving("grpc") as receiver, await receiver.connect() as stream:
        await stream.send_all(garbage)
        while await stream.receive_some():
            pass
    assert not caplog.records


async def test_over_grpc_a_body_that_drips_is_given_up(monkeypatch):
    monkeypatch.setattr(bodies, "PATIENCE_SECONDS", 0.05)
    async with receiving("grpc") as receiver, await receiver.connect() as stream:
        client, begun = begun_grpc()
        await stream.send_all(begun)
        answer = await headers_of(client, stream)
        assert (answer["grpc-status"], answer["grpc-message"]) == ("4", "the body comes too slowly")


async def headers_of(client, stream):
    event = await event_of(client, stream, h2.events.ResponseReceived)
    return {name.decode(): value.decode() for name, value in event.headers}


async def event_of(client, stream, kind):
    while True:
        for event in client.receive_data(await stream.receive_some()):
            if isinstance(event, kind):
                return event


async def test_a_connection_with_requests_at_once_is_busy_to_the_last_of_them():
    async with receiving("grpc") as receiver, await receiver.connect() as stream:
        client, begun = begun_grpc(1, 3)
        rooms = receiver.source._servers["grpc"].rooms
        await stream.send_all(begun)
        await becomes(lambda: rooms._busy)
        for id in (1, 3):
            client.send_data(id, otlp_grpc.framed(b""), end_stream=True)
            await stream.send_all(client.data_to_send())
            await headers_of(client, stream)
            await trio.testing.wait_all_tasks_blocked()
            assert len(rooms._busy) == (1 if id == 1 else 0)


HEADERS_OF_GRPC = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/opentelemetry.proto.collector.logs.v1.LogsService/Export"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def begun_grpc(*ids, headers=()):
    """Requests whose bodies do not come yet."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    for id in ids or (1,):
        client.send_headers(id, [*HEADERS_OF_GRPC, *headers])
    return client, client.data_to_send()


def h2_frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0)
HEADERS_OF_A_STREAM = bytes([0x83, 0x86, 0x44, 1]) + b"/" + bytes([0x41, 1]) + b"x"
FLOODS = {
    "resets": lambda n: h2_frame(1, 4, 2 * n + 1, HEADERS_OF_A_STREAM) + h2_frame(3, 0, 2 * n + 1, bytes(4)),
    "pings": lambda n: h2_frame(6, 0, 0, bytes(8)),
    "settings": lambda n: h2_frame(4, 0, 0, struct.pack(">HI", 4, 65535)),
    "windows": lambda n: h2_frame(8, 0, 0, struct.pack(">I", 1)),
    "priorities": lambda n: h2_frame(2, 0, 3, bytes(4) + b"\x07"),
    "unknown": lambda n: h2_frame(0xEE, 0, 0),
    "data without bytes": lambda n: h2_frame(1, 4, 1, HEADERS_OF_A_STREAM) if n == 0 else h2_frame(0, 0, 1),
    "headers": lambda n: h2_frame(9 if n else 1, 0, 1, b"\x00\x01a\x01b"),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_over_grpc_who_sends_frames_and_no_requests_is_closed(flood):
    a_door = receiving("grpc", credentials=("old",))
    async with a_door as receiver, await receiver.connect() as stream:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(PREFACE + b"".join(map(FLOODS[flood], range(2000))))
            while await stream.receive_some():
                pass
        assert (await receiver.export(key=OLD))[0] == 0


class Flooding:
    """A peer whose frames are there at once, and what it was sent."""

    leaves = False

    def __init__(self, *blocks):
        self._blocks, self.sent = list(blocks), b""

    async def receive(self):
        await trio.lowlevel.checkpoint()
        return self._blocks.pop(0) if self._blocks else b""

    async def send(self, data):
        self.sent += data


async def test_over_grpc_others_run_between_the_frames_of_one_block():
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    peer = Flooding(PREFACE + FLOODS["pings"](0) * 150, FLOODS["pings"](0) * 150)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await over_grpc(None, peer)
        nursery.cancel_scope.cancel()

    assert turns >= frames.FIRST // frames.MOST_AT_ONCE - 1  # trio runs either task first
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    client.initiate_connection()
    *_, last = client.receive_data(peer.sent)
    assert last.error_code is h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


async def test_over_grpc_a_connection_with_many_requests_is_not_closed():
    async with receiving("grpc", credentials=("old",)) as receiver:
        with grpc.insecure_channel(f"127.0.0.1:{receiver.port}") as channel:

            def ask():
                return [exported(channel, protobuf.encoded(GROUPS), OLD)[0] for _ in range(200)]

            assert await trio.to_thread.run_sync(ask) == [0] * 200
        assert len(receiver.context.batches) == 200


async def test_over_grpc_the_body_of_a_request_that_is_not_admitted_is_not_kept():
    a_door = receiving("grpc", credentials=("old",))
    async with a_door as receiver, await receiver.connect() as stream:
        kept = []
        receiver.source._intake.memory.count = lambda owner, size: kept.append(size)
        client, begun = begun_grpc()
        client.send_data(1, bytes(16 << 10))
        await stream.send_all(begun + client.data_to_send())
        assert (await headers_of(client, stream))["grpc-status"] == "16"

        assert not any(kept)


async def test_over_grpc_a_client_that_goes_in_the_middle_leaves_nothing_behind(caplog):
    async with receiving("grpc") as receiver:
        async with await receiver.connect() as stream:
            await stream.send_all(begun_grpc()[1])
            await stream.receive_some()
        assert (await receiver.export())[0] == 0
        await becomes(lambda: not receiver.source._intake.memory.held)
    assert not caplog.records


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ca():
    return trustme.CA()


def material(pem):
    return Material("x.pem", pem.decode())


def server_tls(ca, **options):
    issued = ca.issue_cert("localhost")
    key, chain = issued.private_key_pem.bytes(), b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return OtlpServerTls(certificate=material(chain), key=material(key), **options)


def over_tls(ca, port, client=None):
    pems = {"root_certificates": ca.cert_pem.bytes()}
    if client is not None:
        pems["private_key"] = client.private_key_pem.bytes()
        pems["certificate_chain"] = client.cert_chain_pems[0].bytes()
    with grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(**pems)) as channel:
        return exported(channel, protobuf.encoded(GROUPS))


async def test_clients_show_a_certificate_where_they_have_to(ca):
    tls = server_tls(ca, client_ca=material(ca.cert_pem.bytes()))
    async with receiving("grpc", tls=tls) as receiver:
        assert (await trio.to_thread.run_sync(over_tls, ca, receiver.port))[0] == 14
        client = ca.issue_cert("client")
        assert (await trio.to_thread.run_sync(over_tls, ca, receiver.port, client))[0] == 0


async def test_connections_with_another_certificate_end_with_the_change(ca):
    async with receiving("http", tls=server_tls(ca)) as receiver:
        context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
        stream = await trio.open_ssl_over_tcp_stream("localhost", receiver.port, ssl_context=context)
        await stream.do_handshake()

        receiver.change(tls=server_tls(ca))
        await receiver.source.changed()
        with suppress(trio.BrokenResourceError):  # as OpenSSL before 3.0.22 tells it
            assert await stream.receive_some() == b""
        await trio.aclose_forcefully(stream)


async def test_the_same_certificate_leaves_connections_open(ca):
    tls = server_tls(ca)
    async with receiving("grpc", tls=tls, credentials=("old",)) as receiver:
        before = receiver.source._servers["grpc"].tls
        receiver.change(tls=tls, credentials=("new",))

        assert receiver.source._servers["grpc"].tls is before


# -- settings ----------------------------------------------------------------------------------------------------------


def test_it_listens_on_the_usual_ports_of_loopback():
    assert [str(one) for one in OtlpInput().listens()] == ["tcp://127.0.0.1:4317", "tcp://127.0.0.1:4318"]


def test_settings_that_cannot_be_are_refused():
    for settings in [
        {"grpc": None, "http": None},
        {"grpc": "0.0.0.0:4317"},
        {"http": "0.0.0.0:4318", "credentials": ("old",)},
        {"grpc": "127.0.0.1:1", "http": "127.0.0.1:1"},
        {"grpc": "unix:/run/x.sock"},
        {"max_body_bytes": 0},
        {"max_decompressed_bytes": 2 << 30},
    ]:
        with pytest.raises(BadOption):
            OtlpInput(**settings)


def test_keys_do_not_change_its_place(ca):
    assert OtlpInput().identity() == OtlpInput(credentials=("old",), max_body_bytes=5).identity()
    assert OtlpInput().identity() != OtlpInput(http=None).identity()


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(libraries, "_NEEDED", ("h2", "no_such_library.below"))

    for plugin in (OtlpInput, partial(OtlpOutput, endpoint="http://127.0.0.1:4318")):
        with pytest.raises(ValueError, match=r"libraries that are not installed: pip install 'shipper\[otlp\]'"):
            plugin()


def test_the_settings_are_there_without_the_libraries():
    code = "import sys; sys.modules.update(dict.fromkeys(['opentelemetry', 'google.protobuf', 'h2', 'h11']))\n"
    code += "import shipper_plugins.otlp.input"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_message_is_expected_in_a_body():
    framed = otlp_grpc.framed
    assert otlp_grpc.message_of(framed(b"abc")) == (b"abc", False)
    for body in (b"", b"\0\0\0\0\5abc", framed(b"a") * 2, struct.pack(">BI", 2, 0)):
        with pytest.raises(Unfit):
            otlp_grpc.message_of(body)
