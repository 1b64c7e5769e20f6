"""Whose turn it is: streams with something to read, first come, first served.

A stream takes one chunk a turn and goes to the end of the queue, so a large file does not keep small ones waiting. A
stream is in the queue once at most, and a file that rests costs no task.
"""

from __future__ import annotations

import math

import trio

from shipper_plugins.inputs.tail.stream import Stream


class Turns:
    """A fair queue of streams."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Stream](math.inf)
        self._active = 0
        self._quiet = trio.Event()
        self._quiet.set()

    def wake(self, stream: Stream) -> None:
        """Give a stream a turn: it may have something to read."""
        if stream.queued:
            stream.again = True
            return
        stream.queued = True
        if not self._active:
            self._quiet = trio.Event()
        self._active += 1
        self._send.send_nowait(stream)

    async def next(self) -> Stream:
        """Wait for the next stream; it is busy until `done`."""
        stream = await self._receive.receive()
        stream.busy, stream.again = True, False
        return stream

    def next_nowait(self) -> Stream | None:
        """The next stream, if one waits."""
        try:
            stream = self._receive.receive_nowait()
        except trio.WouldBlock:
            return None
        stream.busy, stream.again = True, False
        return stream

    def done(self, stream: Stream, *, more: bool) -> None:
        """Its turn is over; it gets another one if there is `more`, or if it was woken meanwhile."""
        stream.busy = False
        if more or stream.again:
            self._send.send_nowait(stream)
            return
        stream.queued = False
        self._active -= 1
        if not self._active:
            self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no stream has anything to read."""
        await self._quiet.wait()
