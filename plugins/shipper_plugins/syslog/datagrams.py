"""Reads the datagrams of one socket, and counts the lost ones.

All that have arrived are read in one turn, up to a bound. A datagram takes 3 µs: 1.5 of the kernel, 1.5 to name its
sender. `recvfrom_into` one buffer takes 0.5 more, `recvmmsg` by ctypes 0.7 less.

While the queue is full, none is read: the socket's buffer fills, and the kernel drops further datagrams, as UDP allows.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from shipper.plugin import Endpoint
from shipper.sdk.sockets import newly_lost
from shipper_plugins.syslog.door import Door, Peer
from shipper_plugins.syslog.frames import Cut
from shipper_plugins.syslog.gathering import Gathering

MOST_AT_ONCE = 150
MOST_BYTES = 256 << 10
"""Of datagrams that are read before others get their turn; the last one may exceed it."""
_MOST_KNOWN = 1024


class Datagrams:
    """The reader of one socket; `door` returns the current settings."""

    def __init__(
        self, endpoint: Endpoint, listener: socket.socket, door: Callable[[], Door], gathering: Gathering
    ) -> None:
        self._endpoint, self._listener = endpoint, listener
        self._door, self._gathering = door, gathering
        self._known_door: Door | None = None
        self._sources = dict[Any, bytes | None]()
        """Of senders, those that the known door lets in and others (None)."""
        self.lost = 0
        """The number of datagrams that the kernel dropped, even while no input read the socket."""
        self.refused = 0
        """The number of datagrams from senders that the door refused."""

    async def read(self) -> None:
        """Reads until cancelled; raises OSError."""
        while True:
            await self._gathering.room()
            await trio.lowlevel.wait_readable(self._listener)
            self._read_some()

    def _read_some(self) -> None:
        """Gathers the available datagrams, up to `MOST_AT_ONCE` or `MOST_BYTES`; raises OSError."""
        door = self._door()
        if door is not self._known_door:
            self._known_door, self._sources = door, {}
        frames, sources = self._received(door)
        if frames:
            self._gathering.add(door.block(frames, sources))

    def _received(self, door: Door) -> tuple[list[bytes], list[bytes]]:
        """Returns datagrams, and the source of each."""
        receive, most, known = self._listener.recvfrom, door.max_bytes, self._sources
        frames, sources = list[bytes](), list[bytes]()
        left = MOST_BYTES
        with suppress(BlockingIOError):
            for _ in range(MOST_AT_ONCE):
                frame, address = receive(most + 1)
                source = known[address] if address in known else self._source(address, door)
                if source is None:
                    self.refused += 1
                    continue
                frames.append(frame if len(frame) <= most else Cut(frame[:most]))
                sources.append(source)
                left -= len(frame)
                if left <= 0:
                    break
        return frames, sources

    def _source(self, address: Any, door: Door) -> bytes | None:
        """Returns the source of a sender that may send; remembers it."""
        peer = Peer.of(self._endpoint, address)
        if len(self._sources) >= _MOST_KNOWN:
            self._sources.clear()
        self._sources[address] = source = peer.source if door.lets_in(peer) else None
        return source

    def count_lost(self) -> int:
        """Returns the number of datagrams that were lost since the last call."""
        lost = newly_lost(self._listener) or 0
        self.lost += lost
        return lost
