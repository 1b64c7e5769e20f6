"""The `console` output: writes events as JSON to standard error, to try out a policy.

It never writes to standard output, which belongs to the supervising agent. One batch at a time is written, in a thread
that is abandoned on cancel: a stopped terminal, or an unread pipe, delays a lane but never the process.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import orjson
import trio

from shipper.plugin import Answers, Batch, Code, Later, Output, OutputContext, Sender, in_thread
from shipper.sdk.codes import of_os_error

_STANDARD_ERROR = 2
_one_batch_at_a_time = threading.Lock()


class ConsoleOutput(Output, frozen=True, kw_only=True):
    """Writes events to standard error."""

    live: ClassVar[frozenset[str]] = Output.live | {"pretty"}

    pretty: bool = False
    """Whether an event takes several lines, indented."""

    @asynccontextmanager
    async def open(self, context: OutputContext) -> AsyncIterator[Sender]:
        """See `Output.open`."""
        yield _Console(self.pretty)


class _Console(Sender):
    def __init__(self, pretty: bool) -> None:
        self._pretty = pretty
        # A limiter of its own, since an abandoned thread keeps its token.
        self._limiter = trio.CapacityLimiter(1)

    async def send(self, batch: Batch) -> Answers:
        """See `Sender.send`; raises Later if standard error cannot be written."""
        try:
            text = self._text(batch)
            await in_thread(_write, text, expected=OSError, abandon_on_cancel=True, limiter=self._limiter)
        except OSError as error:
            raise Later(f"standard error: {error.strerror}", code=of_os_error(error, Code.UNAVAILABLE)) from error
        return Answers(batch.count)

    def _text(self, batch: Batch) -> bytes:
        if not self._pretty:
            return batch.json_lines()
        option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        return b"".join(orjson.dumps(event, option=option) for event in batch.plain())


def _write(text: bytes) -> None:
    rest = memoryview(text)
    with _one_batch_at_a_time:
        while rest:
            try:
                rest = rest[os.write(_STANDARD_ERROR, rest) :]
            except BlockingIOError:
                select.select([], [_STANDARD_ERROR], [])
