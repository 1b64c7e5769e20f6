"""The one bridge to asyncio: a daemon thread with a loop, for client libraries that know no trio.

    async with open_asyncio() as aio:
        answer = await aio.call(session_post, body)     # trio → asyncio
        ...
        await aio.answer(emit, batch)                    # asyncio (a server's coroutine) → trio

Cancelling either side cancels the other and waits for its end, so nothing runs on behind its caller's back; a result
that beats the cancel is kept, because a request that was answered must not count as unanswered. Objects that belong to
a loop (sessions, servers) are made and closed in calls. Neither trio-asyncio (its import fails on Python 3.14, and one
stray error ends the process) nor guest mode (it slows every step of trio) is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple, cast

import outcome
import trio

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

# With Python's default of 5 ms a busy trio thread leaves the loop's thread about one request a second.
_SWITCH_INTERVAL = 0.0005


class Asyncio:
    """A running asyncio loop in another thread; made by `open_asyncio`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="asyncio", daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """Run a coroutine function in the loop and wait for it.

        Raises what it raises. On cancel the coroutine is cancelled and its end awaited; if it returned all the same,
        that result is returned.
        """
        caller = trio.lowlevel.current_task()
        cancelled: list[Callable[[], Any]] = []
        running: list[asyncio.Task[Result]] = []

        def start() -> None:
            task = self._loop.create_task(_coroutine(function, *args))
            running.append(task)
            task.add_done_callback(finished)
            if cancelled:
                task.cancel()

        def finished(task: asyncio.Task[Result]) -> None:
            end: outcome.Outcome[Any]
            end = outcome.capture(task.result) if not task.cancelled() else outcome.Error(asyncio.CancelledError())
            self._soon(trio.lowlevel.reschedule, caller, outcome.Value(end))

        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            cancelled.append(raise_cancel)
            self._loop.call_soon_threadsafe(lambda: running and running[0].cancel())
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.checkpoint_if_cancelled()
        self._loop.call_soon_threadsafe(start)
        end = await trio.lowlevel.wait_task_rescheduled(abort)
        if cancelled and isinstance(end, outcome.Error) and isinstance(end.error, asyncio.CancelledError):
            cancelled[0]()
        return cast(Result, end.unwrap())

    async def answer(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """From a coroutine of the loop: run an async function in trio and wait for it, with the same rules."""
        future: asyncio.Future[outcome.Outcome[Any]] = asyncio.get_running_loop().create_future()
        scope = trio.CancelScope()

        async def ask_function() -> Result:
            return await function(*args)

        async def ask() -> None:
            end: outcome.Outcome[Any] = outcome.Error(asyncio.CancelledError())
            try:
                with scope:
                    end = await outcome.acapture(ask_function)
            finally:
                self._loop.call_soon_threadsafe(future.set_result, end)

        self._soon(self._nursery.start_soon, ask)
        try:
            end = await asyncio.shield(future)
        except asyncio.CancelledError:
            self._soon(scope.cancel)
            end = await future
            if isinstance(end, outcome.Error):
                raise
        return cast(Result, end.unwrap())

    def _soon(self, function: Callable[..., Any], *args: Any) -> None:
        with contextlib.suppress(trio.RunFinishedError):  # then the process is ending, and nobody waits any more
            self._token.run_sync_soon(function, *args)

    async def close(self) -> None:
        """Stop the loop; what still runs in it is cancelled first."""

        async def cancel_rest() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        with trio.CancelScope(shield=True):
            await self.call(cancel_rest)
            self._loop.call_soon_threadsafe(self._loop.stop)
            await trio.to_thread.run_sync(self._thread.join)
            self._loop.close()


@asynccontextmanager
async def open_asyncio() -> AsyncIterator[Asyncio]:
    """One asyncio loop in a thread, for as long as the block runs."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    async with trio.open_nursery() as nursery:
        aio = Asyncio(nursery)
        try:
            yield aio
        finally:
            await aio.close()
            nursery.cancel_scope.cancel()


async def _coroutine(function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
    return await function(*args)
