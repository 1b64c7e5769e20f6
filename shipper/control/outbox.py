"""The queue of messages for standard output, so that no part waits for a supervisor that does not read.

Acks, nacks, results and errors are written in their order; only the newest `observed` waits. After the supervisor
closed the pipe, messages are dropped: the durable ones are repeated after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import trio

from shipper.control.pipes import Stdout
from shipper.process import log
from shipper.process.signal import Signal
from shipper.protocol.messages import MAX_LINE_BYTES, Error, Observed, Outbound
from shipper.sdk.codes import Code

_log = log.get(__name__)

FULL = 1024
_Queued: TypeAlias = tuple[Outbound, Callable[[], None]]
"""A message, and a function to call once it is written."""


def _nothing() -> None:
    pass


class Outbox:
    """Writes to standard output; `say` never waits."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._waiting: deque[_Queued] = deque()
        self._observed: Observed | None = None
        self._news = Signal()
        self._written = trio.Event()
        self._closed = False
        self._is_writing = False

    def say(self, message: Outbound, written: Callable[[], None] = _nothing) -> None:
        """Queues a message; calls `written` once it is written, except for `observed`."""
        if self._closed:
            return
        if isinstance(message, Observed):
            self._observed = message
        else:
            self._waiting.append((message, written))
        self._news.set()

    @property
    def is_full(self) -> bool:
        """Whether FULL messages or more wait."""
        return len(self._waiting) >= FULL

    async def has_room(self) -> None:
        """Waits while it is full, so that a supervisor that does not read cannot fill the memory with answers."""
        while self.is_full:
            await self._written.wait()

    async def flushed(self) -> None:
        """Waits until all messages are written, or the pipe is closed."""
        while self._waiting or self._observed is not None or self._is_writing:
            await self._written.wait()

    async def run(self) -> None:
        """Writes queued messages for ever."""
        while True:
            await self._news.wait()
            while self._waiting or self._observed is not None:
                self._is_writing = True
                await self._write(self._take())
                self._is_writing = False
                self._written.set()
                self._written = trio.Event()

    async def _write(self, messages: list[_Queued]) -> None:
        text = b"".join(_line(message) for message, _ in messages)
        try:
            await self._stdout.write(text)
        except OSError:
            self._closed = True
            self._waiting.clear()
            self._observed = None
            return
        for _, written in messages:
            written()

    def _take(self) -> list[_Queued]:
        messages: list[_Queued] = []
        while self._waiting and len(messages) < 64:
            messages.append(self._waiting.popleft())
        if not self._waiting and self._observed is not None:
            messages.append((self._observed, _nothing))
            self._observed = None
        return messages


def _line(message: Outbound) -> bytes:
    """Returns the line of a message, or of an `error` instead of a message that is too long, which none should be."""
    line = message.line()
    if len(line) <= MAX_LINE_BYTES:
        return line
    kind = type(message).__name__.lower()
    text = f"a message ({kind}) has {len(line)} bytes, and a line has at most {MAX_LINE_BYTES}: it was dropped"
    _log.error(text)
    return Error(line_number=0, message=text, code=Code.LINE_TOO_LONG).line()
