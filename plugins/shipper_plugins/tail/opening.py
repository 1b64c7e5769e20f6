"""The door of the package: how an input has files followed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from shipper.plugin import InputContext
from shipper_plugins.tail.options import Tails

if TYPE_CHECKING:
    from shipper_plugins.tail.tailer import Tailer


@asynccontextmanager
async def tailing(settings: Tails, context: InputContext) -> AsyncIterator[Tailer]:
    """A source of the lines of files; nothing here can fail, for a path that leads nowhere yet is no error."""
    tailer = (await trio.to_thread.run_sync(_tailer))(settings.options(), context)
    try:
        yield tailer
    finally:
        await tailer.close()


def _tailer() -> type[Tailer]:
    """Imported late, and in a thread: who only checks a policy, as a supervisor does, never opens an input."""
    from shipper_plugins.tail.tailer import Tailer

    return Tailer
