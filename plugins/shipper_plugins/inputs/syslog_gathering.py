"""Events of many small messages become batches, so that a thousand datagrams are not a thousand transactions.

Who reads asks for `room` before each step, and so waits while the queue is full: by then at most `chunk_bytes` are
gathered, and what one step adds. The first event waits `SECONDS` for others; while a batch is being stored, the next
one grows. Where processors hold events for a while, some batches are under way at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from shipper.plugin import Batch, Fields, InputContext, encoded

SECONDS = 0.02
_log = logging.getLogger(__name__)
_FULL = 256 << 10
"""Bytes that wait for no others."""
HELD = 500
HELD_BYTES = 8 << 20
"""Batches that processors hold at once, at most, and their bytes; one more waits."""


class Gathering:
    """What was read and is not stored yet."""

    def __init__(self, context: InputContext) -> None:
        self._context = context
        self._documents: list[bytes] = []
        self._bytes = self._unsure = 0
        self._held = self._held_bytes = 0
        self._fewer = trio.Event()
        self._some, self._full, self._roomy, self._closing = trio.Event(), trio.Event(), trio.Event(), trio.Event()
        self._scope = trio.CancelScope(shield=True)

    async def room(self) -> None:
        """Wait until something may be added."""
        while self._bytes >= self._context.chunk_bytes:
            await self._roomy.wait()

    def add(self, events: Sequence[Fields]) -> None:
        """Gather events; to be called in one step with what `room` allowed."""
        if not events:
            return
        documents = encoded(events)
        self._documents += documents
        self._bytes += sum(map(len, documents))
        self._some.set()
        if self._bytes >= min(_FULL, self._context.chunk_bytes):
            self._full.set()

    async def store(self) -> None:
        """Store what is gathered, until `close` was called and nothing is left or its time is over.

        A cancel from outside is not heeded: only `close` ends it. What is left then is lost, and logged.
        """
        with self._scope:
            async with trio.open_nursery() as emitting:
                while True:
                    await self._some.wait()
                    if not self._documents:
                        break
                    with trio.move_on_after(SECONDS):
                        await self._full.wait()
                    while self._held >= HELD or self._held_bytes >= HELD_BYTES:
                        await self._fewer.wait()
                    if self._context.is_held:
                        await emitting.start(self._emit)
                    else:
                        await self._emit()
        if self._scope.cancelled_caught:
            _log.warning(
                "input %s: %d messages that were read could not be stored before it ended",
                self._context.name,
                self._unsure + len(self._documents),
            )

    async def _emit(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        documents, size, self._documents, self._bytes = self._documents, self._bytes, [], 0
        self._roomy.set()
        self._some, self._full, self._roomy = trio.Event(), trio.Event(), trio.Event()
        if self._closing.is_set():
            self._some.set()
            self._full.set()
        self._note(1, len(documents), size)
        task_status.started()
        await self._context.emit(Batch.documents(documents))
        self._note(-1, -len(documents), -size)
        self._fewer.set()
        self._fewer = trio.Event()

    def _note(self, batches: int, events: int, size: int) -> None:
        self._held += batches
        self._unsure += events
        self._held_bytes += size

    def close(self, seconds: float) -> None:
        """Nothing will be added any more; `store` has so much time for what is there."""
        self._closing.set()
        self._some.set()
        self._full.set()
        self._scope.deadline = trio.current_time() + seconds
