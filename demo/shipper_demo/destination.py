"""The demo's destination: a second shipper, whose `elasticsearch` input writes what it receives to a file.

Who may write stands in its policy, so to admit or revoke a key is a revision, and its `active` is the instant from
which the destination acts on it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from shipper.plugin import Credential
from shipper.sdk.errors import ShipperError
from shipper_demo.process import Process, Said, launched

_PATIENCE = 20.0
_POLICY = """\
version: 1
inputs:
  bulk:
    type: elasticsearch
    address: 127.0.0.1:{port}
    credentials: [{keys}]
outputs:
  record:
    type: file
    path: {record}
    id_field: _id
    rotate_bytes: 1000GiB
"""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key: its name is no secret."""

    name: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """As it stands in a key file."""
        return f"{self.name}:{self.secret}"


class Destination:
    """A running destination; made by `opened`."""

    def __init__(self, process: Process, record: Path, port: int) -> None:
        self.port = port
        self.record = record
        self._process = process
        self._keys: dict[str, Key] = {}
        self._revision = 0
        self._settled: dict[int, Said] = {}
        self._news = trio.Event()
        self._lock = trio.Lock()
        """Held from reading `_keys` on: a key that is admitted meanwhile must not be forgotten."""

    async def admit(self, key: Key) -> None:
        """From the return on, requests with this key are taken."""
        async with self._lock:
            await self._change(self._keys | {key.name: key})

    async def revoke(self, key: Key) -> None:
        """From the return on, every request with this key is refused."""
        async with self._lock:
            await self._change({name: other for name, other in self._keys.items() if name != key.name})

    async def answer_to(self, key: Key) -> int:
        """The HTTP status of a request with this key, made just now."""
        authorization = Credential.parse({"api_key": key.text}).authorization()
        request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {authorization}\r\nConnection: close\r\n\r\n"
        with trio.fail_after(_PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await stream.send_all(request.encode())
                answer = b""
                while b"\r\n" not in answer and (chunk := await stream.receive_some(4096)):
                    answer += chunk
        return int(answer.split(b" ", 2)[1])

    async def _change(self, keys: dict[str, Key]) -> None:
        self._keys = keys
        self._revision += 1
        record = json.dumps(str(self.record))
        policy = _POLICY.format(port=self.port, keys=", ".join(keys), record=record)
        credentials = {name: {"api_key": key.text} for name, key in keys.items()}
        message = {"type": "policy", "revision": self._revision, "policy": policy, "credentials": credentials}
        await self._process.send(message)
        with trio.fail_after(_PATIENCE):
            while self._revision not in self._settled:
                await self._news.wait()
        if (said := self._settled[self._revision])["type"] == "nack":
            raise ShipperError(f"the demo's destination refuses its policy: {said['reason']} {said['errors']}")

    def _hear(self, said: Said) -> None:
        if said["type"] == "nack" or (said["type"] == "ack" and said["stage"] == "active"):
            self._settled[said["revision"]] = said
            self._news.set()
            self._news = trio.Event()


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Destination]:
    """A destination on a free port of loopback; nobody may write before a key is admitted.

    Leaving the block in order waits until all that it took is in the record.
    """
    directory.mkdir()  # noqa: ASYNC240 (one system call)
    command = [sys.executable, "-P", "-m", "shipper", "run", "--state", str(directory / "state")]
    async with (
        launched("the demo's destination", command, directory / "log.ndjson", os.environ) as process,
        trio.open_nursery() as nursery,
    ):
        destination = Destination(process, directory / "record.ndjson", _free_port())
        nursery.start_soon(process.listen, destination._hear)
        await process.send({"type": "hello", "protocol": 1, "supervisor": "shipper demo"})
        yield destination
        await process.end()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
