"""Datagrams of one socket, read in turns, and those that never came.

While the queue is full, none is read: the socket's buffer fills, and the kernel drops what has no room there. That is
what UDP promises; here it is counted.
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
    """The reader of one socket; `door` says by which settings."""

    def __init__(
        self, endpoint: Endpoint, listener: socket.socket, door: Callable[[], Door], gathering: Gathering
    ) -> None:
        self._endpoint, self._listener = endpoint, listener
        self._door, self._gathering = door, gathering
        self._buffer = bytearray()
        self.lost = 0
        """How many the kernel has dropped, those included that came while no input read the socket."""
        self.refused = 0
        """How many came from somewhere else than the door lets in."""

    async def read(self) -> None:
        """Read until cancelled; raises OSError."""
        while True:
            await self._gathering.room()
            await trio.lowlevel.wait_readable(self._listener)
            self._read_some()

    def _read_some(self) -> None:
        """Gather what is there, up to `MOST_AT_ONCE`; raises OSError."""
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
        """How many were lost since the last call."""
        lost = newly_lost(self._listener) or 0
        self.lost += lost
        return lost
