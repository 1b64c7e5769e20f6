"""Gathers events of many small messages into batches, so that a thousand datagrams are not a thousand transactions.

A reader waits for `room` before each step, and so while the queue is full: then at most `chunk_bytes` are gathered, and
the events of one step. The first event waits `SECONDS` for others; while a batch is being stored, the next one grows.
If processors hold events, several batches are under way at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from shipper.plugin import Batch, InputContext
from shipper_plugins.syslog.block import Block

SECONDS = 0.02
_log = logging.getLogger(__name__)
_FULL = 256 << 10
"""Bytes of a batch that is stored without waiting for more."""
_WITH_TIME = frozenset(("@timestamp",))
_WITH_HOST = _WITH_TIME | {"host"}
HELD = 500
HELD_BYTES = 8 << 20
"""The limits of batches that processors hold, and of their bytes; the next batch waits."""


class Gathering:
    """Events that are read, and not stored yet."""

    def __init__(self, context: InputContext) -> None:
        self._context = context
        self._blocks: list[Block] = []
        self._bytes = self._unsure = 0
        self._held = self._held_bytes = 0
        self._fewer = trio.Event()
        self._some, self._full, self._roomy, self._closing = trio.Event(), trio.Event(), trio.Event(), trio.Event()
        self._scope = trio.CancelScope(shield=True)

    async def room(self) -> None:
        """Waits until events may be added."""
        while self._bytes >= self._context.chunk_bytes:
            await self._roomy.wait()

    def add(self, block: Block) -> None:
        """Gathers events; call it without a checkpoint after `room`."""
        if not block.documents:
            return
        self._blocks.append(block)
        self._bytes += len(block.documents)
        self._some.set()
        if self._bytes >= min(_FULL, self._context.chunk_bytes):
            self._full.set()

    async def store(self) -> None:
        """Stores gathered events, until `close` was called and none is left, or its time is over.

        Ignores a cancel from outside: only `close` ends it. Events that are left then are lost, and logged.
        """
        with self._scope:
            async with trio.open_nursery() as emitting:
                while True:
                    await self._some.wait()
                    if not self._blocks:
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
                self._unsure + sum(block.documents.count(b"\n") for block in self._blocks),
            )

    async def _emit(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        batch, self._blocks, self._bytes = _batch(self._blocks), [], 0
        self._roomy.set()
        self._some, self._full, self._roomy = trio.Event(), trio.Event(), trio.Event()
        if self._closing.is_set():
            self._some.set()
            self._full.set()
        self._note(1, batch.count, len(batch.body))
        task_status.started()
        await self._context.emit(batch)
        self._note(-1, -batch.count, -len(batch.body))
        self._fewer.set()
        self._fewer = trio.Event()

    def _note(self, batches: int, events: int, size: int) -> None:
        self._held += batches
        self._unsure += events
        self._held_bytes += size

    def close(self, seconds: float) -> None:
        """Ends the gathering; `store` has this time for the remaining events."""
        self._closing.set()
        self._some.set()
        self._full.set()
        self._scope.deadline = trio.current_time() + seconds


def _batch(blocks: Sequence[Block]) -> Batch:
    """Returns the events of all blocks; each has a time."""
    complete = _WITH_HOST if all(block.have_hosts for block in blocks) else _WITH_TIME
    return Batch.ndjson(b"".join([block.documents for block in blocks]), complete=complete)
