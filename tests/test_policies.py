"""The example policies: each is read, planned and run, with its variables set to servers and files of the test."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from shipper.commands.validate import references
from shipper.pipeline import plan
from shipper.plugin import Credential
from shipper.policy import document
from shipper.policy.registry import Registry
from shipper.sdk.aio import Asyncio, open_asyncio
from shipper.sdk.tls import server_context
from shipper.supervise.sources import read_tree
from shipper.testing import BulkDestination, open_destination
from shipper.values import Revision
from shipper_demo.ports import free_port
from tests.plugins.kafka.broker import open_cluster, values

POLICIES = Path(__file__).parents[1] / "policies"
KEY = Credential.parse({"api_key": "example:s3cret"})
PATIENCE = 60.0
ACCESS = '203.0.113.9 - - [02/Jan/2026:13:55:36 +0000] "GET /cart HTTP/1.1" 200 512 "-" "curl/8.14.1"\n'


@pytest.fixture
async def aio():
    async with open_asyncio() as running:
        yield running


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("example:s3cret\n")
    return file


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def served_by(authority: trustme.CA, file: Path) -> ssl.SSLContext:
    """What a server of this host needs for TLS; the certificate of the authority is in the file then."""
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(file))
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems).decode()
    return server_context(chain, certificate.private_key_pem.bytes().decode())


async def shipped(tmp_path: Path, name: str, **variables: object) -> None:
    """Run `shipper supervise --once` on an example until everything was delivered."""
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "-m", "shipper", "supervise", str(POLICIES / name), "--once", "--once-timeout", "10s"]
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(
            [*command, "--state", str(tmp_path / "state")], env=environment, capture_stdout=True, capture_stderr=True
        )
    assert ended.returncode == 0


def messages(destination: BulkDestination) -> list[str]:
    return [event["message"] for event in destination.events]


# -- all of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(POLICIES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_valid_and_can_be_planned(path: Path, tmp_path: Path, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    variables = dict.fromkeys(("OPENSEARCH_CA", "ES_CA", "KAFKA_CA"), str(tmp_path / "ca.pem"))
    tree = references(read_tree([path], variables), Registry.installed(), [])
    registry = Registry.installed()
    text = document.write(tree)
    made = plan.make(Revision(0, 1), text, registry)

    assert made.outputs


def test_every_example_is_run_by_a_test_of_this_file() -> None:
    source = Path(__file__).read_text()

    assert not [path.name for path in POLICIES.glob("*.yaml") if f'"{path.name}"' not in source]


def test_the_policy_of_the_demo_is_the_one_that_the_demo_uses() -> None:
    packaged = resources.files("shipper_demo") / "policy.yaml"

    assert (POLICIES / "demo.yaml").read_text() == packaged.read_text()


# -- one by one --------------------------------------------------------------------------------------------------------


async def test_nginx_lines_reach_elasticsearch_with_their_fields(
    tmp_path: Path, aio: Asyncio, authority: trustme.CA, key_file: Path
) -> None:
    log = tmp_path / "access.log"
    log.write_text(ACCESS * 3)
    async with open_destination(aio, keys={KEY}, tls=served_by(authority, tmp_path / "ca.pem")) as destination:
        await shipped(
            tmp_path,
            "nginx-elasticsearch.yaml",
            NGINX_LOG=log,
            ES_URL=destination.url,
            ES_KEY=key_file,
            ES_CA=tmp_path / "ca.pem",
            SERVICE="shop",
        )
        events = destination.events

    assert len(events) == 3
    assert events[0]["http"]["response"]["status_code"] == 200
    assert events[0]["service"]["name"] == "shop"
    assert list(destination.documents) == ["logs-nginx.access-default"]


async def test_the_policy_of_the_demo_runs_without_the_demo(tmp_path: Path, aio: Asyncio, key_file: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text(ACCESS * 2)
    async with open_destination(aio, keys={KEY}) as destination:
        await shipped(tmp_path, "demo.yaml", DEMO_LOG=log, DEMO_URL=destination.url, DEMO_KEY=key_file)

        assert messages(destination) == [ACCESS.rstrip()] * 2


async def test_opensearch_is_reached_over_tls_with_a_user_and_a_password(
    tmp_path: Path, aio: Asyncio, authority: trustme.CA
) -> None:
    (tmp_path / "user").write_text("username: shipper\npassword: correct horse\n")
    (tmp_path / "syslog").write_text("one\ntwo\n")
    user = Credential.parse({"username": "shipper", "password": "correct horse"})
    async with open_destination(aio, keys={user}, tls=served_by(authority, tmp_path / "ca.pem")) as destination:
        await shipped(
            tmp_path,
            "opensearch.yaml",
            SYSLOG=tmp_path / "syslog",
            OPENSEARCH_URL=destination.url,
            OPENSEARCH_USER=tmp_path / "user",
            OPENSEARCH_CA=tmp_path / "ca.pem",
        )

        assert messages(destination) == ["one", "two"]
        assert destination.refused == 0


async def test_kafka_is_reached_over_tls_with_a_user_and_a_password(
    tmp_path: Path, aio: Asyncio, authority: trustme.CA
) -> None:
    (tmp_path / "user").write_text("username: shipper\npassword: correct horse\n")
    (tmp_path / "app.log").write_text("one\ntwo\n")
    async with open_cluster(aio, "shop", served_by(authority, tmp_path / "ca.pem")) as (port, appended):
        await shipped(
            tmp_path,
            "kafka.yaml",
            APP_LOG=tmp_path / "app.log",
            KAFKA=f"127.0.0.1:{port}",
            KAFKA_TOPIC="shop",
            KAFKA_CA=tmp_path / "ca.pem",
            KAFKA_MECHANISM="PLAIN",
            KAFKA_USER=tmp_path / "user",
        )

    assert [json.loads(value)["message"] for text in appended for value in values(text)] == ["one", "two"]


async def test_a_stack_trace_is_one_event_and_debug_stays_behind(tmp_path: Path, aio: Asyncio, key_file: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text(
        "2026-01-02 13:55:36 ERROR order failed\njava.lang.IllegalStateException: no stock\n\tat shop.Order.place\n"
        "2026-01-02 13:55:37 DEBUG cache miss\n2026-01-02 13:55:38 INFO next\n"
    )
    async with open_destination(aio, keys={KEY}) as destination:
        await shipped(tmp_path, "java-multiline.yaml", JAVA_LOG=log, ES_URL=destination.url, ES_KEY=key_file)
        error, following = messages(destination)

    assert error.splitlines()[1:] == ["java.lang.IllegalStateException: no stock", "\tat shop.Order.place"]
    assert following == "2026-01-02 13:55:38 INFO next"


async def test_documents_are_copied_key_by_key_and_removed_ones_are_removed_there(tmp_path: Path) -> None:
    inventory, copy = tmp_path / "inventory", tmp_path / "copy"
    inventory.mkdir()
    (inventory / "web-1.json").write_text('{"n": 1}')
    (inventory / "web-2.yaml").write_text("n: 2\n")
    await shipped(tmp_path, "inventory.yaml", INVENTORY=inventory, COPY=copy)
    assert documents(copy) == {"web-1.json": '{"n":1}', "web-2.json": '{"n":2}'}

    (inventory / "web-1.json").unlink()
    (inventory / "web-2.yaml").write_text("n: 3\n")
    await shipped(tmp_path, "inventory.yaml", INVENTORY=inventory, COPY=copy)
    assert documents(copy) == {"web-2.json": '{"n":3}'}


def documents(copy: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (copy / "own" / "inventory").iterdir()}


async def test_one_log_goes_to_two_places(tmp_path: Path, aio: Asyncio, key_file: Path) -> None:
    (tmp_path / "app.log").write_text("one\ntwo\n")
    archive = tmp_path / "archive.ndjson"
    async with open_destination(aio, keys={KEY}) as destination:
        await shipped(
            tmp_path,
            "two-outputs.yaml",
            APP_LOG=tmp_path / "app.log",
            ES_URL=destination.url,
            ES_KEY=key_file,
            ARCHIVE=archive,
        )

        assert messages(destination) == ["one", "two"]
        assert [json.loads(line)["message"] for line in archive.read_text().splitlines()] == ["one", "two"]


async def test_what_a_client_sends_is_in_a_file_when_the_agent_has_stopped(tmp_path: Path, key_file: Path) -> None:
    port, archive = free_port(), tmp_path / "events.ndjson"
    environment = {"LISTEN": f"127.0.0.1:{port}", "BEATS_KEY": str(key_file), "ARCHIVE": str(archive)}
    command = [sys.executable, "-m", "shipper", "supervise", str(POLICIES / "beats-to-file.yaml"), "--json"]
    agent = await trio.lowlevel.open_process(
        [*command, "--state", str(tmp_path / "state")], env=os.environ | environment, stdout=subprocess.PIPE
    )
    try:
        with trio.fail_after(PATIENCE):
            await said(agent, "active")
            refused = await trio.to_thread.run_sync(bulk, port, "example:wrong")
            taken = await trio.to_thread.run_sync(bulk, port, "example:s3cret")
    finally:
        agent.terminate()
        with trio.fail_after(PATIENCE):
            await agent.wait()
        assert agent.stdout is not None
        await agent.stdout.aclose()

    (event,) = [json.loads(line) for line in archive.read_text().splitlines()]
    assert (refused, taken) == (401, 200)
    assert (event["_id"], event["message"]) == ("beat-1", "hello")


async def test_syslog_messages_are_in_a_file_with_their_fields(tmp_path: Path) -> None:
    port, archive = free_port(), tmp_path / "syslog.ndjson"
    environment = {"LISTEN": f"127.0.0.1:{port}", "ARCHIVE": str(archive)}
    command = [sys.executable, "-m", "shipper", "supervise", str(POLICIES / "syslog-to-file.yaml"), "--json"]
    agent = await trio.lowlevel.open_process(
        [*command, "--state", str(tmp_path / "state")], env=os.environ | environment, stdout=subprocess.PIPE
    )
    try:
        with trio.fail_after(PATIENCE):
            await said(agent, "active")
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"<34>1 2026-05-17T12:34:56Z web-1 su 23 ID47 - over TCP\n")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"<34>May 17 12:34:56 web-1 su[23]: over UDP", ("127.0.0.1", port))
            while not archive.exists() or archive.read_text().count("\n") < 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
    finally:
        agent.terminate()
        with trio.fail_after(PATIENCE):
            await agent.wait()
        assert agent.stdout is not None
        await agent.stdout.aclose()

    events = [json.loads(line) for line in archive.read_text().splitlines()]
    assert sorted(event["message"] for event in events) == ["over TCP", "over UDP"]
    assert {event["process"]["name"] for event in events} == {"su"}
    assert {event["host"]["name"] for event in events} == {"web-1"}


async def said(agent: trio.Process, stage: str) -> None:
    """Wait until the agent tells of an ack of this stage."""
    text = b""
    assert agent.stdout is not None
    while f'"shipper.stage":"{stage}"'.encode() not in text:
        chunk = await agent.stdout.receive_some(65536)
        assert chunk, text.decode()
        text += bytes(chunk)


def bulk(port: int, key: str) -> int:
    """The status of a bulk request."""
    body = b'{"create":{"_index":"logs-app-default","_id":"beat-1"}}\n{"message":"hello"}\n'
    headers = {
        "Authorization": Credential.parse({"api_key": key}).authorization(),
        "Content-Type": "application/x-ndjson",
    }
    request: Any = urllib.request.Request(f"http://127.0.0.1:{port}/_bulk", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
