"""Calls in worker threads whose expected errors keep nothing in memory.

What `trio.to_thread.run_sync` raises has passed frames of trio that hold it. That is a cycle, and all that the frames
of the function hold, such as a batch and half of its request, waits for Python's collector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from shipper.sdk.errors import ShipperError, forget_frames

Result = TypeVar("Result")
Args = TypeVarTuple("Args")


async def in_thread(
    function: Callable[[*Args], Result],
    /,
    *args: *Args,
    expected: type[Exception] | tuple[type[Exception], ...] = ShipperError,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> Result:
    """Calls a function in a worker thread, as `trio.to_thread.run_sync` does.

    An error of the `expected` kind comes without the frames that it has passed (`forget_frames`); any other is a bug,
    and they say where.
    """
    try:
        return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
    except expected as error:
        forget_frames(error)
        raise
