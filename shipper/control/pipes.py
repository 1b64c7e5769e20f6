"""The pipes of standard input and standard output, as descriptors. Blocking calls run in worker threads."""

from __future__ import annotations

import os
import select

from shipper.process.environment import REAL, InThread

CHUNK = 65536


class Stdin:
    """Standard input, unbuffered: a buffered reader that is left in a read can abort the interpreter at its exit."""

    def __init__(self, descriptor: int, in_thread: InThread = REAL.in_thread) -> None:
        self._descriptor, self._in_thread = descriptor, in_thread

    async def read(self) -> bytes:
        """Waits for bytes; returns none at the end. Raises OSError. A cancel leaves a thread behind in the read."""
        return await self._in_thread(_read, self._descriptor, abandon_on_cancel=True)

    def is_hung_up(self) -> bool:
        """Whether the writing end is closed, even if unread bytes are left."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))


class Stdout:
    """Standard output; a write waits while the pipe is full."""

    def __init__(self, descriptor: int, in_thread: InThread = REAL.in_thread) -> None:
        self._descriptor, self._in_thread = descriptor, in_thread

    async def write(self, text: bytes) -> None:
        """Returns once all of it is written. Raises OSError. A cancel leaves a thread behind in the write."""
        await self._in_thread(_write, self._descriptor, text, abandon_on_cancel=True)


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:  # another process made the pipe non-blocking
            select.select((descriptor,), (), ())


def _write(descriptor: int, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(descriptor, text) :]
        except BlockingIOError:  # another process made the pipe non-blocking
            select.select((), (descriptor,), ())
