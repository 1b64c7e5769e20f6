"""The bulk receiver over real sockets: official clients, raw HTTP, keys that change under load, floods and bombs."""

import gzip
import ssl
import threading
import tracemalloc
from contextlib import asynccontextmanager, suppress

import elasticsearch
import elasticsearch.helpers
import opensearchpy
import opensearchpy.helpers
import orjson
import pytest
import trio
import trio.testing
import trustme

from shipper.plugin import API_KEY, BASIC, CERTIFICATE, Batch, Credential, Endpoint, Material, Size, StartFailed
from shipper.policy import policy
from shipper.policy.registry import Registry
from shipper.policy.uses import uses
from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext
from shipper_plugins.elasticsearch.input import ElasticsearchInput, ServerTls
from shipper_plugins.elasticsearch.server import connections, http, server
from shipper_plugins.elasticsearch.server.request import BulkRequest
from tests.plugins.running import running

OLD = Credential.parse({"api_key": "old:secret"})
NEW = Credential.parse({"api_key": "new:secret"})
ANN = Credential.parse({"username": "ann", "password": "pass"})
CREDENTIALS = {"old": OLD, "new": NEW, "ann": ANN}
FREE = Endpoint("tcp", "127.0.0.1")
NDJSON = {"Content-Type": "application/x-ndjson"}
OK = b'{"create":{}}\n{"n":1}\n'


class Context(RecordingInputContext):
    """Also says when an emit is under way, and can hold it there."""

    def __init__(self, **options):
        super().__init__(**options)
        self.emitting = self.given_up = 0
        self.gate = trio.Event()
        self.gate.set()

    async def emit(self, *batches: Batch, positions=None, wait=True):
        self.emitting += 1
        self._notify()
        try:
            await self.gate.wait()
        except trio.Cancelled:
            self.given_up += 1
            self._notify()
            raise
        await super().emit(*batches, positions=positions, wait=wait)


class Receiver:
    """An input that runs until its `scope` is cancelled, and clients for it."""

    def __init__(self, context, source, port):
        self.context = context
        self.source = source
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.scope = trio.CancelScope()

    async def run(self):
        with self.scope:
            await self.source.run()

    def change(self, credentials_there=CREDENTIALS, **settings):
        self.source.change(an_input(**settings), credentials_there)

    async def hold(self, client, body=OK):
        """A request whose events are not stored until the gate is open."""
        before, self.context.gate = self.context.emitting, trio.Event()
        await client.send("POST", "/_bulk", body)
        await self.context.wait_until(lambda: self.context.emitting > before)

    async def connect(self):
        return Client(await trio.open_tcp_stream("127.0.0.1", self.port))

    async def request(self, *args, **options):
        """One request on a connection of its own."""
        async with await self.connect() as client:
            return await client.request(*args, **options)


class Answer:
    def __init__(self, head, body):
        first, *rest = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        self.body = body

    @property
    def json(self):
        return orjson.loads(self.body)


class Client:
    """HTTP over one connection, byte for byte."""

    def __init__(self, stream):
        self.stream = stream
        self.buffer = b""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await trio.aclose_forcefully(self.stream)

    async def send(self, method, path, body=b"", *, key=None, headers=NDJSON, length=None):
        lines = {"Host": "x", "Content-Length": str(len(body) if length is None else length), **headers}
        if key is not None:
            lines["Authorization"] = key.authorization()
        if "Transfer-Encoding" in lines:
            del lines["Content-Length"]
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self.stream.send_all(head.encode() + b"\r\n" + body)

    async def more(self):
        block = await self.stream.receive_some(65536)
        if not block:
            raise EOFError
        self.buffer += block

    async def answer(self, *, head=False):
        while b"\r\n\r\n" not in self.buffer:
            await self.more()
        top, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        answer = Answer(top, b"")
        if answer.status == 100 or head:
            return answer
        while len(self.buffer) < int(answer.headers["content-length"]):
            await self.more()
        length = int(answer.headers["content-length"])
        answer.body, self.buffer = self.buffer[:length], self.buffer[length:]
        return answer

    async def request(self, method, path, body=b"", **options):
        await self.send(method, path, body, **options)
        return await self.answer(head=method == "HEAD")

    async def is_closed(self):
        with suppress(trio.BrokenResourceError):
            return await self.stream.receive_some(1) == b""
        return True


def an_input(address="127.0.0.1:0", **settings):
    return ElasticsearchInput(address=address, **settings)


@asynccontextmanager
async def a_receiver(**settings):
    """A receiver that runs; at the end of the block it is stopped."""
    with trio.fail_after(60):
        async with open_asyncio() as aio:
            context = Context(credentials=CREDENTIALS, aio=aio)
            async with an_input(**settings).open(context) as source, trio.open_nursery() as nursery:
                receiver = Receiver(context, source, (await context.listen(FREE)).getsockname()[1])
                nursery.start_soon(receiver.run)
                yield receiver
                receiver.scope.cancel()


def bulk(count, first=0):
    return b"".join(b'{"create":{}}\n{"n":%d}\n' % n for n in range(first, first + count))


def numbers(context):
    return [event["n"] for event in context.events]


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:9200", "10.0.0.1:9200", "[::]:9200", "example.org:9200"])
def test_an_address_other_than_loopback_needs_tls_and_credentials(address, identity):
    tls = ServerTls(credential="cert")
    with pytest.raises(ValueError, match="loopback"):
        an_input(address)
    with pytest.raises(ValueError, match="loopback"):
        an_input(address, tls=tls)
    with pytest.raises(ValueError, match="loopback"):
        an_input(address, credentials=("old",))

    assert an_input(address, tls=tls, credentials=("old",)).listens()


def test_an_address_is_host_and_port():
    for address in ["9200", ":9200", "127.0.0.1:", "127.0.0.1:99999", "::1:9200", "127.0.0.1:x", ""]:
        with pytest.raises(ValueError, match="address"):
            an_input(address)


def test_an_input_says_what_its_credentials_are_good_for():
    found = uses(an_input(tls=ServerTls(credential="cert"), credentials=("a", "b")))

    assert [(use.path, use.id, use.shapes) for use in found] == [
        (("credentials", 0), "a", (API_KEY, BASIC)),
        (("credentials", 1), "b", (API_KEY, BASIC)),
        (("tls", "credential"), "cert", (CERTIFICATE,)),
    ]


def test_an_input_says_where_it_listens():
    assert an_input("[::1]:9200").listens() == (Endpoint("tcp", "::1", 9200),)


@pytest.mark.parametrize("address", ["127.0.0.1:9200", "127.9.9.9:1", "[::1]:9200", "localhost:9200"])
def test_loopback_needs_neither(address):
    assert an_input(address).identity() == an_input(address, max_body_bytes=Size(5)).identity()


def test_tls_is_either_two_files_or_a_credential(identity):
    with pytest.raises(ValueError, match="tls is"):
        ServerTls()
    with pytest.raises(ValueError, match="tls is"):
        ServerTls(certificate=identity.certificate)
    with pytest.raises(ValueError, match="tls is"):
        ServerTls(certificate=identity.certificate, key=identity.key, credential="cert")
    with pytest.raises(ValueError, match="bad TLS material"):
        ServerTls(certificate=identity.certificate, key=identity.certificate)


def test_a_policy_may_limit_what_is_received():
    limits = "max_body_bytes: 1MiB, max_decompressed_bytes: 2MiB"
    text = f'version: 1\ninputs: {{apps: {{type: elasticsearch, address: "127.0.0.1:9200", {limits}}}}}\n'
    config = policy.parse(text, Registry.installed()).inputs["apps"].config

    assert (config.max_body_bytes, config.max_decompressed_bytes) == (1 << 20, 2 << 20)


@pytest.mark.parametrize("limit", ["max_body_bytes", "max_decompressed_bytes"])
def test_a_limit_of_nothing_is_refused(limit):
    with pytest.raises(ValueError, match="above 0"):
        an_input(**{limit: Size(0)})


async def test_a_credential_of_another_shape_keeps_the_input_from_starting():
    context = RecordingInputContext(credentials={"t": Credential.parse({"token": "x"})})
    with pytest.raises(StartFailed, match="shapes"):
        async with an_input(credentials=("t",)).open(context):
            pass
    with pytest.raises(StartFailed, match="shape"):
        async with an_input(tls=ServerTls(credential="t")).open(context):
            pass


# -- official clients --------------------------------------------------------------------------------------------------


def ship_with_elasticsearch(url, key, count):
    with elasticsearch.Elasticsearch(url, api_key=("old", "secret"), http_compress=True) as client:
        assert client.info()["tagline"] == "You Know, for Search"
        assert client.ping()
        actions = ({"_op_type": "create", "_index": "logs-shop-prod", "_id": str(n), "n": n} for n in range(count))
        return list(elasticsearch.helpers.streaming_bulk(client, actions, chunk_size=700))


def ship_with_opensearch(url, key, count):
    client = opensearchpy.OpenSearch(url, http_auth=("ann", "pass"))
    try:
        assert client.info()["version"]["number"]
        actions = ({"_index": "shop", "n": n} for n in range(count))
        return list(opensearchpy.helpers.streaming_bulk(client, actions, chunk_size=700))
    finally:
        client.close()


@pytest.mark.parametrize("ship", [ship_with_elasticsearch, ship_with_opensearch])
async def test_an_official_client_ships_every_document_once(ship):
    async with a_receiver(credentials=("old", "ann")) as receiver:
        results = await trio.to_thread.run_sync(ship, receiver.url, "old", 5000)

        assert all(ok and item[op]["status"] == 201 for ok, item in results for op in item)
        assert len(results) == 5000
        assert sorted(numbers(receiver.context)) == list(range(5000))


# -- HTTP --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/_license", "/_xpack", "/_cluster/health", "/_nodes/http", "/_index_template/a", "/_ilm/policy/x"]
)
async def test_what_clients_ask_first_is_answered_as_by_elasticsearch(path):
    async with a_receiver() as receiver, await receiver.connect() as client:
        got = await client.request(
            "GET", path, headers={"Accept": "application/vnd.elasticsearch+json; compatible-with=9"}
        )
        head = await client.request("HEAD", path)

    assert (got.status, head.status) == (200, 200)
    assert got.headers["x-elastic-product"] == head.headers["x-elastic-product"] == "Elasticsearch"
    assert got.headers["content-type"] == "application/vnd.elasticsearch+json; compatible-with=9"
    assert isinstance(got.json, dict)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/_search", 404),
        ("POST", "/a/b/_bulk", 404),
        ("DELETE", "/_bulk", 405),
        ("POST", "/", 404),
        ("POST", "/%FF/_bulk", 200),
    ],
)
async def test_other_paths_and_methods_are_refused_in_its_words(method, path, status):
    async with a_receiver() as receiver:
        answer = await receiver.request(method, path, OK)

    assert answer.status == status
    assert answer.headers["x-elastic-product"] == "Elasticsearch"
    assert answer.json.get("status", 200) == status


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/x-ndjson",
        "application/json; charset=utf-8",
        "application/vnd.elasticsearch+json; compatible-with=8",
        "application/vnd.elasticsearch+x-ndjson;compatible-with=9",
    ],
)
async def test_a_body_of_each_type_of_json_is_taken(content_type):
    async with a_receiver() as receiver:
        answer = await receiver.request("PUT", "/logs-a-b/_bulk", OK, headers={"Content-Type": content_type})

    assert answer.json["items"][0]["create"]["_index"] == "logs-a-b"
    assert receiver.context.events[0]["data_stream"] == {"type": "logs", "dataset": "a", "namespace": "b"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 406),
        ({}, 406),
        ({**NDJSON, "Content-Encoding": "br"}, 415),
        ({**NDJSON, "Content-Encoding": "gzip, gzip"}, 415),
        ({**NDJSON, "Content-Encoding": "gzip"}, 400),
    ],
)
async def test_a_body_that_is_not_read_is_refused(headers, status):
    async with a_receiver() as receiver:
        answer = await receiver.request("POST", "/_bulk", OK, headers=headers)

    assert answer.status == status
    assert receiver.context.count == 0


async def test_a_client_that_waits_to_be_told_to_continue_is_told():
    async with a_receiver() as receiver, await receiver.connect() as client:
        await client.send("POST", "/_bulk", headers={**NDJSON, "Expect": "100-continue"}, length=len(OK))
        first = await client.answer()
        await client.stream.send_all(OK)
        second = await client.answer()

    assert (first.status, second.status) == (100, 200)


async def test_a_client_that_waits_in_vain_finds_its_connection_closed():
    async with a_receiver(credentials=("old",)) as receiver, await receiver.connect() as client:
        await client.send("POST", "/_bulk", headers={**NDJSON, "Expect": "100-continue"}, length=len(OK))
        answer = await client.answer()

    assert (answer.status, answer.headers["connection"]) == (401, "close")


async def test_a_malformed_action_stores_nothing_of_the_request():
    async with a_receiver() as receiver:
        answer = await receiver.request("POST", "/_bulk", bulk(100) + b"{}\n{}\n")

    assert (answer.status, answer.json["error"]["type"]) == (400, "illegal_argument_exception")
    assert receiver.context.count == 0


NOISE = [b"\x16\x03\x01\x02\x00 hunter2\r\n\r\n", b"GET /" + b"x" * 20000, b"POST / HTTP/1.1\r\nhunter2\r\n\r\n"]


@pytest.mark.parametrize("noise", NOISE)
async def test_what_is_no_http_is_refused_without_quoting_it(noise, caplog):
    async with a_receiver() as receiver, await receiver.connect() as client:
        await client.stream.send_all(noise)
        answer = await client.answer()

        assert await client.is_closed()
    assert (answer.status, answer.headers["x-elastic-product"]) == (400, "Elasticsearch")
    assert b"hunter2" not in answer.body
    assert caplog.records == []


# -- who may write -----------------------------------------------------------------------------------------------------


async def test_a_web_page_cannot_write_by_a_name_that_it_points_at_loopback():
    async with a_receiver() as receiver:
        rebound = {**NDJSON, "Host": "attacker.example", "Origin": "http://attacker.example"}
        answer = await receiver.request("POST", "/_bulk", bulk(1), headers=rebound)

        assert answer.status == 421
        assert receiver.context.batches == []


async def test_with_credentials_a_client_may_call_the_host_what_it_likes():
    async with a_receiver(credentials=("old",)) as receiver:
        named = {**NDJSON, "Host": "logs.example.com"}
        answer = await receiver.request("POST", "/_bulk", bulk(1), headers=named, key=OLD)

        assert answer.status == 200


async def test_a_request_without_a_right_key_is_refused_before_its_body():
    async with a_receiver(credentials=("old",)) as receiver:
        for key in (None, NEW, ANN):
            async with await receiver.connect() as client:
                await client.send("POST", "/_bulk", key=key, length=50_000_000)
                answer = await client.answer()

            assert (answer.status, answer.json["error"]["type"]) == (401, "security_exception")
            assert "ApiKey" in answer.headers["www-authenticate"]
        assert (await receiver.request("GET", "/")).status == 401
        assert (await receiver.request("POST", "/_bulk", OK, key=OLD)).status == 200


async def test_a_removed_key_is_refused_on_a_connection_that_was_kept_alive():
    async with a_receiver(credentials=("old",)) as receiver, await receiver.connect() as client:
        before = await client.request("POST", "/_bulk", OK, key=OLD)
        receiver.change(credentials=("new",))
        after = await client.request("POST", "/_bulk", OK, key=OLD)
        again = await client.request("POST", "/_bulk", OK, key=NEW)

    assert [before.status, after.status, again.status] == [200, 401, 200]
    assert receiver.context.count == 2


async def test_a_connection_that_has_shown_a_removed_key_is_closed_before_the_key_is_released():
    a_door = a_receiver(credentials=("old", "new"))
    async with a_door as receiver, await receiver.connect() as old, await receiver.connect() as new:
        for client, key in ((old, OLD), (new, NEW)):
            assert (await client.request("POST", "/_bulk", OK, key=key)).status == 200
        receiver.change(credentials=("new",))
        await receiver.source.changed()

        assert len(receiver.source._server._connections._open_ones) == 1
        assert await old.is_closed()
        assert (await new.request("POST", "/_bulk", OK, key=NEW)).status == 200


async def test_a_request_that_was_let_in_completes_though_its_key_is_removed_meanwhile():
    async with a_receiver(credentials=("old",)) as receiver, await receiver.connect() as client:
        await client.send(
            "POST", "/_bulk", OK[:20], key=OLD, headers={**NDJSON, "Expect": "100-continue"}, length=len(OK)
        )
        assert (await client.answer()).status == 100
        receiver.change(credentials=("new",))
        await client.stream.send_all(OK[20:])

        assert (await client.answer()).status == 200
        assert (await receiver.request("POST", "/_bulk", OK, key=OLD)).status == 401
    assert receiver.context.count == 1


async def test_under_load_no_request_enters_with_the_old_key_after_the_change():
    async with a_receiver(credentials=("old",)) as receiver:
        accepted = []
        rounds = trio.Event()

        async def ship(client_number):
            key, n = OLD, client_number * 10_000
            async with await receiver.connect() as client:
                while not (rounds.is_set() and key is NEW):
                    answer = await client.request("POST", "/_bulk", bulk(10, n), key=key)
                    if answer.status == 401:
                        assert rounds.is_set()
                        key = NEW
                    else:
                        accepted.extend(range(n, n + 10))
                        n += 10

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(ship, number)
            await receiver.context.wait_for(500)
            receiver.change(credentials=("new",))
            rounds.set()

        assert sorted(numbers(receiver.context)) == sorted(accepted)


async def test_a_change_that_brings_no_usable_key_lets_nobody_in_and_says_so():
    async with a_receiver(credentials=("old",)) as receiver:
        receiver.change(credentials=("gone",))

        assert (await receiver.request("POST", "/_bulk", OK, key=OLD)).status == 401
        assert "credentials" in receiver.context.problem
        receiver.change(credentials=("new",))

        assert (await receiver.request("POST", "/_bulk", OK, key=NEW)).status == 200
        assert receiver.context.problem is None


async def test_a_withdrawn_key_is_refused_and_the_others_are_not():
    async with a_receiver(credentials=("old", "new")) as receiver, await receiver.connect() as client:
        assert (await client.request("POST", "/_bulk", OK, key=OLD)).status == 200
        receiver.change({"new": NEW}, credentials=("old", "new"))
        refused = await client.request("POST", "/_bulk", OK, key=OLD)
        taken = await client.request("POST", "/_bulk", OK, key=NEW)

    assert (refused.status, taken.status) == (401, 200)


# -- limits ------------------------------------------------------------------------------------------------------------


async def test_without_room_the_whole_request_is_answered_429_and_nothing_is_stored():
    async with a_receiver() as receiver:
        receiver.context.full = True
        refused = await receiver.request("POST", "/_bulk", bulk(10))
        receiver.context.full = False
        taken = await receiver.request("POST", "/_bulk", bulk(10))

    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert refused.json["error"]["type"] == "es_rejected_execution_exception"
    assert taken.status == 200
    assert receiver.context.count == 10


async def test_a_body_over_the_limit_is_answered_413_declared_or_not():
    async with a_receiver(max_body_bytes=Size(1024)) as receiver, await receiver.connect() as client:
        await client.send("POST", "/_bulk", length=1025)
        declared = await client.answer()
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(bulk(100)), bulk(100))
        chunked = await receiver.request("POST", "/_bulk", chunk, headers={**NDJSON, "Transfer-Encoding": "chunked"})

    assert (declared.status, chunked.status) == (413, 413)
    assert declared.json["error"]["reason"] == "the body is larger than 1KiB"
    assert receiver.context.count == 0


async def memory_for(receiver, body):
    """The answer to this body, sent by gzip, and the memory that it took."""
    packed = gzip.compress(body, 1)
    tracemalloc.start()
    try:
        answer = await receiver.request("POST", "/_bulk", packed, headers={**NDJSON, "Content-Encoding": "gzip"})
        return answer, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_bomb_is_noticed_before_it_takes_memory():
    async with a_receiver(max_decompressed_bytes=Size(4 << 20)) as receiver:
        answer, peak = await memory_for(receiver, b'{"create":{}}\n{"message":"' + b"x" * (24 << 20))

    assert answer.status == 413
    assert peak < 12 << 20


async def test_a_document_that_unfolds_to_gigabytes_is_refused_before_it_takes_memory():
    async with a_receiver() as receiver:
        answer, peak = await memory_for(receiver, b'{"create":{}}\n{"a":[' + b"{}," * (4 << 20) + b"{}]}\n" + OK)

    assert [item["create"]["status"] for item in answer.json["items"]] == [400, 201]
    assert peak < 12 << 20


async def test_while_a_long_document_is_read_others_are_answered(monkeypatch):
    """To load 32 MiB takes some tenths of a second."""
    reading, go_on = threading.Event(), threading.Event()
    one_by_one = BulkRequest._one_by_one

    def slowly(request, lines):
        if len(lines[0]) > 1 << 20:
            reading.set()
            assert go_on.wait(30)
        one_by_one(request, lines)

    monkeypatch.setattr(BulkRequest, "_one_by_one", slowly)
    async with a_receiver() as receiver, await receiver.connect() as client:
        await client.send("POST", "/_bulk", b'{"create":{}}\n{"n":"%b"}\n' % (b"x" * (2 << 20)))
        await trio.to_thread.run_sync(reading.wait, 20)

        assert (await receiver.request("GET", "/")).status == 200
        go_on.set()
        assert (await client.answer()).status == 200


async def test_more_bytes_than_the_budget_of_all_requests_are_answered_429():
    async with a_receiver() as receiver, await receiver.connect() as first, await receiver.connect() as second:
        await receiver.hold(first)
        await second.send("POST", "/_bulk", length=64 << 20)
        refused = await second.answer()
        receiver.context.gate.set()

        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await first.answer()).status == 200


async def test_a_peer_that_does_not_read_its_answers_is_cut_off(monkeypatch):
    monkeypatch.setattr(http, "ANSWER_SECONDS", 0.2)
    async with a_receiver() as receiver, await receiver.connect() as client:

        async def send_forever():
            while True:
                await client.send("POST", "/_bulk", bulk(2000))

        with pytest.raises(trio.BrokenResourceError):
            await send_forever()


async def test_a_flood_of_strangers_displaces_its_own_kind(monkeypatch):
    monkeypatch.setattr(connections, "MOST_NEWCOMERS", 20)
    async with a_receiver(credentials=("old",)) as receiver, await receiver.connect() as known:
        await known.request("POST", "/_bulk", OK, key=OLD)
        strangers = [await receiver.connect() for _ in range(60)]
        for stranger in strangers[:20]:
            assert await stranger.is_closed()

        assert (await known.request("POST", "/_bulk", OK, key=OLD)).status == 200
        assert (await receiver.request("POST", "/_bulk", OK, key=OLD)).status == 200
        for stranger in strangers:
            await trio.aclose_forcefully(stranger.stream)


async def test_who_is_turned_away_is_counted_logged_and_reported_while_it_lasts(monkeypatch, caplog):
    monkeypatch.setattr(connections, "MOST_NEWCOMERS", 4)
    monkeypatch.setattr(connections, "TELL_SECONDS", 0.01)
    async with a_receiver() as receiver:
        context = receiver.context
        strangers = [await receiver.connect() for _ in range(10)]
        await context.wait_until(lambda: context.peers_turned_away == 6 and context.problem is None)
        for stranger in strangers:
            await trio.aclose_forcefully(stranger.stream)

    said = [problem for problem in context.problems if problem]
    assert all(problem.startswith("connections closed to make room") for problem in said)
    assert all(problem.endswith(", all from 127.0.0.1; see who connects there") for problem in said)
    assert [record.getMessage() for record in caplog.records] == [f"input test: {problem}" for problem in said]


async def test_where_descriptors_are_short_a_connection_takes_the_place_of_a_stranger_and_that_is_told(monkeypatch):
    monkeypatch.setattr(connections, "TELL_SECONDS", 0.01)
    async with a_receiver() as receiver, await receiver.connect() as known:
        context = receiver.context
        stranger = await receiver.connect()
        await known.request("POST", "/_bulk", OK)
        await receiver.request("POST", "/_bulk", OK)  # the stranger is accepted, as it came before
        monkeypatch.setattr(connections, "is_reserved", lambda descriptor: True)
        async with await receiver.connect() as late:
            assert await late.is_closed()
        assert await stranger.is_closed()
        await context.wait_until(lambda: context.peers_turned_away == 2 and context.problem is None)
        monkeypatch.setattr(connections, "is_reserved", lambda descriptor: False)
        assert (await receiver.request("POST", "/_bulk", OK)).status == 200
        assert (await known.request("POST", "/_bulk", OK)).status == 200
        await trio.aclose_forcefully(stranger.stream)

    assert any("Too many open files: the limit is" in problem for problem in context.problems if problem)


async def test_while_all_clients_are_busy_another_one_is_told_to_come_again(monkeypatch):
    monkeypatch.setattr(connections, "MOST_CLIENTS", 1)
    async with a_receiver() as receiver, await receiver.connect() as client, await receiver.connect() as other:
        await receiver.hold(client)
        refused = await other.request("GET", "/")
        receiver.context.gate.set()

        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await client.answer()).status == 200
        assert (await other.request("GET", "/")).status == 200


# -- begin and end -----------------------------------------------------------------------------------------------------


async def test_nothing_is_accepted_before_run_and_nothing_is_lost():
    async with open_asyncio() as aio:
        context = Context(aio=aio)
        async with an_input().open(context) as source:
            port = (await context.listen(FREE)).getsockname()[1]
            async with Client(await trio.open_tcp_stream("127.0.0.1", port)) as client, trio.open_nursery() as nursery:
                await client.send("POST", "/_bulk", OK)
                with trio.move_on_after(0.1):
                    await client.more()
                assert context.count == 0
                nursery.start_soon(source.run)
                with trio.fail_after(30):
                    assert (await client.answer()).status == 200
                nursery.cancel_scope.cancel()


async def test_at_the_end_a_request_under_way_completes_and_connections_are_closed():
    async with a_receiver() as receiver, await receiver.connect() as busy, await receiver.connect() as idle:
        await idle.request("GET", "/")
        await receiver.hold(busy)
        receiver.scope.cancel()
        assert await idle.is_closed()
        receiver.context.gate.set()
        assert (await busy.answer()).status == 200
        assert await busy.is_closed()

        assert receiver.context.count == 1
        assert (await receiver.context.listen(FREE)).fileno() > 0


async def test_at_the_end_a_request_that_cannot_be_stored_is_given_up():
    async with a_receiver() as receiver, await receiver.connect() as client:
        await receiver.hold(client)
        receiver.scope.cancel()
        assert await client.is_closed()

    assert receiver.context.count == 0


async def test_the_next_input_on_the_same_socket_takes_over():
    async with open_asyncio() as aio:
        context = Context(aio=aio)
        for _ in range(3):
            async with running(an_input(), context) as source:
                receiver = Receiver(context, source, (await context.listen(FREE)).getsockname()[1])
                assert (await receiver.request("POST", "/_bulk", OK)).status == 200

    assert context.count == 3


async def test_a_client_that_goes_away_in_the_middle_stores_nothing(caplog):
    async with a_receiver() as receiver:
        async with await receiver.connect() as client:
            await client.send("POST", "/_bulk", bulk(10), length=100_000)

        assert (await receiver.request("POST", "/_bulk", bulk(3))).status == 200
    assert receiver.context.count == 3
    assert caplog.records == []


async def test_what_a_client_sent_that_has_gone_before_it_was_stored_is_not_stored(caplog):
    """It will send that again."""
    async with a_receiver() as receiver:
        async with await receiver.connect() as client:
            await receiver.hold(client)
        await receiver.context.wait_until(lambda: receiver.context.given_up == 1)
        receiver.context.gate.set()

        assert (await receiver.request("POST", "/_bulk", bulk(3))).status == 200
    assert receiver.context.count == 3
    assert caplog.records == []


async def test_a_bug_is_answered_500_and_told_by_its_place_and_quotes_no_event(caplog):
    async def broken(*batches, **options):
        raise ZeroDivisionError(batches[0].body)

    async with a_receiver() as receiver:
        receiver.context.emit = broken
        answer = await receiver.request("POST", "/_bulk", OK)

    assert (answer.status, answer.headers["x-elastic-product"]) == (500, "Elasticsearch")
    (told,) = caplog.records
    assert told.getMessage().startswith(
        "a request could not be answered: ZeroDivisionError at test_input_elasticsearch.py"
    )
    assert not told.exc_info


# -- TLS ---------------------------------------------------------------------------------------------------------------


class Identity:
    def __init__(self):
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1")
        pem = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
        self.certificate = Material("cert.pem", pem)
        self.key = Material("key.pem", issued.private_key_pem.bytes().decode())
        self.credential = Credential.parse({"certificate": pem, "key": self.key.pem})
        self.client = ssl.create_default_context()
        self.authority.configure_trust(self.client)
        self.tls = ServerTls(certificate=self.certificate, key=self.key)


OF_CREDENTIAL = ServerTls(credential="cert")


@pytest.fixture(scope="module")
def identity():
    return Identity()


async def secure(port, context):
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname="127.0.0.1")
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        await trio.aclose_forcefully(stream)
        raise
    return Client(stream)


async def test_with_tls_a_client_ships_and_a_new_certificate_counts_for_new_connections(identity):
    other = Identity()
    async with a_receiver(tls=identity.tls, credentials=("old",)) as receiver:
        async with await secure(receiver.port, identity.client) as client:
            assert len((await client.request("POST", "/_bulk", bulk(9000), key=OLD)).json["items"]) == 9000
            receiver.change({**CREDENTIALS, "cert": other.credential}, tls=OF_CREDENTIAL, credentials=("old",))
            await receiver.source.changed()
            assert await client.is_closed()
        with pytest.raises(trio.BrokenResourceError):
            await secure(receiver.port, identity.client)
        async with await secure(receiver.port, other.client) as client:
            assert (await client.request("POST", "/_bulk", OK, key=OLD)).status == 200
        async with await receiver.connect() as plain:
            await plain.stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
            assert await plain.is_closed()

    assert receiver.context.count == 9001


async def test_nothing_is_said_with_a_withdrawn_certificate_until_it_is_there_again(identity):
    cert = {"cert": identity.credential}
    async with a_receiver(tls=identity.tls) as receiver:
        receiver.change(cert, tls=OF_CREDENTIAL)
        async with await secure(receiver.port, identity.client) as client:
            assert (await client.request("POST", "/_bulk", OK)).status == 200
            receiver.change({}, tls=OF_CREDENTIAL)
            await receiver.source.changed()
            assert await client.is_closed()
        with pytest.raises(trio.BrokenResourceError):
            await secure(receiver.port, identity.client)
        assert receiver.context.problem is not None
        receiver.change(cert, tls=OF_CREDENTIAL)
        async with await secure(receiver.port, identity.client) as client:
            assert (await client.request("POST", "/_bulk", OK)).status == 200

    assert receiver.context.problem is None


async def test_a_request_under_way_with_the_old_certificate_is_answered_and_no_other_is_taken(identity):
    async with (
        a_receiver(tls=identity.tls) as receiver,
        await secure(receiver.port, identity.client) as client,
        trio.open_nursery() as nursery,
    ):
        await receiver.hold(client)
        receiver.change({"cert": Identity().credential}, tls=OF_CREDENTIAL)
        changed = trio.Event()
        nursery.start_soon(_call_then, receiver.source.changed, changed.set)
        await client.send("POST", "/_bulk", OK)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not changed.is_set()
        receiver.context.gate.set()
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await changed.wait()
        assert await client.is_closed()

    assert receiver.context.count == 1


async def test_a_request_that_does_not_end_keeps_the_old_certificate_only_so_long(identity, monkeypatch):
    monkeypatch.setattr(connections, "LEAVING_SECONDS", 0.1)
    async with a_receiver(tls=identity.tls) as receiver, await secure(receiver.port, identity.client) as client:
        await receiver.hold(client)
        receiver.change({"cert": Identity().credential}, tls=OF_CREDENTIAL)
        await receiver.source.changed()
        assert await client.is_closed()

    assert receiver.context.count == 0


async def test_an_open_handshake_with_the_old_certificate_is_given_up(identity):
    async with a_receiver(tls=identity.tls) as receiver, await receiver.connect() as silent:
        async with await secure(receiver.port, identity.client):  # so the silent one, which came before, is accepted
            receiver.change({"cert": Identity().credential}, tls=OF_CREDENTIAL)
            await receiver.source.changed()
        assert await silent.is_closed()


async def test_a_connection_outlives_a_change_of_keys_under_one_certificate(identity):
    async with a_receiver(tls=identity.tls, credentials=("old",)) as receiver:
        client = await secure(receiver.port, identity.client)
        receiver.change(tls=identity.tls, credentials=("new",))
        await receiver.source.changed()
        assert (await client.request("POST", "/_bulk", OK, key=NEW)).status == 200
        await trio.aclose_forcefully(client.stream)


async def test_where_a_new_certificate_cannot_be_used_the_old_one_is_not_shown_any_more(identity):
    async with a_receiver(tls=identity.tls) as receiver:
        receiver.change(tls=ServerTls(credential="old"))
        assert receiver.context.problem == "the credential of tls is not of the shape {certificate, key}"
        with pytest.raises(trio.BrokenResourceError):
            await secure(receiver.port, identity.client)
        receiver.change(tls=identity.tls)
        client = await secure(receiver.port, identity.client)
        assert (await client.request("POST", "/_bulk", OK)).status == 200
        await trio.aclose_forcefully(client.stream)


async def _call_then(function, then):
    await function()
    then()


async def test_when_tls_is_added_old_plain_connections_end(identity):
    """Whatever they show, it is in clear."""
    async with a_receiver(credentials=("old",)) as receiver, await receiver.connect() as client:
        assert (await client.request("POST", "/_bulk", OK, key=OLD)).status == 200
        receiver.change(credentials=("old",), tls=identity.tls)
        await receiver.source.changed()

        assert await client.is_closed()


async def test_when_tls_is_added_an_old_plain_connection_is_refused(identity):
    async with a_receiver() as receiver, await receiver.connect() as client:
        assert (await client.request("POST", "/_bulk", OK)).status == 200
        receiver.change(tls=identity.tls)

        assert (await client.request("POST", "/_bulk", OK)).status == 401


async def test_silent_connections_keep_nobody_with_a_key_from_connecting(identity, monkeypatch):
    """They never begin the TLS handshake."""
    monkeypatch.setattr(connections, "MOST_NEWCOMERS", 8)
    async with a_receiver(tls=identity.tls, credentials=("old",)) as receiver:
        silent = [await receiver.connect() for _ in range(8)]
        for _ in range(8):
            silent.append(await receiver.connect())
            async with await secure(receiver.port, identity.client) as client:
                assert (await client.request("POST", "/_bulk", OK, key=OLD)).status == 200
        for one in silent:
            await trio.aclose_forcefully(one.stream)

    assert receiver.context.count == 8
    assert receiver.context.peers_turned_away > 0


# -- small requests with a head that is known --------------------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch):
    """The requests that aiohttp has read."""
    seen = []
    respond = server.BulkServer._respond

    async def noted(self, request):
        seen.append(request.path)
        return await respond(self, request)

    monkeypatch.setattr(server.BulkServer, "_respond", noted)
    return seen


async def test_a_small_request_with_the_head_of_one_before_is_stored_and_answered_without_aiohttp(judged):
    async with a_receiver() as receiver, await receiver.connect() as client:
        answers = [await client.request("POST", "/_bulk?filter_path=errors", bulk(n, 10 * n)) for n in (1, 2, 3)]

        assert len(judged) == 1
        assert [answer.json for answer in answers] == [{"errors": False}] * 3
        assert {frozenset(answer.headers) for answer in answers} == {frozenset(answers[0].headers)}
        assert numbers(receiver.context) == [10, 20, 21, 30, 31, 32]


async def test_it_is_answered_429_where_there_is_no_room(judged):
    async with a_receiver() as receiver, await receiver.connect() as client:
        await client.request("POST", "/_bulk", bulk(1))
        receiver.context.full = True
        refused = await client.request("POST", "/_bulk", bulk(1, 1))
        receiver.context.full = False
        answer = await client.request("POST", "/_bulk", bulk(1, 2))

        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.json["error"]["type"] == "es_rejected_execution_exception"
        assert answer.status == 200
        assert numbers(receiver.context) == [0, 2]
        assert len(judged) == 1


async def test_one_that_is_not_as_simple_is_judged_like_a_new_one(judged):
    async with a_receiver(max_body_bytes=Size(50)) as receiver, await receiver.connect() as client:
        bodies = [bulk(1), bulk(1)[:-1], bulk(1, 1)]
        answers = [(await client.request("POST", "/_bulk", body)).status for body in bodies]
        too_large = await client.request("POST", "/_bulk", bulk(9))

        assert [*answers, too_large.status] == [200, 400, 200, 413]
        assert len(judged) == 3
        assert numbers(receiver.context) == [0, 1]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_at_the_end_one_that_is_under_way_has_a_moment_to_be_stored(judged, is_stored):
    async with a_receiver() as receiver, await receiver.connect() as client:
        await client.request("POST", "/_bulk", bulk(1))
        await receiver.hold(client, bulk(1, 1))
        receiver.scope.cancel()
        if is_stored:
            receiver.context.gate.set()
            assert (await client.answer()).status == 200
        else:
            await receiver.context.wait_until(lambda: receiver.context.given_up == 1)
            assert await client.is_closed()

    assert numbers(receiver.context) == ([0, 1] if is_stored else [0])
    assert len(judged) == 1
