"""Whose turn it is: streams with something to read, first come, first served.

A stream takes one chunk a turn and goes to the end of the queue, so a large file does not keep small ones waiting. A
stream is in the queue once at most, and a file that rests costs no task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import trio


class Turn(msgspec.Struct, eq=False):
    """Changed by `Turns` only."""

    queued: bool = False
    busy: bool = False
    again: bool = False
    """Whether it was woken since its turn began."""
    slow: bool = False
    """Whether its file system took long when it was last looked at."""


class HasTurn(Protocol):
    """What can wait for a turn."""

    @property
    def turn(self) -> Turn:
        """Its own."""
        ...


_Stream = TypeVar("_Stream", bound=HasTurn)


class Turns(Generic[_Stream]):
    """A fair queue of streams."""

    def __init__(self) -> None:
        self._waiting: deque[_Stream] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._active = 0
        self._quiet = trio.Event()
        self._quiet.set()

    def wake(self, stream: _Stream) -> None:
        """Give a stream a turn: it may have something to read."""
        if stream.turn.queued:
            stream.turn.again = True
            return
        stream.turn.queued = True
        if not self._active:
            self._quiet = trio.Event()
        self._active += 1
        self._add(stream)

    async def next(self, most: int) -> list[_Stream]:
        """Wait for streams, at least one; see `take`."""
        if self._waiting:
            await trio.lowlevel.checkpoint()
        while not (streams := self.take(most)):
            await self._idle.park()
        if self._waiting:  # for another one who is idle; who adds to others wakes nobody
            self._idle.unpark()
        return streams

    def take(self, most: int) -> list[_Stream]:
        """The next streams, none if none waits; they are busy until `done`. One whose file system is slow is alone."""
        streams = [self._next()] if self._waiting else []
        while self._waiting and len(streams) < most and not (streams[-1].turn.slow or self._waiting[0].turn.slow):
            streams.append(self._next())
        return streams

    def _next(self) -> _Stream:
        stream = self._waiting.popleft()
        stream.turn.busy, stream.turn.again = True, False
        return stream

    def put_back(self, streams: Sequence[_Stream]) -> None:
        """Their turns did not begin; they are the next ones."""
        for stream in reversed(streams):
            stream.turn.busy = False
            self._waiting.appendleft(stream)
        if streams:
            self._idle.unpark()

    def done(self, stream: _Stream, *, more: bool) -> None:
        """Its turn is over; it gets another one if there is `more`, or if it was woken meanwhile."""
        stream.turn.busy = False
        if more or stream.turn.again:
            self._add(stream)
            return
        stream.turn.queued = False
        self._active -= 1
        if not self._active:
            self._quiet.set()

    def _add(self, stream: _Stream) -> None:
        self._waiting.append(stream)
        if len(self._waiting) == 1:
            self._idle.unpark()

    def note(self, stream: _Stream, *, slow: bool) -> None:
        """Its file was looked at, and its file system took long, or did not."""
        stream.turn.slow = slow

    async def quiet(self) -> None:
        """Wait until no stream has anything to read."""
        await self._quiet.wait()
