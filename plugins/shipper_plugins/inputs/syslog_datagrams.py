"""Reads the datagrams of one socket, and counts the lost ones.

While the queue is full, none is read: the socket's buffer fills, and the kernel drops further datagrams, as UDP allows.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import trio

from shipper.plugin import Endpoint, Fields, newly_lost
from shipper_plugins.inputs.syslog_door import Door, Peer
from shipper_plugins.inputs.syslog_gathering import Gathering

MOST_AT_ONCE = 100


class Datagrams:
    """The reader of one socket; `door` returns the current settings."""

    def __init__(
        self, endpoint: Endpoint, listener: socket.socket, door: Callable[[], Door], gathering: Gathering
    ) -> None:
        self._endpoint, self._listener = endpoint, listener
        self._door, self._gathering = door, gathering
        self._buffer = bytearray()
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
        """Gathers the available datagrams, up to `MOST_AT_ONCE`; raises OSError."""
        door = self._door()
        if len(self._buffer) != door.max_bytes + 1:
            self._buffer = bytearray(door.max_bytes + 1)
        events: list[Fields] = []
        with suppress(BlockingIOError):
            for _ in range(MOST_AT_ONCE):
                if (event := self._event(door)) is not None:
                    events.append(event)
        self._gathering.add(events)

    def _event(self, door: Door) -> Fields | None:
        size, address = self._listener.recvfrom_into(self._buffer)
        peer = Peer.of(self._endpoint, address)
        if not door.lets_in(peer):
            self.refused += 1
            return None
        kept = min(size, door.max_bytes)
        return door.event(bytes(memoryview(self._buffer)[:kept]), peer, is_cut=size > kept)

    def count_lost(self) -> int:
        """Returns the number of datagrams that were lost since the last call."""
        lost = newly_lost(self._listener) or 0
        self.lost += lost
        return lost
