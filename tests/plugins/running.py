"""An input that runs while a block does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from shipper.plugin import Input


@asynccontextmanager
async def running(settings: Input, context: Any, *, seconds: float = 60.0) -> AsyncIterator[Any]:
    """The source of an input; it is cancelled at the end of the block, which may take so long."""
    with trio.fail_after(seconds):
        async with settings.open(context) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            yield source
            nursery.cancel_scope.cancel()
