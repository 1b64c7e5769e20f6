"""Whose turn it is: streams with something to read, first come, first served.

A stream takes one chunk a turn and goes to the end of the queue, so a large file does not keep small ones waiting. A
stream is in the queue once at most, and a file that rests costs no task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from shipper_plugins.inputs.tail.stream import Stream


class Turns:
    """A fair queue of streams."""

    def __init__(self) -> None:
        self._waiting: deque[Stream] = deque()
        self._idle = trio.lowlevel.ParkingLot()
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
        self._add(stream)

    async def next(self, most: int) -> list[Stream]:
        """Wait for streams, at least one; they are busy until `done`. One whose file system is slow is alone."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            await self._idle.park()
        streams = [self._next()]
        while self._waiting and len(streams) < most and not (streams[-1].slow or self._waiting[0].slow):
            streams.append(self._next())
        return streams

    def _next(self) -> Stream:
        stream = self._waiting.popleft()
        stream.busy, stream.again = True, False
        return stream

    def put_back(self, streams: Sequence[Stream]) -> None:
        """Their turns did not begin; they are the next ones."""
        for stream in reversed(streams):
            stream.busy = False
            self._waiting.appendleft(stream)
        if streams:
            self._idle.unpark()

    def done(self, stream: Stream, *, more: bool) -> None:
        """Its turn is over; it gets another one if there is `more`, or if it was woken meanwhile."""
        stream.busy = False
        if more or stream.again:
            self._add(stream)
            return
        stream.queued = False
        self._active -= 1
        if not self._active:
            self._quiet.set()

    def _add(self, stream: Stream) -> None:
        self._waiting.append(stream)
        self._idle.unpark()

    async def quiet(self) -> None:
        """Wait until no stream has anything to read."""
        await self._quiet.wait()
