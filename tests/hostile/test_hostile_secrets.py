"""Secrets and events that cannot be mistaken, through a whole life: where they must be, and nowhere else.

Each secret is a canary, and each event. What the processes say (standard output and error, HTTP), what /proc tells of
them, and what they leave on the disk is searched for all of them, in every form in which they might stand.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from shipper.plugin import Credential
from shipper.sdk.aio import open_asyncio
from shipper.testing import BulkDestination, Document, Reply, open_destination
from shipper.testing.destination import Request
from shipper_demo.ports import free_port
from tests import canary
from tests.canary import EVENT
from tests.story.driver import Sidecar, launched
from tests.story.http import post_bulk
from tests.supervise.driver import Site

SHAPES: dict[str, dict[str, str]] = {
    "a-key": {"api_key": "canaryid1:canary-secret-of-a-key"},
    "a-name": {"username": "anna", "password": "canary-password-of-a-name"},
    "a-bearer": {"bearer_token": "canary-bearer-token-3"},
    "a-token": {"token": "canary-bare-token-4"},
    "its-cert": {},
    "new-key": {"api_key": "canaryid5:canary-secret-of-new-key"},
}
STATE_KEY = b"canary-state-key-of-32-bytes-6-7"


@pytest.fixture(scope="module", autouse=True)
def certificate() -> None:
    made = trustme.CA().issue_cert("localhost")
    chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
    SHAPES["its-cert"] = {"certificate": chain.decode(), "key": made.private_key_pem.bytes().decode()}


def secrets() -> list[str]:
    return [
        field for shape in SHAPES.values() for key, field in shape.items() if key not in ("certificate", "username")
    ]


def canaries(*more: str) -> set[bytes]:
    """Every secret and every header made of one, in the forms in which they might stand."""
    with_header = [shape for shape in SHAPES.values() if shape.keys() & {"api_key", "username", "bearer_token"}]
    headers = [Credential.parse(shape) for shape in with_header]
    keys = (STATE_KEY, base64.b64encode(STATE_KEY), STATE_KEY.hex().encode())
    said = {header.authorization().encode() for header in headers}
    return {*canary.of_credentials(SHAPES), *said, *keys, *(text.encode() for text in more)}


def found(content: bytes, *more: str) -> list[bytes]:
    return canary.found(content, canaries(*more))


def left_in(directory: Path, *more: str) -> dict[str, list[bytes]]:
    return canary.left_in(directory, canaries(*more))


async def http(address: str, path: str) -> bytes:
    def get() -> bytes:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            return bytes(answer.read())

    return await trio.to_thread.run_sync(get)


def quoting(request: Request, documents: list[Document]) -> Reply | None:
    """Refuses every third event, in words that quote all of it."""
    refused = {
        at: (400, f"mapper_parsing_exception {documents[at].source.decode()}") for at in range(0, len(documents), 3)
    }
    return Reply(items=refused)


# -- the sidecar -------------------------------------------------------------------------------------------------------


def text(destination: BulkDestination, port: int, log: Path, credential: str) -> str:
    to = f"hosts: ['{destination.url}'], backoff: {{first: 50ms, longest: 200ms}}"
    return f"""\
version: 1
inputs:
  access: {{type: file, paths: ["{log}"]}}
  apps: {{type: elasticsearch, address: "127.0.0.1:{port}", credentials: [a-key, a-name]}}
outputs:
  main: {{type: elasticsearch, {to}, credential: {credential}}}
  second: {{type: elasticsearch, {to}, credential: a-bearer}}
log_level: debug
"""


def wrong(good: str) -> list[dict[str, Any]]:
    """Messages with a secret where none belongs."""
    messages: list[dict[str, Any]] = []
    for number, secret in enumerate(secrets(), start=100):
        quoted = json.dumps(secret)
        texts = [
            good.replace("credential: a-key", f"credential: {quoted}"),
            good.replace("credential: a-key", f"credential: {{api_key: {quoted}}}"),
            good.replace("type: file", f"type: file, api_key: {quoted}"),
            good.replace("log_level: debug", f"log_level: {quoted}"),
            good + f"{quoted}: 1\n",
            good.replace("http://127", f"http://user:{secret.splitlines()[0]}@127"),
            good.replace("version: 1", f"version: {quoted}"),
            f"{quoted}: [&x {quoted}, *x",
        ]
        for changed in texts:
            messages.append({"type": "policy", "revision": number, "policy": changed, "credentials": SHAPES})
        shape = {"api_key": secret, "token": secret}
        messages.append({"type": "policy", "revision": number, "policy": good, "credentials": {"a-key": shape}})
        messages.append({"type": "policy", "revision": number, "policy": good, "credentials": secret})
        messages.append({"type": "policy", "revision": secret, "policy": good, "credentials": SHAPES})
        messages.append({"type": "credentials", "credentials": {"a-key": {"api_key": "other:" + secret}}})
        messages.append({"type": "credentials", "credentials": secret})
        messages.append({"type": "action", "id": "x", "name": "tap", "params": {"point": secret, "limit": secret}})
        messages.append({"type": "hello", "protocol": 1, "state_keys": [{"id": "x", "key": secret}]})
        messages.append({"type": secret})
    return messages


async def converse(sidecar: Sidecar, directory: Path, destination: BulkDestination, port: int) -> None:
    """Ships, is refused, rotates, is told wrong things; ends with events that wait and dead letters."""
    log = directory / "access.log"
    key = base64.b64encode(STATE_KEY).decode()
    ready = await sidecar.hello(state_keys=[{"id": "k1", "key": key}])
    await sidecar.policy(1, text(destination, port, log, "a-key"), SHAPES)
    await sidecar.ack(1, "active")
    destination.script = quoting
    with log.open("a") as file:
        file.write("".join(f"{EVENT} {n}\n" for n in range(90)))
    for name in ("a-key", "a-name"):
        header = Credential.parse(SHAPES[name]).authorization()
        assert await post_bulk(f"http://127.0.0.1:{port}", [{"message": f"{EVENT} {name}"}] * 3, header) == [201] * 3
    assert await post_bulk(f"http://127.0.0.1:{port}", [{"message": EVENT}], "ApiKey canary-of-a-stranger") == [401]
    await sidecar.state(lambda o: o["queue"]["events"] == 0 and o["dead_letters"]["events"] > 40)
    for message in wrong(text(destination, port, log, "a-key")):
        await sidecar.send(message)
    destination.script = lambda request, documents: Reply(status=500, body=documents[0].source)
    assert destination.keys is not None
    destination.keys.clear()
    with log.open("a") as file:
        file.write("".join(f"{EVENT} waits {n}\n" for n in range(90)))
    await sidecar.state(lambda o: o["queue"]["events"] >= 90 and "401" in json.dumps(o["units"]))
    await sidecar.policy(2, text(destination, port, log, "new-key"), SHAPES)
    await sidecar.ack(2, "active")
    for name, params in (
        ("diagnostics", {}),
        ("dead_letters", {"list": True}),
        ("rebind", {"from": "a-key", "to": "x"}),
    ):
        await sidecar.action(name, **params)
    views = [await http(ready["http"], path) for path in ("/status", "/metrics", "/readyz?", "/livez")]
    assert found(b"".join(views), EVENT) == []
    assert found(canary.shown_by(sidecar.process.pid)) == []


async def test_no_secret_and_no_event_is_said_or_left_by_a_sidecar_through_its_life(tmp_path: Path) -> None:
    """It is killed by an abort in the end, as a crash is, and starts again without its credentials."""
    keys = {Credential.parse(SHAPES[name]) for name in ("a-key", "a-bearer", "new-key")}
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {"TMPDIR": str(temporary), "SQLITE_TMPDIR": str(temporary)}
    state = tmp_path / "state"
    (tmp_path / "access.log").touch()
    async with open_asyncio() as aio, open_destination(aio, keys=keys) as destination:
        async with launched(state, "--http", "127.0.0.1:0", env=environment) as sidecar:
            await converse(sidecar, tmp_path, destination, free_port())
            assert left_in(state, EVENT) == {}
            os.kill(sidecar.process.pid, signal.SIGABRT)
            await sidecar.process.wait()
            while not sidecar.closed:  # noqa: ASYNC110 - a pipe tells nobody
                await trio.sleep(0.01)
        async with launched(state, env=environment) as again:
            key = base64.b64encode(STATE_KEY).decode()
            ready = await again.hello(state_keys=[{"id": "k1", "key": key}])
            await again.send({"type": "credentials", "credentials": {"a-key": SHAPES["new-key"]}})
            await again.wait(lambda m: m["type"] == "error")
            await again.stop(within=0)

    said = b"".join(one.raw + one.log for one in (sidecar, again))
    nacks = [message for message in sidecar.said if message["type"] == "nack"]
    assert len(nacks) > 50
    assert {"a-key", "a-bearer"} <= set(ready["credentials_wanted"])
    assert found(said, EVENT, "canary-of-a-stranger") == []
    assert left_in(state, EVENT) == {}
    assert left_in(temporary) == {}
    assert list(tmp_path.glob("core*")) == []  # noqa: ASYNC240 - a test


async def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """An export of dead letters is in the clear, and on purpose: the search that finds nothing elsewhere sees it."""
    (tmp_path / "x").write_bytes(b"... " + SHAPES["a-name"]["password"].encode() + b" ... " + EVENT.encode())

    seen = {SHAPES["a-name"]["password"].encode(), EVENT.encode()}
    assert {path: {*what} for path, what in left_in(tmp_path, EVENT).items()} == {str(tmp_path / "x"): seen}


# -- the supervisor ----------------------------------------------------------------------------------------------------


def sidecar_of(supervisor: int) -> int:
    tasks = Path(f"/proc/{supervisor}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    (sidecar,) = [child for child in children if b"\0run\0" in command_of(child)]
    return sidecar


def command_of(process: int) -> bytes:
    """Of a child that is gone: nothing, as an `on_release` is at any time."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


async def test_no_secret_is_said_or_left_by_a_supervisor_and_its_sidecar(tmp_path: Path) -> None:
    site = Site(tmp_path, fake_sidecar=False)
    site.secret.write_text(SHAPES["a-key"]["api_key"] + "\n")
    site.environment |= {"CANARY_KEY": SHAPES["new-key"]["api_key"], "CANARY_TOKEN": SHAPES["a-bearer"]["bearer_token"]}
    site.on_release(f"cat /proc/self/environ >> {tmp_path}/told; echo $SHIPPER_CREDENTIAL_ID >> {tmp_path}/revoked")
    keys = {Credential.parse(SHAPES[name]) for name in ("a-key", "a-bearer", "new-key")}

    def policy(url: str, credential: str) -> str:
        return (
            f"version: 1\ninputs:\n  made: {{type: file, paths: ['{tmp_path}/app.log']}}\noutputs:\n"
            f"  main: {{type: elasticsearch, hosts: ['{url}'], credential: {credential}}}\n"
            f"  other: {{type: elasticsearch, hosts: ['{url}'], credential: {{env: CANARY_TOKEN, as: bearer_token}}}}\n"
        )

    (tmp_path / "app.log").write_text("".join(f"{EVENT} {n}\n" for n in range(50)))
    async with open_asyncio() as aio, open_destination(aio, keys=keys) as destination:
        site.policy.write_text(policy(destination.url, "{env: CANARY_KEY}"))
        async with site.supervisor() as process:
            await site.until("ack", stage="drained")
            literals = (json.dumps(SHAPES["a-key"]["api_key"]), f"{{api_key: {json.dumps(SHAPES['a-key'])}}}")
            for number, literal in enumerate(literals):
                site.replace(site.policy, "#\n" * number + policy(destination.url, literal))
                await site.when(lambda number=number: len(site.happened("invalid")) > number)
            site.replace(site.policy, policy(destination.url, "{file: es}"))
            await site.when(lambda: site.revoked)
            child = sidecar_of(process.pid)
            assert found(canary.shown_by(child)) == []
            assert found(canary.shown_by(process.pid, "cmdline")) == []
            os.kill(child, signal.SIGABRT)
            await site.when(lambda: len(site.happened("ready")) > 1)
            assert left_in(site.state, EVENT) == {}
            process.send_signal(signal.SIGABRT)
            await process.wait()

    assert found(json.dumps(site.lines).encode() + site.errors, EVENT) == []
    assert left_in(tmp_path / "told", EVENT) == {}
    assert left_in(site.state, EVENT) == {}
    assert list(tmp_path.glob("core*")) == []  # noqa: ASYNC240 - a test
