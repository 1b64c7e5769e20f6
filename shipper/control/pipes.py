"""The pipes of standard input and standard output, as descriptors. What blocks runs in worker threads."""

from __future__ import annotations

import os
import select

from shipper.process.environment import REAL, InThread

CHUNK = 65536


class Stdin:
    """Not a buffered reader: one left in a read can abort the interpreter at its exit."""

    def __init__(self, descriptor: int, in_thread: InThread = REAL.in_thread) -> None:
        self._descriptor, self._in_thread = descriptor, in_thread

    async def read(self) -> bytes:
        """Wait for some bytes; none at the end. Raises OSError. On cancel a thread is left behind in the read."""
        return await self._in_thread(_read, self._descriptor, abandon_on_cancel=True)

    def is_hung_up(self) -> bool:
        """Whether nobody can write there any more, though what was written is not read yet."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))


class Stdout:
    """Blocks while nobody reads it."""

    def __init__(self, descriptor: int, in_thread: InThread = REAL.in_thread) -> None:
        self._descriptor, self._in_thread = descriptor, in_thread

    async def write(self, text: bytes) -> None:
        """Return once all of it is written. Raises OSError. On cancel a thread is left behind in the write."""
        await self._in_thread(_write, self._descriptor, text, abandon_on_cancel=True)


def _read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:  # somebody else made the pipe non-blocking
            select.select((descriptor,), (), ())


def _write(descriptor: int, text: bytes) -> None:
    while text:
        try:
            text = text[os.write(descriptor, text) :]
        except BlockingIOError:  # somebody else made the pipe non-blocking
            select.select((), (descriptor,), ())
