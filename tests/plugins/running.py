"""An input that runs while a block does, and waiting for what nothing tells of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from shipper.plugin import Input


async def becomes(condition: Callable[[], object]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await trio.sleep(0.001)


@asynccontextmanager
async def running(settings: Input, context: Any, *, seconds: float = 60.0) -> AsyncIterator[Any]:
    """The source of an input; it is cancelled at the end of the block, which may take so long."""
    with trio.fail_after(seconds):
        async with settings.open(context) as source, trio.open_nursery() as nursery:
            nursery.start_soon(source.run)
            yield source
            nursery.cancel_scope.cancel()
