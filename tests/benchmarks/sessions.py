"""Edges that this process plays at the door of a principal, over TLS: a connection of each, kept open."""

from __future__ import annotations

import json
import os
import resource
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http.client import HTTPResponse
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from socket import create_connection
from typing import Any

import msgspec
import trustme

from shipper.plugin import Batch, Credential
from shipper.sdk.origins import SECRET_BYTES, Origin
from shipper_demo.ports import free_port
from shipper_plugins.relay import frames
from shipper_plugins.relay.frames import PROTOCOL, Generation, Head
from tests.benchmarks.child import Shipper
from tests.benchmarks.doors import door, secret
from tests.benchmarks.figures import progress

_LINE = b'10.0.0.1 - - [28/Nov/2026:10:00:00 +0000] "GET /a/page HTTP/1.1" 200 1234 "-" "Mozilla/5.0 (X11; Linux)"\n'
_CHUNK = 50
_HEARTBEAT = 10.0
_SHARED = {
    "@timestamp": "2026-11-28T10:00:00.000Z",
    "host": {"name": "edge"},
    "agent": {"name": "edge", "type": "shipper", "version": "1"},
    "log": {"file": {"path": "/var/log/access.log"}},
    "data_stream": {"type": "logs", "dataset": "bench", "namespace": "default"},
}


class Session:
    """One edge."""

    def __init__(self, name: str, port: int, context: ssl.SSLContext) -> None:
        self._authorization = Credential.parse(secret(name)).authorization()
        self._socket = context.wrap_socket(create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        self.origin = Origin(os.urandom(SECRET_BYTES))
        self.proof = self.origin.proof(name)
        self._place = 0
        hello = {"protocol": PROTOCOL, "instance": os.urandom(16).hex(), "link": 1}
        self._send("session", json.dumps(hello).encode(), "application/json")

    def begun(self) -> None:
        """Returns when its session has begun."""
        self._generation = Generation(*json.loads(self._answer("session"))["generation"])

    def fileno(self) -> int:
        """Of its connection."""
        return self._socket.fileno()

    def heartbeat(self) -> None:
        """Say that it is there, and read the answer."""
        said = {"generation": self._generation, "link": 1, "low": 0}
        self._send("heartbeat", msgspec.json.encode(said), "application/json")
        self._answer("heartbeat")

    def post(self, events: int) -> None:
        """Send a part of so many lines; `answered` reads the answer."""
        self._place += 1
        batch = replace(
            Batch.lines(_LINE * events, offset=self._place * len(_LINE), shared=_SHARED),
            origin=self.origin.id,
            seq=self._place,
            place=self._place,
        )
        part = frames.part_of(batch, self.proof)
        head = Head(self._generation, 1, low=self._place, parts=1, waiting=events)
        self._send("parts", b"".join(frames.encode(head, [part])), frames.MEDIA_TYPE)

    def answered(self) -> None:
        """Read an answer; raises SystemExit if it is a refusal."""
        self._answer("a request")

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _send(self, what: str, body: bytes, kind: str) -> None:
        head = f"POST /v1/relay/{what} HTTP/1.1\r\nHost: principal\r\nAuthorization: {self._authorization}\r\n"
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def _answer(self, what: str) -> bytes:
        answer = HTTPResponse(self._socket)
        answer.begin()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{what} was answered {answer.status}: {text!r}")
        return text


class Connected(list[Session]):
    """Sessions of one principal."""

    before_mib = 0.0
    """The resident set of the principal before there was more than one."""


@contextmanager
def sessions(child: Shipper, directory: Path, count: int, outputs: Mapping[str, Any]) -> Iterator[Connected]:
    """So many edges that are connected to a principal with these outputs."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    names = [f"edge-{number}" for number in range(count)]
    authority, port = trustme.CA(), free_port()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    tls = {"certificate": str(chain), "key": str(key)}
    door(child, port, {name: {"credentials": [name]} for name in names}, outputs, tls=tls)
    made = Connected()
    heard = time.monotonic()
    with ExitStack() as stack:
        for at in range(0, count, _CHUNK):
            those = [stack.enter_context(closing(Session(name, port, context))) for name in names[at : at + _CHUNK]]
            for session in those:
                session.begun()
                made.append(session)
                if len(made) == 1:  # what is imported for the first one belongs to no edge
                    made.before_mib = child.resident_mib()
            progress(f"{len(made)} of {count} edges are connected")
            if time.monotonic() - heard > _HEARTBEAT:  # a busy machine takes minutes for all, and idle ones are closed
                for session in made:
                    session.heartbeat()
                heard = time.monotonic()
        yield made


def post_parts(those: Sequence[Session], seconds: float, events: int) -> list[float]:
    """Each of them sends a part a second, at even distances, as of edges that were not started together; returns the
    seconds until each answer."""
    delays: list[float] = []
    sent: dict[Session, float] = {}
    due: deque[Session] = deque()
    number, begun = 0, time.monotonic()
    with DefaultSelector() as selector:
        for session in those:
            selector.register(session, EVENT_READ, session)
        while sent or due or time.monotonic() - begun < seconds:
            now = min(seconds, time.monotonic() - begun)
            while number / len(those) < now:
                due.append(those[number % len(those)])
                number += 1
            for session in [due.popleft() for _ in range(len(due))]:
                if session in sent:
                    due.append(session)
                else:
                    sent[session] = time.monotonic()
                    session.post(events)
            for ready, _ in selector.select(0.001):
                ready.data.answered()
                delays.append(time.monotonic() - sent.pop(ready.data))
    return delays
