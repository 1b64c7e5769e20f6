"""`ask` of the `elasticsearch` output: what it makes of the answers of hosts, odd ones too. Real nodes are asked in
tests/backends."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trio

from shipper.plugin import Condition, Credential, OutputContext
from shipper.plugin.asking import Finding, Question
from shipper.sdk import asking
from shipper.sdk.aio import open_asyncio
from shipper_plugins.elasticsearch.client.index_cases import IndexCase, PipelineCase
from shipper_plugins.elasticsearch.output import ElasticsearchOutput

ELASTIC = {"X-Elastic-Product": "Elasticsearch"}
ROOT = (200, ELASTIC, {"version": {"number": "9.1.4"}})
ME = (200, ELASTIC, {"username": "ship"})
NO_SECURITY = (400, ELASTIC, {"error": "no handler found for uri"})
OPEN_ROOT = (200, {}, {"version": {"number": "2.19.4", "distribution": "opensearch"}})
OPEN_ME = (200, {}, {"user_name": "ship"})
WHO, OPEN_WHO = "GET /_security/_authenticate", "GET /_plugins/_security/authinfo"
RARE = Condition(has_fields=["never.there"])
PLACE = Question(("logs-a-b",))
MAY = "POST /_security/user/_has_privileges"


@contextmanager
def serving(answers):
    """A host with these answers, by method and path; 404 to all else."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            asked.append((self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
            status, headers, body = answers.get(f"{self.command} {self.path.partition('?')[0]}", (404, {}, {}))
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_POST = do_HEAD = answer

        def log_message(self, *_):
            pass

    asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


async def findings(answers, question=PLACE, before=(), **options):
    """What is told about one host, and about those before it; and what it was asked."""
    told = []
    with serving(answers) as (host, asked):
        output = ElasticsearchOutput(hosts=(*before, host), **options)
        credentials = {"k": Credential({"api_key": "id:hunter2"})} if "credential" in options else {}
        async with open_asyncio() as aio:
            await output.ask(OutputContext("main", aio, credentials), question, told.append)
    assert all("hunter2" not in repr(finding) for finding in told)
    return told, asked


def verdicts(told):
    return [(finding.asked, finding.verdict) for finding in told]


async def test_a_good_host_is_told_part_by_part():
    has = {"index": {"logs-a-b": {"create_doc": True, "auto_configure": True, "create_index": False}}}
    told, asked = await findings({"GET /": ROOT, WHO: ME, MAY: (200, ELASTIC, has)}, credential="k")
    where = told[0].of

    assert told == [
        Finding("address", where, "good"),
        Finding("login", where, "good", "user ship"),
        Finding("destination", where, "good", "Elasticsearch 9.1.4"),
        Finding("privilege", "logs-a-b", "good", "create_doc"),
    ]
    assert [method for method, _, _ in asked] == ["GET", "GET", "POST"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_credential_that_is_not_known_ends_the_questions(status):
    told, asked = await findings({"GET /": ROOT, WHO: (status, ELASTIC, {"error": "x"})}, credential="k")

    assert verdicts(told) == [("address", "good"), ("login", "bad")]
    assert len(asked) == 2


async def test_a_host_without_security_needs_no_login():
    told, _ = await findings({"GET /": ROOT, WHO: NO_SECURITY, MAY: NO_SECURITY})
    with_credential, _ = await findings({"GET /": ROOT, WHO: NO_SECURITY, MAY: NO_SECURITY}, credential="k")

    assert verdicts(told)[1:] == [("login", "good"), ("destination", "good")]
    assert with_credential[1].verdict == "unknown"
    assert "the credential is of no use" in with_credential[1].text


async def test_the_privileges_of_keyed_state_are_asked_for_all_its_indices():
    _, asked = await findings({"GET /": ROOT, WHO: ME}, Question((), has_state=True), deletions="delete")
    body = json.loads(asked[2][2])

    assert body["index"][0]["names"] == ["state-*"]
    assert body["index"][0]["privileges"] == ["index", "read", "delete", "auto_configure", "create_index"]


async def test_a_missing_pipeline_is_bad():
    answers = {"GET /": ROOT, WHO: ME, "GET /_ingest/pipeline/geo": (404, ELASTIC, {})}
    told, _ = await findings(answers, Question(), pipeline="geo")

    assert told[-1].text == "there is no pipeline geo"
    assert told[-1].verdict == "bad"


async def test_every_pipeline_by_condition_is_looked_up_once():
    cases = tuple(PipelineCase(pipeline=name, when=RARE) for name in ("geo", "web", "geo", "dark"))
    answers = {
        "GET /": ROOT,
        WHO: ME,
        "GET /_ingest/pipeline/geo": (200, ELASTIC, {"geo": {}}),
        "GET /_ingest/pipeline/dark": (403, ELASTIC, {"error": {"type": "security_exception", "reason": "no"}}),
    }
    told, asked = await findings(answers, Question(), pipeline="geo", pipelines=cases)

    assert [path for _, path, _ in asked[2:]] == [f"/_ingest/pipeline/{name}" for name in ("geo", "web", "dark")]
    assert [(finding.verdict, finding.text) for finding in told[3:]] == [
        ("good", "pipeline geo"),
        ("bad", "there is no pipeline web"),
        ("unknown", "pipeline dark: the credential may not look it up (read_pipeline)"),
    ]


async def test_indices_by_condition_are_places_beside_those_of_the_events():
    indices = tuple(IndexCase(index=name, when=RARE) for name in ("audit", "logs-a-b", "audit"))
    _, asked = await findings({"GET /": ROOT, WHO: ME}, indices=indices)
    _, keyed = await findings({"GET /": ROOT, WHO: ME}, Question((), has_state=True), indices=indices)

    names = [[one["names"][0] for one in json.loads(body[-1][2])["index"]] for body in (asked, keyed)]
    assert names == [["logs-a-b", "audit"], ["state-*"]]


async def test_privileges_that_cannot_be_read_are_unknown():
    told, _ = await findings({"GET /": ROOT, WHO: ME, MAY: (200, ELASTIC, {"index": {"logs-a-b": 7}})})

    assert verdicts(told)[-1] == ("privilege", "unknown")


@pytest.mark.parametrize(
    ("item", "verdict"),
    [
        ({"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "x"}}, "good"),
        ({"status": 403, "error": {"type": "security_exception", "reason": "x"}}, "bad"),
        ({"status": 503, "error": {"type": "unavailable_shards_exception", "reason": "x"}}, "unknown"),
        ({"status": 201}, "unknown"),
    ],
)
async def test_opensearch_is_asked_by_a_document_that_it_must_refuse(item, verdict):
    bulk = (200, {}, {"errors": True, "items": [{"create": item}]})
    answers = {"GET /": OPEN_ROOT, OPEN_WHO: OPEN_ME, "POST /_bulk": bulk}
    told, asked = await findings(answers, Question(("logs-a-b",), may_try=True))
    silent, unasked = await findings(answers)

    assert (told[-1].of, told[-1].verdict) == ("logs-a-b", verdict)
    assert asked[-1][2].splitlines()[0] == b'{"create":{"_index":"logs-a-b"}}'
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(asked[-1][2].splitlines()[1])
    assert (silent[-1].verdict, unasked[-1][0]) == ("unknown", "GET")


@pytest.mark.parametrize(
    ("root", "who"),
    [
        ((200, {}, {"version": 7}), (404, {}, {})),
        ((503, {}, b""), (503, {}, b"")),
        ((302, {"Location": "/x"}, b""), (302, {"Location": "/x"}, b"")),
        ((200, {"Content-Encoding": "gzip"}, b"no gzip"), (200, {"Content-Encoding": "gzip"}, b"no gzip")),
    ],
)
async def test_what_is_no_elasticsearch_gives_findings_and_no_traceback(root, who):
    told, _ = await findings({"GET /": root, OPEN_WHO: who})

    assert told[0].verdict == "good"
    assert any(finding.verdict in ("bad", "unknown") for finding in told[1:])


@pytest.mark.parametrize(
    "answers",
    [
        {"GET /": (200, {}, b"<html>welcome")},
        {"GET /": (200, {}, b"<html>"), OPEN_WHO: (200, {}, b"<html>")},
        {"GET /": (200, {}, {"version": "1.2"}), OPEN_WHO: (200, {}, {})},
    ],
)
async def test_another_web_server_is_not_taken_for_a_node_and_asked_no_more(answers):
    told, asked = await findings(answers, credential="k", pipeline="geo")

    assert verdicts(told) == [("address", "good"), ("destination", "bad")]
    assert "neither Elasticsearch nor OpenSearch" in told[1].text
    assert [path for _, path, _ in asked] == ["/", "/_plugins/_security/authinfo"]


async def test_opensearch_that_does_not_show_its_version_to_this_user_is_a_node():
    hidden = (403, {}, {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403})
    told, _ = await findings({"GET /": hidden, OPEN_WHO: OPEN_ME})
    without_plugin, _ = await findings({"GET /": hidden})

    assert verdicts(told)[1:3] == [("login", "good"), ("destination", "unknown")]
    assert ("destination", "bad") not in verdicts(without_plugin)


async def test_names_of_a_backend_that_are_no_names_are_not_repeated():
    told, _ = await findings({"GET /": ROOT, WHO: (200, ELASTIC, {"username": "\x1b[31m<evil>"})})

    assert told[1].text == ""


async def test_every_host_is_asked_and_the_first_good_one_for_privileges():
    answers = {"GET /": ROOT, WHO: ME, MAY: (200, ELASTIC, {"index": {}})}
    told, _ = await findings(answers, Question(("x",)), ["http://127.0.0.1:1"])

    assert told[0] == Finding("address", "127.0.0.1:1", "bad", "connection refused", "unreachable")
    assert verdicts(told)[1:] == [
        ("address", "good"),
        ("login", "good"),
        ("destination", "good"),
        ("privilege", "bad"),
    ]


async def test_a_host_that_says_nothing_keeps_no_other_from_being_asked(monkeypatch):
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.2)
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with silent:
        before = f"http://127.0.0.1:{silent.socket.getsockname()[1]}"
        told, _ = await findings({"GET /": ROOT, WHO: ME}, Question(), [before])

    assert verdicts(told)[:2] == [("address", "good"), ("destination", "bad")]
    assert told[1].text == "no answer within 0.2s"
    assert ("login", "good") in verdicts(told)


async def read_to_the_end(stream):
    while await stream.receive_some():
        pass


async def test_asking_that_is_cancelled_leaves_no_connection():
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    output = ElasticsearchOutput(hosts=(f"http://127.0.0.1:{silent.socket.getsockname()[1]}",))
    with trio.fail_after(60):
        async with open_asyncio() as aio, trio.open_nursery() as nursery:
            nursery.start_soon(output.ask, OutputContext("main", aio, {}), Question(), print)
            peer = await silent.accept()
            await peer.receive_some()
            nursery.cancel_scope.cancel()
        with pytest.raises(trio.BrokenResourceError):
            await read_to_the_end(peer)
        await trio.aclose_forcefully(peer)
    await silent.aclose()
