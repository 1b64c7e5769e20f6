"""The sockets that a plugin connects, in whatever thread, as Python's audit events tell of them.

They are told apart by a context variable: it follows a task into its children and its worker threads, and by `watched`
into asyncio's loop. So what a test does beside the plugin is not counted.
"""

from __future__ import annotations

import socket
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

_current: ContextVar[Connections | None] = ContextVar("connections", default=None)


class Connections:
    """The sockets that were connected, or should have been, within `watch`."""

    def __init__(self) -> None:
        self._sockets: list[weakref.ref[socket.socket]] = []

    def __len__(self) -> int:
        """How many there were."""
        return len(self._sockets)

    def opened(self) -> list[socket.socket]:
        """Returns those that are open."""
        known = [made() for made in self._sockets]
        return [made for made in known if made is not None and made.fileno() >= 0]

    def note(self, made: socket.socket) -> None:
        """Any thread."""
        self._sockets.append(weakref.ref(made))


def current() -> Connections | None:
    """Returns those of this task."""
    return _current.get()


def follow(connections: Connections | None) -> None:
    """Makes them those of this task, which another one has begun."""
    _current.set(connections)


@contextmanager
def watch() -> Iterator[Connections]:
    """Notes what this task connects, and what it begins does, while the block runs."""
    _listen()
    connections = Connections()
    token = _current.set(connections)
    try:
        yield connections
    finally:
        _current.reset(token)


@cache
def _listen() -> None:
    """An audit hook cannot be taken back: there is one, from the first check on."""
    sys.addaudithook(_hear)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and (connections := _current.get()) is not None:
        connections.note(args[0])
