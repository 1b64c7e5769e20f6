"""The door of a principal as the drivers of the relay open it, the way to it, and what a process behind it costs."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.child import Shipper

_CHUNK = 1 << 16


def door(
    child: Shipper,
    port: int,
    edges: Mapping[str, Mapping[str, Any]],
    outputs: Mapping[str, Any],
    **options: Any,
) -> None:
    """Let these edges in, with keys as `secret` makes them; returns when that is active."""
    inputs = {"edges": {"type": "relay", "address": f"127.0.0.1:{port}", "edges": edges, **options}}
    policy = {"version": 1, "inputs": inputs, "outputs": outputs}
    ids = [id for edge in edges.values() for id in edge["credentials"]]
    ids += [output["credential"] for output in outputs.values() if "credential" in output]
    child.say(type="policy", revision=1, policy=json.dumps(policy), credentials={id: secret(id) for id in ids})
    child.wait("ack", stage="active", revision=1)


def secret(id: str) -> dict[str, str]:
    """The key of a credential."""
    return {"api_key": f"{id}:secret"}


def relay_output(port: int, name: str, **options: Any) -> dict[str, Any]:
    """A `relay` output to the door at a port, as this edge."""
    return {"type": "relay", "name": name, "hosts": [f"http://127.0.0.1:{port}"], "credential": name, **options}


@dataclass(frozen=True)
class Cost:
    """Of one process, over a while."""

    cpu: float
    seconds: float
    peak_mib: float


class Clock:
    """What a process costs from here on."""

    def __init__(self, child: Shipper) -> None:
        self._child = child
        self._cpu, self._since = child.cpu_seconds(), time.monotonic()

    def stop(self) -> Cost:
        """What it has cost so far."""
        cpu, seconds = self._child.cpu_seconds() - self._cpu, time.monotonic() - self._since
        return Cost(cpu, seconds, self._child.peak_mib())


class Link:
    """A way to a port of loopback on which bytes are counted; made by `linked`."""

    def __init__(self, listener: socket.socket, to: int) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener, self._to = listener, to
        self._open: set[socket.socket] = set()
        self._is_down = False
        self._tried = threading.Event()
        self.there = self.back = 0
        """Bytes in each direction."""
        self.asked: list[bytes] = []
        """The paths of requests."""
        self.answered = 0
        self.moved = time.monotonic()
        """When bytes passed last."""

    def take_down(self) -> None:
        """End all connections, and refuse others."""
        self._tried.clear()
        self._cut()

    def until_noticed(self) -> None:
        """Returns when a connection was refused since the link is down."""
        if not self._tried.wait(60):
            raise SystemExit("nobody has noticed that the link is down")

    def bring_up(self) -> None:
        """Let connections through again, and count from zero."""
        self.there = self.back = self.answered = 0
        self.asked.clear()
        self._is_down = False

    def accept(self) -> None:
        """Serve until the listener is closed, and the connections with it."""
        threads = []
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threads.append(threading.Thread(target=self._serve, args=(near,)))
                threads[-1].start()
        self._cut()
        for thread in threads:
            thread.join()

    def _cut(self) -> None:
        self._is_down = True
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _serve(self, near: socket.socket) -> None:
        with near:
            if self._is_down:
                self._tried.set()
                return
            with socket.create_connection(("127.0.0.1", self._to)) as far:
                both = {near, far}
                self._open |= both
                back = threading.Thread(target=self._pass, args=(far, near, False))
                back.start()
                self._pass(near, far, True)
                back.join()
                self._open -= both

    def _pass(self, source: socket.socket, to: socket.socket, is_there: bool) -> None:
        with suppress(OSError):
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(_CHUNK):
                self._count(data, is_there)
                to.sendall(data)
        for one in (source, to):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _count(self, data: bytes, is_there: bool) -> None:
        self.moved = time.monotonic()
        if is_there:
            self.there += len(data)
            self.asked += data.split(b" ", 2)[1:2] if data.startswith(b"POST ") else []
        else:
            self.back += len(data)
            self.answered += data.startswith(b"HTTP/1.1 ")


@contextmanager
def linked(to: int) -> Iterator[Link]:
    """A link to a port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link(listener, to)
        thread = threading.Thread(target=link.accept)
        thread.start()
        try:
            yield link
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
