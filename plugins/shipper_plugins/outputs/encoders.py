"""Encodes requests in threads, two at once for all lanes, since each takes some MiB for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from shipper.plugin import in_thread

_MOST = 2
_limiter = trio.lowlevel.RunVar[trio.CapacityLimiter]("encoders")

Result = TypeVar("Result")
Args = TypeVarTuple("Args")


async def encoded(encode: Callable[[*Args], Result], *args: *Args) -> Result:
    """Calls a function in one of these threads (`in_thread`), and returns its result."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_MOST)
        _limiter.set(limiter)
    return await in_thread(encode, *args, limiter=limiter)
