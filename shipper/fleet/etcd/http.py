"""One connection of HTTP/1.1 to one host: h11, which does no I/O, over a stream of trio.

What a peer sends is bounded: the head of an answer, its body, a line of a watch. Any failure is a NoAnswer with the
host and the cause; the connection is of no use then.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
import trio

from shipper.sdk.codes import Code
from shipper.sdk.connection import broken_off
from shipper.sdk.http_answer import USER_AGENT, NoAnswer

LARGEST_ANSWER = 16 << 20
_HEAD = 64 << 10
_PIECE = 64 << 10
LARGEST_ERROR = 64 << 10


class TooLarge(NoAnswer):
    """An answer of more than LARGEST_ANSWER bytes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request; the body of an error is cut."""

    status: int
    body: bytes


class Connection:
    """A connection. `ask` for one answer, or `begin` and take `line` by line; one at a time."""

    def __init__(self, stream: trio.abc.Stream, host: str) -> None:
        self.host = host
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
        self._lines = bytearray()
        self._searched = 0

    async def ask(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises NoAnswer."""
        status = await self.begin(path, body, headers)
        return Answer(status, await self.rest(LARGEST_ANSWER if status == 200 else LARGEST_ERROR, cut=status != 200))

    async def begin(self, path: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Sends a request and returns the status of its answer; raises NoAnswer."""
        head = {
            "Host": self.host,
            "User-Agent": USER_AGENT,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }
        events = (h11.Request(method="POST", target=path, headers=list(head.items())), h11.Data(data=body))
        sent = b"".join(filter(None, map(self._http.send, (*events, h11.EndOfMessage()))))
        with suppress(OSError, trio.BrokenResourceError):  # the peer may have said why, before it closed
            await self._stream.send_all(sent)
        answer = await self._next()
        while isinstance(answer, h11.InformationalResponse):
            answer = await self._next()
        if not isinstance(answer, h11.Response):
            raise broken_off(self.host)
        return answer.status_code

    async def rest(self, most: int, *, cut: bool = False) -> bytes:
        """Returns the rest of the answer; raises TooLarge if it has more than `most` bytes, unless it is to be cut."""
        found = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            found += event.data
            if len(found) > most:
                if cut:
                    return bytes(found[:most])
                raise self._too_large()
        return bytes(found)

    async def line(self) -> bytes:
        """Returns the next line of the answer; it may be cancelled, and goes on then. Raises NoAnswer at the end."""
        while (end := self._lines.find(b"\n", self._searched)) < 0:
            self._searched = len(self._lines)
            event = await self._next()
            if not isinstance(event, h11.Data):
                raise broken_off(self.host)
            self._lines += event.data
            if len(self._lines) > LARGEST_ANSWER:
                raise self._too_large()
        found = bytes(self._lines[:end])
        del self._lines[: end + 1]
        self._searched = 0
        return found

    def renewed(self) -> bool:
        """Makes the connection ready for the next request; returns whether it is."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def is_silent(self) -> bool:
        """Whether the peer has sent nothing since the last answer, such as the end of the connection."""
        return _is_silent(self._stream)

    async def _next(self) -> Any:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            return h11.EndOfMessage()
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(_PIECE)))
        except h11.RemoteProtocolError:
            if self._http.trailing_data[1]:
                raise broken_off(self.host) from None
            raise NoAnswer(f"{self.host}: an answer that is not HTTP", "broken", Code.BAD_ANSWER) from None
        except (OSError, trio.BrokenResourceError) as error:
            raise broken_off(self.host, error) from None
        return event

    def _too_large(self) -> TooLarge:
        return TooLarge(f"{self.host}: an answer of more than {LARGEST_ANSWER >> 20} MiB", "broken", Code.BAD_ANSWER)

    async def aclose(self) -> None:
        """Aborts the connection."""
        await trio.aclose_forcefully(self._stream)


def keep_alive(stream: trio.abc.Stream, seconds: int) -> None:
    """Makes the kernel end a connection whose peer's host has not answered for about `seconds`."""
    connected = socket_of(stream)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", seconds // 2),
        ("TCP_KEEPINTVL", max(1, seconds // 6)),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", seconds * 1000),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def socket_of(stream: trio.abc.Stream) -> trio.socket.SocketType:
    """Returns the socket below a stream of `open_stream`."""
    below: Any = stream
    while not isinstance(below, trio.SocketStream):
        below = below.transport_stream
    return below.socket


def _is_silent(stream: trio.abc.Stream) -> bool:
    with socket.socket(fileno=socket_of(stream).fileno()) as peeked:
        try:
            peeked.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            peeked.detach()
    return False
