"""Standard output: what is to be said waits here, so that nobody waits for a supervisor that does not read.

Acks, nacks, results and errors go out in their order; of `observed` only the newest waits. When the other side closed
the pipe, what is said is forgotten: all that matters is durable and said again after a restart.
"""

from __future__ import annotations

import os
import select
from collections import deque

import trio

from shipper.process import log
from shipper.process.signal import Signal
from shipper.protocol.messages import MAX_LINE_BYTES, Error, Observed, Outbound
from shipper.sdk.codes import Code

_log = log.get(__name__)

FULL = 1024


class Outbox:
    """Writes to a file descriptor from a thread; `say` never waits."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[Outbound] = deque()
        self._observed: Observed | None = None
        self._news = Signal()
        self._written = trio.Event()
        self._closed = False
        self._writing: list[Outbound] = []

    def say(self, message: Outbound) -> None:
        """Take a message to be written."""
        if self._closed:
            return
        if isinstance(message, Observed):
            self._observed = message
        else:
            self._waiting.append(message)
        self._news.set()

    @property
    def is_full(self) -> bool:
        """Whether very much waits."""
        return len(self._waiting) >= FULL

    async def has_room(self) -> None:
        """Wait while it is full: so a supervisor that only talks cannot fill our memory with answers."""
        while self.is_full:
            await self._written.wait()

    def is_written(self, message: Outbound) -> bool:
        """Whether a message that was said is known to be written; nothing is, once the pipe is closed."""
        return not self._closed and all(other is not message for other in (*self._writing, *self._waiting))

    async def flushed(self) -> None:
        """Wait until all was written, or the pipe is closed."""
        while self._waiting or self._observed is not None or self._writing:
            await self._written.wait()

    async def run(self) -> None:
        """Write what was said, for ever."""
        while True:
            await self._news.wait()
            while self._waiting or self._observed is not None:
                self._writing = self._take()
                text = b"".join(_line(message) for message in self._writing)
                try:
                    await trio.to_thread.run_sync(_write, self._descriptor, text, abandon_on_cancel=True)
                except OSError:
                    self._closed = True
                    self._waiting.clear()
                    self._observed = None
                self._writing = []
                self._written.set()
                self._written = trio.Event()

    def _take(self) -> list[Outbound]:
        messages: list[Outbound] = []
        while self._waiting and len(messages) < 64:
            messages.append(self._waiting.popleft())
        if not self._waiting and self._observed is not None:
            messages.append(self._observed)
            self._observed = None
        return messages


def _line(message: Outbound) -> bytes:
    """Its line. One that is too long, which no message should have, is not written, and nothing of it is either."""
    line = message.line()
    if len(line) <= MAX_LINE_BYTES:
        return line
    kind = type(message).__name__.lower()
    text = f"a message ({kind}) has {len(line)} bytes, and a line has at most {MAX_LINE_BYTES}: it is left out"
    _log.error(text)
    return Error(line_number=0, message=text, code=Code.LINE_TOO_LONG).line()


def _write(descriptor: int, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(descriptor, text) :]
        except BlockingIOError:  # somebody else made the pipe non-blocking
            select.select((), (descriptor,), ())
