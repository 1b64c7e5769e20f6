"""Cancels at the waits of coroutines in asyncio's loop.

A trio task that is cancelled in `Asyncio.call` has mostly cancelled the coroutine before it has begun. So these strikes
count the waits of the coroutine itself. While one is made, the loop stands still: nothing that the coroutine waits for
comes before the cancel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, cast

import trio

from shipper.plugin import Asyncio
from shipper.testing.connections import current, follow
from shipper.testing.traces import PATIENCE

Result = TypeVar("Result")
Args = TypeVarTuple("Args")


class _Strike:
    """Cancels a scope when coroutines have waited so many times."""

    def __init__(self, at: int) -> None:
        self.scope = trio.CancelScope()
        self.waits = 0
        self.complaint: str | None = None
        self._at = at
        self._token = trio.lowlevel.current_trio_token()

    @property
    def is_made(self) -> bool:
        return self.waits >= self._at

    def waits_again(self) -> None:
        """From the thread of the loop, which stops until the cancel is on its way."""
        self.waits += 1
        if self.waits == self._at:
            trio.from_thread.run_sync(self.scope.cancel, trio_token=self._token)

    def swallowed(self, what: str) -> None:
        self.complaint = (
            f"cancelled at wait {self._at} in asyncio's loop, its coroutine caught CancelledError and {what}, though a "
            "cancel ends it; let asyncio.CancelledError pass, or raise it again"
        )


async def struck_in_loop(work: Callable[[Asyncio], Awaitable[object]], aio: Asyncio, at: int) -> bool:
    """Run it, and cancel it where its coroutines wait for the n-th time; False if it ended before.

    Raises what it raises, and AssertionError where a coroutine swallows the cancel.
    """
    strike = _Strike(at)
    try:
        with strike.scope:
            await work(_proxy(aio, strike))
    finally:
        if strike.complaint is not None:
            raise AssertionError(strike.complaint)
    return strike.is_made


def watched(aio: Asyncio) -> Asyncio:
    """The same loop; what is connected in it is noted (see `connections`)."""
    return _proxy(aio, None)


def _proxy(aio: Asyncio, strike: _Strike | None) -> Asyncio:
    return cast(Asyncio, _Proxy(aio, strike))


class _Proxy:
    """An `Asyncio` that sees the steps of its calls."""

    def __init__(self, aio: Asyncio, strike: _Strike | None) -> None:
        self._aio, self._strike = aio, strike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._aio, name)

    async def call(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """See `Asyncio.call`."""
        seen = current()

        async def run() -> Result:
            follow(seen)
            awaited = function(*args)
            return await (awaited if self._strike is None else _Steps(awaited, self._strike))

        return await self._aio.call(run)


class _Steps(Awaitable[Result]):
    """Something awaited, step by step."""

    def __init__(self, awaited: Awaitable[Result], strike: _Strike) -> None:
        self._awaited, self._strike = awaited, strike
        self._patience: asyncio.TimerHandle | None = None
        self._is_late = False

    def __await__(self) -> Generator[Any, Any, Result]:
        steps = self._awaited.__await__()
        try:
            result = yield from self._each(steps)
            if self._patience is not None:
                self._strike.swallowed("returned")
            return result
        finally:
            if self._patience is not None:
                self._patience.cancel()

    def _each(self, steps: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                wish = resume()
            except StopIteration as end:
                return cast(Result, end.value)
            self._strike.waits_again()
            try:
                value = yield wish
            except BaseException as error:
                self._meet(error, steps)
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, value)

    def _meet(self, error: BaseException, steps: Generator[Any, Any, Result]) -> None:
        """Cancels before the strike are the coroutine's own, such as those of a time-out. Ends one that goes on."""
        if self._is_late:
            self._strike.swallowed("went on")
            with suppress(RuntimeError):  # it waits even now
                steps.close()
            raise error
        if isinstance(error, asyncio.CancelledError) and self._strike.is_made and self._patience is None:
            task = asyncio.current_task()
            assert task is not None
            self._patience = asyncio.get_running_loop().call_later(PATIENCE, self._end, task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._is_late = True
        task.cancel()
