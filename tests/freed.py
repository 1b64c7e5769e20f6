"""Whether a failed call has left something behind that waits for Python's collector of cycles."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio
import trio.testing

from shipper.plugin import Asyncio, Batch
from shipper.sdk.errors import ShipperError

BODY = 10_000
"""From so many bytes on, a value is a part of a request."""
_PATIENCE = 10.0
"""Seconds until an error that is still there counts as left."""


class Failed(NamedTuple):
    """How a call ended: by this error, or "" if by none; and what it left in cycles."""

    error: str
    left: set[str]


async def failed(call: Callable[[], Awaitable[object]], aio: Asyncio | None = None) -> Failed:
    """Makes a call with the collector disabled, and says what only the collector would free after it.

    That is its error, batches, and bodies of requests. Connections that end with it have some steps of both loops to do
    so; what is still in use after that is not counted.
    """
    with _without_collector():
        said, error = await _called(call)
        with trio.move_on_after(_PATIENCE):
            while error is not None and error() is not None:
                await _step(aio)
                await trio.sleep(0.001)  # a thread, or the other loop, may still be leaving its frames: nobody tells
        for _ in range(5):
            await _step(aio)
        left = _cycles()
        if error is not None and error() is not None:
            left.add(type(error()).__name__)
        return Failed(said, left)


async def _step(aio: Asyncio | None) -> None:
    if aio is None:
        await trio.testing.wait_all_tasks_blocked()
    else:
        await aio.call(asyncio.sleep, 0)


async def _called(call: Callable[[], Awaitable[object]]) -> tuple[str, weakref.ref[Exception] | None]:
    try:
        await call()
    except Exception as error:
        return f"{type(error).__name__}: {error}", weakref.ref(error)
    return "", None


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def _cycles() -> set[str]:
    """Returns the kinds of what only the collector would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        there = [*gc.garbage, *gc.get_referents(*gc.garbage)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    found = {type(one).__name__ for one in there if isinstance(one, Batch | ShipperError)}
    return found | {"a body" for one in there if isinstance(one, bytes | bytearray) and len(one) >= BODY}


async def cancelled(send: Callable[[], Awaitable[object]], when: trio.Event) -> None:
    """Makes a call, and cancels it at that event."""
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await when.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        await send()
        nursery.cancel_scope.cancel()
