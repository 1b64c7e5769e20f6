"""A package of another author is installed beside shipper: its input, processor, output and kind of secret work."""

from __future__ import annotations

import base64
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import trio

from shipper.plugin import Batch, Credential, CredentialId, Endpoint, OutputContext
from shipper.sdk.aio import open_asyncio
from shipper.testing import RecordingInputContext, check_input, check_output, check_processor
from shipper_demo.ports import free_port

SOURCE = Path(__file__).parent / "stranger"
PATIENCE = 60.0
LINES = b"".join(b"line %d\n" % number for number in range(10))
BATCH = replace(Batch.lines(LINES, offset=0, shared={}), origin=b"0123456789abcdef", seq=7)
POLICY = """
version: 1
inputs:
  devices: {{type: tcp_lines, address: "127.0.0.1:{port}", processors: [{{type: sample, every: 2}}]}}
outputs:
  main: {{type: http_json, url: "{url}/events?of=test", credential: {{encoded: key.b64}}}}
"""


# -- installed ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that finds the package as pip installs it, without the second that pip takes."""
    site = tmp_path_factory.mktemp("stranger")
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    shutil.copytree(SOURCE / name, site / name)
    about = site / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")
    points = [[f"[{group}]", *map(" = ".join, of.items())] for group, of in project["entry-points"].items()]
    (about / "entry_points.txt").write_text("\n".join(chain.from_iterable(points)))
    return {**os.environ, "PYTHONPATH": str(site)}


# -- the server that it sends to ---------------------------------------------------------------------------------------


class Receiver(ThreadingHTTPServer):
    """Keeps the events of every request that shows the secret."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events: list[dict[str, Any]] = []
        self.refused = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection is aborted when an output is closed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_known = self.headers["Authorization"] == "Bearer s3cret" and self.path == "/events?of=test"
        if is_known:
            self.server.events += [json.loads(line) for line in body.splitlines()]
        else:
            self.server.refused += 1
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def port(tmp_path: Path, receiver: Receiver) -> int:
    """Where the input of the policy listens."""
    port = free_port()
    (tmp_path / "policy.yaml").write_text(POLICY.format(port=port, url=receiver.url))
    (tmp_path / "key.b64").write_bytes(base64.b64encode(b"bearer_token: s3cret\n"))
    (tmp_path / "key.b64").chmod(0o600)
    return port


async def shipper(place: Path, env: dict[str, str], *arguments: str) -> str:
    with trio.fail_after(PATIENCE):
        ended = await trio.run_process(
            [sys.executable, "-m", "shipper", *arguments], cwd=place, env=env, capture_stdout=True, capture_stderr=True
        )
    return ended.stdout.decode()


@asynccontextmanager
async def supervised(place: Path, env: dict[str, str]) -> AsyncIterator[None]:
    """An agent runs the policy within the block, and has stopped in order behind it."""
    command = [sys.executable, "-m", "shipper", "supervise", "policy.yaml", "--state", "state"]
    agent = await trio.lowlevel.open_process(command, cwd=place, env=env, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        agent.terminate()
        with trio.fail_after(PATIENCE):
            await agent.wait()


async def taken(port: int, text: bytes) -> int:
    """What the input answers to some lines, once it listens."""
    with trio.fail_after(PATIENCE):
        async with await connected(port) as stream:
            await stream.send_all(text)
            return int(await stream.receive_some())


async def connected(port: int) -> trio.SocketStream:
    while True:
        try:
            return await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.01)


async def test_its_plugins_are_in_the_schema_and_a_policy_that_uses_them_is_valid(
    tmp_path: Path, installed: dict[str, str], port: int
) -> None:
    schema = await shipper(tmp_path, installed, "schema")

    assert all(f'"{type}"' in schema for type in ("tcp_lines", "sample", "http_json", "encoded"))
    await shipper(tmp_path, installed, "validate", "--secrets", "policy.yaml")


async def test_its_events_arrive_and_its_state_is_kept_over_a_restart(
    tmp_path: Path, installed: dict[str, str], receiver: Receiver, port: int
) -> None:
    for run in (1, 2):
        async with supervised(tmp_path, installed):
            assert await taken(port, LINES) == run * len(LINES)

    events = [one["event"] for one in receiver.events]
    assert [event["message"] for event in events] == [f"line {number}" for number in range(0, 10, 2)] * 2
    assert [event["log"]["offset"] for event in events] == [14 * number for number in range(10)]
    assert len({one["id"] for one in receiver.events}) == 10
    assert not receiver.refused


# -- the contract ------------------------------------------------------------------------------------------------------


async def test_its_plugins_hold_the_contract(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    monkeypatch.syspath_prepend(SOURCE)
    http_json, sample, tcp_lines = (
        importlib.import_module(f"shipper_stranger.{name}") for name in ("http_json", "sample", "tcp_lines")
    )

    async def feed(context: RecordingInputContext) -> None:
        place = (await context.listen(Endpoint("tcp", "127.0.0.1"))).getsockname()
        async with await trio.open_tcp_stream(*place) as stream:
            await stream.send_all(LINES)
            await context.wait_for(10)

    check_processor(sample.Sample(every=2), BATCH)
    await check_input(tcp_lines.TcpLines(address="127.0.0.1:0"), 10, feed=feed, resumes=False)
    async with open_asyncio() as aio:
        secret = {"key": Credential.parse({"bearer_token": "s3cret"})}
        output = http_json.HttpJson(url=f"{receiver.url}/events?of=test", credential=CredentialId("key"))
        (answers,) = await check_output(output, OutputContext("main", aio, secret), [BATCH])
    assert not answers.others
