"""The `http` input over real sockets: requests of a library and of curl, raw HTTP, keys that change, TLS."""

import gzip
import http.client
import socket
import ssl
import struct
import tracemalloc
import zlib
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
import trio
import trio.testing
import trustme

from shipper.plugin import Credential, Endpoint, Material, StartFailed
from shipper.sdk import bodies
from shipper.testing import RecordingInputContext
from shipper_plugins.elasticsearch.input import ServerTls
from shipper_plugins.http import connection as http_connection
from shipper_plugins.http.connection import Connection
from shipper_plugins.http.input import HttpInput
from tests.plugins.running import becomes, running

OLD = Credential.parse({"bearer_token": "old-secret.of-the-test"})
NEW = Credential.parse({"bearer_token": "new-secret.of-the-test"})
ANN = Credential.parse({"username": "ann", "password": "pass"})
API = Credential.parse({"api_key": "id:secret"})
CREDENTIALS = {"old": OLD, "new": NEW, "ann": ANN, "api": API}
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"


class Receiver:
    """An input that runs, and a client for it, which runs in a thread."""

    def __init__(self, context, source, port):
        self.context, self.source, self.port = context, source, port

    def change(self, known=CREDENTIALS, **settings):
        self.source.change(an_input(**settings), known)

    async def post(self, body, headers=JSON, *, key=None, path="/", method="POST"):
        """Status and body of the answer."""
        status, _, answer = await self.asked(body, headers, key=key, path=path, method=method)
        return status, orjson.loads(answer)

    async def asked(self, body, headers=JSON, *, key=None, path="/", method="POST"):
        if key is not None:
            headers = {**headers, "Authorization": key.authorization()}
        return await trio.to_thread.run_sync(self._post, method, path, body, headers)

    def _post(self, method, path, body, headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    async def connect(self):
        return await trio.open_tcp_stream("127.0.0.1", self.port)


def shown(key, body=b"", *, declared=None):
    """A request with a key."""
    length = len(body) if declared is None else declared
    return HEAD + f"Authorization: {key.authorization()}\r\nContent-Length: {length}\r\n\r\n".encode() + body


def an_input(**settings):
    return HttpInput(**{"address": "127.0.0.1:0", **settings})


@asynccontextmanager
async def receiving(**settings):
    context = RecordingInputContext(credentials=CREDENTIALS)
    configured = an_input(**settings)
    configured.load()
    async with running(configured, context) as source:
        port = (await context.listen(Endpoint("tcp", "127.0.0.1"))).getsockname()[1]
        yield Receiver(context, source, port)


async def test_an_answer_comes_when_the_events_are_stored():
    async with receiving() as receiver:
        assert await receiver.post(b'[{"a":1},{"b":2}]') == (200, {"events": 2})

        assert receiver.context.events == [{"a": 1}, {"b": 2}]


@pytest.mark.needs("curl")
async def test_curl_posts_lines_of_any_type_where_the_format_is_set(tmp_path):
    (tmp_path / "app.log").write_bytes(b"one\ntwo\n")
    async with receiving(format="lines", path="/logs", credentials=("old",)) as receiver:
        address = f"http://127.0.0.1:{receiver.port}/logs?x=1"
        key = ["-H", f"Authorization: {OLD.authorization()}"]
        ran = await trio.run_process(
            ["curl", "-sS", "--fail-with-body", address, "--data-binary", f"@{tmp_path}/app.log", *key],
            capture_stdout=True,
        )

        assert orjson.loads(ran.stdout) == {"events": 2}
        assert receiver.context.events == [{"message": "one"}, {"message": "two"}]


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_compressed_body_is_taken(pack):
    encoding = {gzip.compress: "gzip", zlib.compress: "deflate"}[pack]
    async with receiving() as receiver:
        answer = await receiver.post(pack(b"one\ntwo"), {**TEXT, "Content-Encoding": encoding})

        assert answer == (200, {"events": 2})


async def test_a_body_without_events_is_nothing_to_store():
    async with receiving() as receiver:
        assert await receiver.post(b"[]") == (200, {"events": 0})
        assert await receiver.post(b"", TEXT) == (200, {"events": 0})

        assert not receiver.context.batches


async def test_of_a_body_with_an_invalid_object_nothing_is_stored():
    async with receiving() as receiver:
        status, answer = await receiver.post(b'{"a":1}\n{"secret', {"Content-Type": "application/x-ndjson"})

        assert (status, answer) == (400, {"error": "line 2: the document is not valid JSON"})
        assert not receiver.context.batches


async def test_a_fault_of_ours_is_told_by_its_place_and_quotes_no_event(caplog, monkeypatch):
    async def emit(*batches, wait):
        raise ValueError(batches[0].body)

    async with receiving() as receiver:
        monkeypatch.setattr(receiver.context, "emit", emit)
        assert await receiver.post(b'[{"a":"canary"}]') == (500, {"error": "internal error"})

    assert "a request could not be answered: ValueError at test_input_http.py:" in caplog.text
    assert "canary" not in caplog.text


async def test_without_room_a_client_is_told_to_come_again():
    async with receiving() as receiver:
        receiver.context.full = True
        status, headers, _ = await receiver.asked(b"[{}]")
        assert (status, headers["Retry-After"]) == (429, "1")

        receiver.context.full = False
        assert (await receiver.post(b"[{}]"))[0] == 200


async def asked_for_health(receiver):
    status, _, answer = await receiver.asked(None, {}, path="/health", method="GET")
    return status, orjson.loads(answer)


async def test_a_probe_without_a_key_is_told_that_events_are_taken():
    async with receiving(credentials=("old",)) as receiver:
        assert await asked_for_health(receiver) == (200, {"status": "ok"})
        head = await receiver.asked(None, {}, path="/health?from=lb", method="HEAD")
        assert (head[0], head[2]) == (200, b"")

        assert not receiver.context.batches
        assert (await receiver.post(b"[{}]", path="/health"))[0] == 401


async def test_a_probe_is_told_why_a_request_would_be_turned_away():
    async with receiving(credentials=("old",)) as receiver:
        receiver.context.full = True
        status, headers, answer = await receiver.asked(None, {}, path="/health", method="GET")
        assert (status, orjson.loads(answer), headers["Retry-After"]) == (503, {"error": "the queue is full"}, "1")
        receiver.context.full = False

        memory = receiver.source._intake.memory
        memory.held = memory.limit
        assert (await asked_for_health(receiver))[1] == {"error": "too many bytes of requests are under way"}
        memory.held = 0

        receiver.change({}, credentials=("old",))
        assert (await asked_for_health(receiver))[1] == {"error": "the input has no usable credentials"}
        receiver.change(credentials=("old",))
        assert (await asked_for_health(receiver))[0] == 200


async def test_a_probe_is_told_of_no_room_for_what_was_turned_away_last(monkeypatch):
    async with receiving() as receiver:
        monkeypatch.setattr(receiver.context, "no_room", lambda size: f"{size} bytes" if size else None)
        receiver.context.full = True
        assert (await receiver.post(b'[{"a":1}]'))[0] == 429
        assert await asked_for_health(receiver) == (503, {"error": "8 bytes"})

        receiver.context.full = False
        assert (await receiver.post(b"[]"))[0] == 200
        assert (await asked_for_health(receiver))[0] == 503
        assert (await receiver.post(b"[{}]"))[0] == 200
        assert (await asked_for_health(receiver))[0] == 200


async def test_a_probe_takes_no_clients_place_and_is_told_when_all_are_taken():
    async with receiving() as receiver:
        server = receiver.source._server
        server.rooms._most = 1
        async with await receiver.connect() as stream:
            await stream.send_all(HEAD + b"Content-Length: 1\r\n\r\nx")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
            assert (await asked_for_health(receiver))[0] == 200  # the client is idle, so it would give way
            await stream.send_all(HEAD + b"Content-Length: 9\r\n\r\nx")
            await becomes(lambda: server.rooms._busy)
            assert await asked_for_health(receiver) == (503, {"error": "too many clients are served now"})

            await stream.send_all(b"x" * 8)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_the_path_of_probes_is_set_or_left_out():
    async with receiving(health_path="/") as receiver:
        assert (await receiver.asked(None, {}, method="GET"))[0] == 200
        assert (await receiver.post(b"[{}]"))[0] == 200
        assert (await asked_for_health(receiver))[0] == 404

        receiver.change(health_path=None)
        assert (await receiver.asked(None, {}, method="GET"))[0] == 405


@pytest.mark.parametrize("key", [OLD, ANN, API])
async def test_a_key_opens_the_door(key):
    async with receiving(credentials=("old", "ann", "api")) as receiver:
        assert (await receiver.post(b"[{}]", key=key))[0] == 200

        status, headers, answer = await receiver.asked(b"[{}]", key=NEW)
        assert (status, headers["WWW-Authenticate"][:6]) == (401, "Bearer")
        assert b"secret" not in answer
        assert (await receiver.post(b"[{}]"))[0] == 401
        assert receiver.context.count == 1


async def test_a_removed_key_is_refused_on_a_connection_that_is_open():
    request = shown(OLD, b"x")
    async with receiving(credentials=("old",)) as receiver, await receiver.connect() as stream:
        await stream.send_all(request)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        receiver.change(credentials=("new",))
        await stream.send_all(request)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 401 ")
        assert (await receiver.post(b"[{}]", key=NEW))[0] == 200


async def test_a_connection_that_has_shown_a_removed_key_is_closed_before_the_key_is_released():
    async def post(stream, key):
        await stream.send_all(shown(key, b"x"))
        return (await stream.receive_some())[:12]

    async with receiving(credentials=("old", "new")) as receiver:
        old, new, both = [await receiver.connect() for _ in range(3)]
        for stream, key in ((old, OLD), (new, NEW), (both, OLD), (both, NEW)):
            assert await post(stream, key) == b"HTTP/1.1 200"
        receiver.change(credentials=("new",))
        await receiver.source.changed()

        assert len(receiver.source._server._peers) == 1
        assert await old.receive_some() == await both.receive_some() == b""
        assert await post(new, NEW) == b"HTTP/1.1 200"
        for stream in (old, new, both):
            await stream.aclose()


async def test_a_request_under_way_with_a_removed_key_is_answered_before_its_connection_ends():
    async with receiving(credentials=("old",)) as receiver, await receiver.connect() as stream:
        await stream.send_all(shown(OLD, b"xy")[:-1])
        await becomes(lambda: any(peer.shown for peer in receiver.source._server._peers))
        receiver.change(credentials=("new",))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.source.changed)
            await trio.testing.wait_all_tasks_blocked()
            await stream.send_all(b"y")
            answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nConnection: close\r\n" in answer
        assert await stream.receive_some() == b""


async def test_with_withdrawn_keys_nobody_may_enter_until_one_is_there_again():
    async with receiving(credentials=("old",)) as receiver:
        receiver.change({}, credentials=("old",))
        assert (await receiver.post(b"[{}]", key=OLD))[0] == 401
        assert receiver.context.problem

        receiver.change(credentials=("old",))
        assert (await receiver.post(b"[{}]", key=OLD))[0] == 200
        assert receiver.context.problem is None


async def test_a_changed_path_and_format_hold_for_the_next_request():
    async with receiving() as receiver:
        receiver.change(path="/new", format="lines")

        assert (await receiver.post(b"{}"))[0] == 404
        assert await receiver.post(b"{}", path="/new") == (200, {"events": 1})
        assert receiver.context.events == [{"message": "{}"}]


async def test_what_cannot_be_taken_is_refused_with_a_status():
    for method, path, headers, status in [
        ("POST", "/elsewhere", {}, 404),
        ("GET", "/", {}, 405),
        ("OPTIONS", "/", {}, 405),
        ("POST", "/", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", "/", {"Content-Type": "text/plain; charset=klingon"}, 415),
        ("POST", "/", {"Content-Type": "text/plain; charset=base64"}, 415),
        ("POST", "/", {"Content-Type": "text/plain; charset=punycode"}, 415),
        ("POST", "/", {"Content-Encoding": "br"}, 415),
        ("POST", "/", {"Content-Encoding": "gzip"}, 400),
        ("POST", "/", {"Host": "evil.example"}, 421),
        ("POST", "/", {"Origin": "https://evil.example"}, 403),
        ("POST", "/", {"Sec-Fetch-Site": "cross-site"}, 403),
    ]:
        async with receiving() as receiver:
            found, answer = await receiver.post(b"{}", {**JSON, **headers}, path=path, method=method)

            assert found == status
            assert answer["error"]
            assert not receiver.context.batches


async def test_the_answer_to_a_head_has_no_body(caplog):
    async with receiving() as receiver:
        status, headers, body = await receiver.asked(None, {}, method="HEAD")

        assert (status, headers["Allow"], body) == (405, "POST, PUT", b"")
    assert not caplog.records


async def test_a_page_with_a_key_is_a_client_like_any_other():
    async with receiving(credentials=("old",)) as receiver:
        headers = {**JSON, "Origin": "https://own.example", "Host": "logs.example"}

        assert (await receiver.post(b"{}", headers, key=OLD))[0] == 200


@pytest.mark.parametrize("option", ["max_body_bytes", "max_decompressed_bytes"])
async def test_a_body_over_a_limit_is_refused(option):
    async with receiving(**{option: 100}) as receiver:
        body, headers = b"x" * 101, TEXT
        if option == "max_decompressed_bytes":
            body, headers = gzip.compress(b"x" * (4 << 20)), {**TEXT, "Content-Encoding": "gzip"}

        assert (await receiver.post(body, headers))[0] == 413
        assert (await receiver.post(iter([body]), headers))[0] == 413
        assert (await receiver.post(b"x" * 100, TEXT))[0] == 200


async def test_requests_hold_so_much_memory_together_and_give_it_back():
    async with receiving() as receiver:
        memory = receiver.source._intake.memory
        memory.held = memory.limit
        assert (await receiver.post(b"{}"))[0] == 429

        memory.held = 0
        assert (await receiver.post(b"{}"))[0] == 200
        await becomes(lambda: not memory.held)


async def test_what_a_client_only_declares_and_what_it_holds_leave_room_for_the_others():
    async with receiving(credentials=("old", "new")) as receiver:
        memory = receiver.source._intake.memory
        streams = [await receiver.connect() for _ in range(9)]
        for stream in streams[:8]:
            await stream.send_all(shown(OLD, declared=8 << 20))
        await becomes(lambda: len(receiver.source._server.rooms._busy) >= 8)
        assert (await receiver.post(b"x", TEXT, key=OLD))[0] == 200

        memory.limit, memory.of_one = 1000, 500
        await streams[0].send_all(b"x" * 400)
        await becomes(lambda: memory.held >= 400)
        assert (await receiver.post(b"x" * 101, TEXT, key=OLD))[0] == 429
        assert (await receiver.post(b"x" * 101, TEXT, key=NEW))[0] == 200
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def test_pipelined_requests_are_answered_one_after_the_other():
    async with receiving() as receiver, await receiver.connect() as stream:
        await stream.send_all((HEAD + b"Content-Length: 1\r\n\r\nx") * 3)
        answers = b""
        while answers.count(b"200 ") < 3:
            answers += await stream.receive_some()


async def test_a_client_that_waits_is_told_to_continue():
    async with receiving() as receiver, await receiver.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"x")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "garbage", [b"GET\r\n\r\n", b"\0" * 100, b"POST / HTTP/1.1\r\n\r\n", b"A: " + b"x" * 100_000, b"\x16\x03\x01" * 9]
)
async def test_garbage_ends_the_connection(garbage, caplog):
    async with receiving() as receiver, await receiver.connect() as stream:
        await stream.send_all(garbage)
        await stream.send_eof()
        while await stream.receive_some():
            pass
    assert not caplog.records


async def test_framing_that_is_not_http_is_refused():
    async with receiving() as receiver, await receiver.connect() as stream:
        await stream.send_all(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 400 ")
        assert not receiver.context.batches


async def test_a_body_that_drips_is_given_up(monkeypatch):
    monkeypatch.setattr(bodies, "PATIENCE_SECONDS", 0.05)
    async with receiving() as receiver, await receiver.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: 9\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 408 ")


async def test_a_head_that_drips_is_given_up(monkeypatch):
    monkeypatch.setattr(http_connection, "_HEAD_SECONDS", 0.1)
    async with receiving() as receiver, await receiver.connect() as stream, trio.open_nursery() as nursery:

        async def drip():
            with suppress(trio.BrokenResourceError):
                for byte in HEAD * 1000:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(0.01)

        nursery.start_soon(drip)
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("aborts", [False, True])
async def test_a_client_that_goes_in_the_middle_leaves_nothing_behind(caplog, aborts):
    async with receiving() as receiver:
        async with await receiver.connect() as stream:
            if aborts:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.send_all(HEAD + b"Content-Length: 9\r\n\r\n{")
            await trio.testing.wait_all_tasks_blocked()
        assert (await receiver.post(b"{}"))[0] == 200
        await becomes(lambda: not receiver.source._server._peers)
        assert not receiver.source._intake.memory.held
        assert receiver.context.count == 1
    assert not caplog.records


class Sending:
    """A peer whose bytes are there at once."""

    def __init__(self, *blocks):
        self._blocks = list(blocks)

    async def receive(self):
        await trio.lowlevel.checkpoint()
        return self._blocks.pop(0) if self._blocks else b""


async def test_a_body_in_tiny_chunks_takes_no_more_memory_than_another():
    count = 4000
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    connection = Connection(Sending(head, *[b"2\r\nab\r\n" * 100] * (count // 100), b"0\r\n\r\n"))
    request = await connection.begin()
    with bodies.Memory().share(1) as share:
        tracemalloc.start()
        try:
            body = await connection.body(request, 1 << 20, share)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert body == b"ab" * count
    assert peak < 450 << 10  # a list of its chunks takes nearly twice as much


async def test_others_run_between_the_chunks_of_a_body():
    turns = 0

    async def take_turns():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    connection = Connection(Sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1000, b"0\r\n\r\n"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        request = await connection.begin()
        with bodies.Memory().share(1) as share:
            assert await connection.body(request, 1 << 20, share) == b"x" * 1000
        nursery.cancel_scope.cancel()
    assert turns > 500


# -- TLS ---------------------------------------------------------------------------------------------------------------


def server_tls(ca):
    issued = ca.issue_cert("localhost")
    key, chain = issued.private_key_pem.bytes(), b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    return ServerTls(certificate=Material("x.pem", chain.decode()), key=Material("x.pem", key.decode()))


async def over_tls(ca, receiver, key):
    client = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    async with await receiver.connect() as stream:
        secured = trio.SSLStream(stream, client, server_hostname="localhost", https_compatible=True)
        await secured.send_all(shown(key, b"x"))
        return await secured.receive_some(12)


async def test_events_come_over_tls_and_a_new_certificate_holds_for_new_connections():
    ca, other = trustme.CA(), trustme.CA()
    async with receiving(tls=server_tls(ca), credentials=("old",)) as receiver:
        assert await over_tls(ca, receiver, OLD) == b"HTTP/1.1 200"

        receiver.change(tls=server_tls(other), credentials=("old",))
        await receiver.source.changed()

        assert await over_tls(other, receiver, OLD) == b"HTTP/1.1 200"
        with pytest.raises(trio.BrokenResourceError):
            await over_tls(ca, receiver, OLD)


async def test_a_connection_from_before_tls_is_refused():
    request = HEAD + b"Content-Length: 1\r\n\r\nx"
    async with receiving() as receiver, await receiver.connect() as stream:
        await stream.send_all(request)
        await stream.receive_some()
        receiver.change(tls=server_tls(trustme.CA()))
        await stream.send_all(request)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 401 ")


async def test_a_credential_of_the_wrong_shape_is_told_at_the_start():
    context = RecordingInputContext(credentials={"old": Credential.parse({"token": "x"})})
    with pytest.raises(StartFailed, match="bearer_token"):
        async with an_input(credentials=("old",)).open(context):
            pass


@pytest.mark.parametrize("charset", ["iso-8859-1", "UTF-16", '"utf-16be"', "windows-1252", "utf-8", "us-ascii"])
async def test_lines_of_text_are_decoded_by_the_charset_of_the_client(charset):
    body = "caf\u00e9\r\nth\u00e9\n".encode("utf-8" if charset == "us-ascii" else charset.strip('"'))
    async with receiving() as receiver:
        status, _ = await receiver.post(body, {"Content-Type": f"text/plain; format=flowed; charset={charset}"})

        assert status == 200
        assert [event["message"] for batch in receiver.context.batches for event in batch.whole()] == ["café", "thé"]
