"""Encodes requests in threads, two at once for all lanes, since each takes some MiB for a moment; a small one here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from shipper.plugin import Batch, in_thread

_MOST = 2
_INLINE_BYTES = 4 << 10
"""Bytes of a batch from which on a thread encodes it: so many take 0.1 ms, a thread and back as long."""
_limiter = trio.lowlevel.RunVar[trio.CapacityLimiter]("encoders")

Result = TypeVar("Result")
Args = TypeVarTuple("Args")


async def encoded(batch: Batch, encode: Callable[[*Args], Result], *args: *Args) -> Result:
    """Calls a function that encodes a batch in one of these threads (`in_thread`), and returns its result."""
    if len(batch.body) <= _INLINE_BYTES:
        return encode(*args)
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_MOST)
        _limiter.set(limiter)
    return await in_thread(encode, *args, limiter=limiter)
