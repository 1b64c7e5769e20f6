"""Asks a running shipper at the socket of its state directory (`local`): the client's side."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from shipper.process.log import printable
from shipper.process.private_socket import OF_SHIPPER, address
from shipper.sdk.errors import OptionError, ShipperError

SECONDS = 5.0


class NoAnswer(ShipperError):
    """No shipper answers for a state directory."""


class Refused(ShipperError):
    """The shipper refuses what it was asked for."""


class Answers:
    """The lines of an answer, one after the other; an interrupt loses none of them."""

    def __init__(self, peer: socket.socket, state: Path) -> None:
        self._peer, self._state, self._rest = peer, state, bytearray()

    def ask(self, question: Mapping[str, Any]) -> None:
        """Sends the question."""
        with _said(self._state):
            self._peer.sendall(orjson.dumps(question) + b"\n")

    def within(self, seconds: float) -> None:
        """Sets how long `next` waits."""
        self._peer.settimeout(seconds)

    def end(self) -> None:
        """Tells the shipper that nothing more is wanted; it says how the answer ends."""
        with _said(self._state):
            self._peer.shutdown(socket.SHUT_WR)

    def next(self) -> dict[str, Any] | None:
        """Returns the next line, None after the last. Raises Refused and NoAnswer."""
        seen = 0
        while (end := self._rest.find(b"\n", seen)) < 0:
            seen = len(self._rest)
            with _said(self._state):
                chunk = self._peer.recv(1 << 18)
            if not chunk:
                return None
            self._rest += chunk
        answer: dict[str, Any] = orjson.loads(self._rest[:end])
        del self._rest[: end + 1]
        if "refused" in answer:
            raise Refused(printable(answer["refused"]))
        return answer


@contextmanager
def connected(state: Path) -> Iterator[Answers]:
    """Yields a connection to the shipper of a state directory: its own, or that of its supervisor.

    Raises NoAnswer, and OptionError for an unusable directory.
    """
    directory = state / "sidecar" if (state / "sidecar").is_dir() else state
    if not directory.is_dir():
        raise OptionError(f"--state {state}: {'not a directory' if state.exists() else 'there is no such directory'}")
    with _said(state), address(directory, OF_SHIPPER) as path:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(SECONDS)
        try:
            peer.connect(path)
        except OSError:
            peer.close()
            raise
    with peer:
        yield Answers(peer, state)


def status(state: Path) -> dict[str, Any] | None:
    """Returns what the shipper of a state directory says of itself, as `/status` does; None if none answers."""
    try:
        with connected(state) as answers:
            answers.ask({"ask": "status"})
            answer = answers.next()
    except (NoAnswer, Refused):
        return None
    found: dict[str, Any] | None = answer["status"] if answer else None
    return found


@contextmanager
def _said(state: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ConnectionError):
        raise NoAnswer(f"no shipper runs with the state directory {state}") from None
    except PermissionError:
        raise OptionError(f"--state {state}: permission denied: it belongs to another user") from None
    except (TimeoutError, BlockingIOError):  # BlockingIOError: so many wait that no other may
        raise NoAnswer(f"the shipper of {state} does not answer") from None
