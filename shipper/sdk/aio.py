"""The bridge to asyncio: a daemon thread with a loop, for client libraries that do not support trio.

    async with open_asyncio() as aio:
        answer = await aio.call(session_post, body)     # trio → asyncio
        ...
        await aio.answer(emit, batch)                    # asyncio (a server's coroutine) → trio

Cancelling either side cancels the other and waits for its end, so nothing runs on after its caller. A result that comes
before the cancel is kept, because an answered request must not count as unanswered. asyncio tells a task of a cancel
once: where a function in trio ends with a result nevertheless, its asker meets the cancel (or its time-out) again at
the next wait, as it would in trio, and does not wait for as long as its peer likes. Objects that belong to a loop
(sessions, servers) are made and closed in calls. Neither trio-asyncio (its import fails on Python 3.14, and one stray
error ends the process) nor guest mode (it slows every step of trio) is used.

To wake a thread costs system calls, and the interpreter's lock changes hands. So what is to be called in the other loop
waits in a line, and only the first in it wakes that loop: eight requests that come together cross at once.

Before the first call there is no thread, and asyncio is not imported (15 ms): a supervisor makes no call, and neither
do outputs without a network.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

import outcome
import trio

from shipper.sdk.errors import ShipperError, forget_frames

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

# With Python's default of 5 ms a busy trio thread leaves the loop's thread about one request a second.
_SWITCH_INTERVAL = 0.0005
_TLS_BUFFER = 32 << 10
"""Bytes of the read buffer of each open TLS connection. asyncio's default of 256 KiB is nearly all that an idle
connection takes; a record of TLS has 16 KiB."""


class Line:
    """Calls that wait for the loop of another thread; `wake` has a function called there soon."""

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], object]) -> None:
        """Has it called after all that were put before. Any thread; raises what `wake` raises."""
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._wake(self._run)
            except BaseException:
                self._is_woken = False
                raise

    def _run(self) -> None:
        self._is_woken = False  # before the first is taken: what is put from now on wakes again
        while self._calls:
            try:
                self._calls.popleft()()
            except BaseException:
                self._wake(self._run)
                raise


class Asyncio:
    """An asyncio loop in another thread, from the first call on; made by `open_asyncio`."""

    def __init__(self) -> None:
        self._open = True
        self._token = trio.lowlevel.current_trio_token()
        self._to_trio = Line(self._token.run_sync_soon)
        self._to_asyncio = Line(lambda call: self._loop.call_soon_threadsafe(call))
        self._thread: threading.Thread | None = None
        self._asked: set[trio.CancelScope] = set()
        """Of each function that `ask` has run in trio, until its end is on its way."""
        self._asked_ended = trio.lowlevel.ParkingLot()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Starts it."""
        import asyncio
        from asyncio import sslproto

        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="asyncio", daemon=True)
        self._thread.start()
        return loop

    async def call(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """Runs a coroutine function in the loop; returns its result.

        Raises its exceptions. On cancel the coroutine is cancelled and its end awaited; if it returns a result
        nevertheless, that is returned. Raises RuntimeError once the loop is being closed.
        """
        if not self._open:
            raise RuntimeError("the asyncio loop is closed")
        return (await self._end(function, *args)).unwrap()

    async def _end(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> outcome.Outcome[Result]:
        """Returns how it ended. Raises the cancel, if there was one.

        Its frame holds the end, so an error is raised by its caller, which does not: error, traceback, frame and error
        would be a cycle, and what the caller had sent would wait for the collector.
        """
        import asyncio

        caller = trio.lowlevel.current_task()
        cancelled: list[Callable[[], Any]] = []
        running: list[asyncio.Task[None]] = []
        ends: list[outcome.Outcome[Result]] = []

        async def run() -> None:
            ends.append(await _captured(function, *args))

        def start() -> None:
            task = self._loop.create_task(run())
            running.append(task)
            task.add_done_callback(finished)
            if cancelled:
                task.cancel()

        def finished(_: asyncio.Task[None]) -> None:
            end = ends.pop() if ends else outcome.Error(asyncio.CancelledError())
            self._soon(trio.lowlevel.reschedule, caller, outcome.Value(end))

        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            cancelled.append(raise_cancel)
            self._to_asyncio.put(lambda: running and running[0].cancel())
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.checkpoint_if_cancelled()
        self._to_asyncio.put(start)
        end = await trio.lowlevel.wait_task_rescheduled(abort)
        if cancelled and isinstance(end, outcome.Error) and isinstance(end.error, asyncio.CancelledError):
            cancelled[0]()
        return cast(outcome.Outcome[Result], end)

    async def answer(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """From a coroutine of the loop: run an async function in trio and wait for it, with the same rules."""
        return (await self._answered(function, *args)).unwrap()

    def ask(
        self,
        ended: Callable[[outcome.Outcome[Result]], None],
        function: Callable[[*Args], Awaitable[Result]],
        *args: *Args,
    ) -> Callable[[], None]:
        """As `answer`, but without a task of the loop: returns at once, and `ended` is called there with the end.

        Returns what cancels it; `ended` is called then too. Once the loop is being closed, nothing runs any more.
        """
        scope = trio.CancelScope()

        async def ask() -> None:
            with scope:
                end = await _captured(function, *args)
            self._asked.remove(scope)
            self._to_asyncio.put(partial(ended, end))
            self._asked_ended.unpark_all()

        if not self._open:
            self._loop.call_soon(ended, outcome.Error(_cancelled()))
            return lambda: None
        self._asked.add(scope)
        self._soon(trio.lowlevel.spawn_system_task, ask)
        return lambda: self._soon(scope.cancel)

    async def _answered(self, function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> outcome.Outcome[Result]:
        """See `_end`."""
        import asyncio

        future: asyncio.Future[outcome.Outcome[Any]] = asyncio.get_running_loop().create_future()
        cancel = self.ask(future.set_result, function, *args)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:  # a server cancels, and its end cancels again
                cancelled = error
                cancel()
        end = future.result()
        if isinstance(end, outcome.Error) and (cancelled or isinstance(end.error, trio.Cancelled)):
            raise cancelled or asyncio.CancelledError
        if cancelled:
            _cancel_again()
        return cast(outcome.Outcome[Result], end)

    def _soon(self, function: Callable[..., Any], *args: Any) -> None:
        with contextlib.suppress(trio.RunFinishedError):  # the process is ending, and no task waits any more
            self._to_trio.put(partial(function, *args))

    async def close(self) -> None:
        """Stop the loop, if there is one; what still runs in it is cancelled first."""

        async def cancel_rest() -> None:
            import asyncio

            while rest := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in rest:
                    task.cancel()
                await asyncio.gather(*rest, return_exceptions=True)
            await self._loop.shutdown_asyncgens()

        self._open = False
        if self._thread is None:
            return
        with trio.CancelScope(shield=True):
            (await self._end(cancel_rest)).unwrap()
            while self._asked:
                for scope in [*self._asked]:
                    scope.cancel("the asyncio loop is closed")
                await self._asked_ended.park()
            self._to_asyncio.put(self._loop.stop)
            await trio.to_thread.run_sync(self._thread.join)
            self._loop.close()


@asynccontextmanager
async def open_asyncio() -> AsyncIterator[Asyncio]:
    """One asyncio loop in a thread, for as long as the block runs, from the first call on."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    aio = Asyncio()
    try:
        yield aio
    finally:
        await aio.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the loop until it is stopped; what ends a program elsewhere ends only the task that raised it."""
    while True:
        try:
            return loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            forget_frames(error)


def _cancelled() -> BaseException:
    import asyncio

    return asyncio.CancelledError()


def _cancel_again() -> None:
    """The task under way meets its cancel at its next wait; `asyncio.timeout` counts no more of them than before."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    task.cancel()


async def _captured(function: Callable[[*Args], Awaitable[Result]], *args: *Args) -> outcome.Outcome[Result]:
    """Captures every exception, also SystemExit, which would end the loop's thread if it ended an asyncio task.

    A cancel, or an error that is part of a contract, crosses without the frames that it has passed (`forget_frames`).
    """

    async def run() -> Result:
        return await function(*args)

    end = await outcome.acapture(run)
    if isinstance(end, outcome.Error) and (isinstance(end.error, ShipperError) or not isinstance(end.error, Exception)):
        forget_frames(end.error)
    return end
