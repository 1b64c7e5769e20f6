"""The bridge between trio and asyncio: values, errors and cancels cross it, and nothing runs on behind its caller."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import outcome
import pytest
import trio
import trio.lowlevel
import trio.testing

from shipper.sdk.aio import Asyncio, Line, open_asyncio
from shipper.sdk.errors import Later
from tests.freed import BODY, failed


@pytest.fixture
async def aio() -> AsyncIterator[Asyncio]:
    with trio.fail_after(60):
        async with open_asyncio() as opened:
            yield opened


class Steps:
    """What happened in either thread, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._token = trio.lowlevel.current_trio_token()
        self._changed = trio.Event()

    def note(self, step: str) -> None:
        self.seen.append(step)
        self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, step: str) -> None:
        while step not in self.seen:
            await self._changed.wait()


async def sleeping(steps: Steps) -> None:
    """A coroutine of asyncio that cleans up when it is cancelled."""
    steps.note("started")
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.02)
        steps.note("cleaned up")


async def sleeping_in_trio(steps: Steps) -> None:
    """A function of trio that does."""
    steps.note("started")
    try:
        await trio.sleep(60)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.02)
        steps.note("cleaned up")


async def storing(steps: Steps) -> str:
    """A function of trio that a cancel comes too late for."""
    steps.note("started")
    with trio.CancelScope(shield=True):
        await trio.sleep(0.02)
    return "stored"


async def cancelled(steps: Steps, function: Callable[..., Awaitable[object]], *args: object) -> None:
    """Call it, and cancel it when it has started."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(function, *args)
        await steps.wait_for("started")
        nursery.cancel_scope.cancel()


# -- trio asks asyncio -------------------------------------------------------------------------------------------------


async def test_a_call_returns_what_the_coroutine_returns_in_the_other_thread(aio: Asyncio) -> None:
    async def add(a: int, b: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return a + b, threading.current_thread().name

    assert await aio.call(add, 1, 2) == (3, "asyncio")


async def test_a_call_raises_what_the_coroutine_raises(aio: Asyncio) -> None:
    async def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await aio.call(fail)


async def test_a_call_raises_what_comes_before_the_first_await(aio: Asyncio) -> None:
    def fail() -> AsyncIterator[None]:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await aio.call(fail)  # type: ignore[arg-type]


async def test_a_coroutine_may_end_by_system_exit_without_taking_the_loop_with_it(aio: Asyncio) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await aio.call(leave)

    assert await aio.call(asyncio.sleep, 0, "alive") == "alive"


async def test_a_coroutine_that_is_cancelled_in_its_loop_is_an_error_and_no_cancel_of_trio(aio: Asyncio) -> None:
    async def cancel_myself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await aio.call(cancel_myself)


async def test_a_cancelled_caller_does_not_start_a_coroutine(aio: Asyncio) -> None:
    steps = Steps()

    async def run() -> None:
        steps.note("ran")

    with trio.CancelScope() as scope:
        scope.cancel()
        await aio.call(run)

    assert scope.cancelled_caught
    assert steps.seen == []


async def test_a_cancel_right_after_the_call_ends_it(aio: Asyncio) -> None:
    """Whether the coroutine was started is a race that the cancel may win or lose; it ends in any case."""
    for _ in range(200):
        ended = []

        async def run(ended: list[str] = ended) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("ended")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(aio.call, run)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

        assert ended in ([], ["ended"])


async def test_a_cancel_reaches_the_coroutine_and_waits_for_its_end(aio: Asyncio) -> None:
    steps = Steps()
    await cancelled(steps, aio.call, sleeping, steps)
    steps.note("caller goes on")

    assert steps.seen == ["started", "cleaned up", "caller goes on"]


async def test_a_result_that_beats_the_cancel_is_kept(aio: Asyncio) -> None:
    """A request that was answered must not count as unanswered."""
    steps, results = Steps(), []

    async def run() -> str:
        steps.note("started")
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "answered"

    async def call() -> None:
        results.append(await aio.call(run))
        await trio.lowlevel.checkpoint()
        results.append("not reached")

    await cancelled(steps, call)

    assert results == ["answered"]


async def test_an_error_that_beats_the_cancel_is_raised(aio: Asyncio) -> None:
    steps, errors = Steps(), []

    async def run() -> None:
        steps.note("started")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("reset") from None

    async def call() -> None:
        try:
            await aio.call(run)
        except OSError as error:
            errors.append(str(error))

    await cancelled(steps, call)

    assert errors == ["reset"]


# -- asyncio asks trio -------------------------------------------------------------------------------------------------


async def test_an_answer_is_what_the_function_returns_in_trio(aio: Asyncio) -> None:
    async def add(a: int, b: int) -> tuple[int, str]:
        await trio.lowlevel.checkpoint()
        return a + b, threading.current_thread().name

    assert await aio.call(aio.answer, add, 1, 2) == (3, threading.current_thread().name)


async def test_an_answer_raises_what_the_function_raises(aio: Asyncio) -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("no")

    async def ask() -> str:
        try:
            await aio.answer(fail)
        except LookupError as error:
            return f"caught {error}"
        return "nothing"

    assert await aio.call(ask) == "caught no"


async def test_both_ways_can_be_nested(aio: Asyncio) -> None:
    async def inner() -> str:
        return await aio.call(asyncio.sleep, 0, "deep")

    assert await aio.call(aio.answer, inner) == "deep"


async def test_an_asyncio_cancel_reaches_the_function_and_waits_for_its_end(aio: Asyncio) -> None:
    steps = Steps()

    async def ask() -> None:
        try:
            await aio.answer(sleeping_in_trio, steps)
        finally:
            steps.note("asker goes on")

    await cancelled(steps, aio.call, ask)

    assert steps.seen == ["started", "cleaned up", "asker goes on"]


async def test_a_second_cancel_does_not_end_the_wait_for_the_function(aio: Asyncio) -> None:
    """An aiohttp server cancels a request when its peer goes, and again when it is closed itself."""
    steps = Steps()
    go_on = trio.Event()

    async def function() -> str:
        steps.note("started")
        with trio.CancelScope(shield=True):
            await go_on.wait()
        steps.note("ended")
        return "stored"

    async def ask() -> str:
        tasks.append(asyncio.create_task(note_answer()))
        await asyncio.wait(tasks)
        return "the asker is cancelled" if tasks[0].cancelled() else "not"

    async def note_answer() -> None:
        steps.note(await aio.answer(function))
        await asyncio.sleep(60)

    async def cancel_thrice() -> bool:
        for _ in range(3):
            tasks[0].cancel()
            await asyncio.sleep(0.01)
        return tasks[0].done()

    async def call() -> None:
        results.append(await aio.call(ask))

    tasks: list[asyncio.Task[None]] = []
    results: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await steps.wait_for("started")
        left = await aio.call(cancel_thrice)
        go_on.set()

    assert not left
    assert steps.seen == ["started", "ended", "stored"]
    assert results == ["the asker is cancelled"]


@pytest.mark.parametrize("ask_in", ["the coroutine", "a task of it"])
async def test_a_call_that_is_cancelled_while_trio_answers_ends_at_its_next_wait(aio: Asyncio, ask_in: str) -> None:
    steps = Steps()

    async def ask() -> None:
        steps.note(await aio.answer(storing, steps))
        try:
            async with asyncio.timeout(60):
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.note("cancelled")
            raise

    async def ask_in_a_task() -> None:
        await asyncio.gather(ask())

    await cancelled(steps, aio.call, ask if ask_in == "the coroutine" else ask_in_a_task)

    assert steps.seen == ["started", "stored", "cancelled"]


async def test_a_time_out_while_trio_answers_stays_one(aio: Asyncio) -> None:
    steps = Steps()

    async def ask() -> str:
        try:
            async with asyncio.timeout(0.01):
                await aio.answer(storing, steps)
                await asyncio.sleep(60)
        except TimeoutError:
            return "timed out"
        return "not"

    assert await aio.call(ask) == "timed out"


async def test_an_answer_that_beats_the_cancel_of_its_call_is_kept(aio: Asyncio) -> None:
    steps = Steps()

    async def call() -> None:
        steps.note(await aio.call(aio.answer, storing, steps))

    await cancelled(steps, call)

    assert steps.seen == ["started", "stored"]


async def test_who_asks_without_a_task_is_told_the_end_in_the_loop_after_a_cancel_too(aio: Asyncio) -> None:
    async def ask() -> list[object]:
        loop, ends = asyncio.get_running_loop(), list[object]()
        for function, is_cancelled in ((trio.lowlevel.checkpoint, False), (trio.sleep_forever, True)):
            end = loop.create_future()
            cancel = aio.ask(end.set_result, function)
            if is_cancelled:
                cancel()
            ends.append(await end)
        return ends

    returned, cancelled = await aio.call(ask)
    assert returned == outcome.Value(None)
    assert isinstance(cancelled, outcome.Error)
    assert isinstance(cancelled.error, trio.Cancelled)


async def test_a_cancel_before_the_function_starts_is_not_lost(aio: Asyncio) -> None:
    async def ask_and_cancel() -> bool:
        task = asyncio.create_task(aio.answer(trio.sleep, 60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert await aio.call(ask_and_cancel)


async def test_an_asker_that_is_cancelled_at_once_never_asks(aio: Asyncio) -> None:
    called = []

    async def function() -> None:
        called.append(1)

    async def ask_and_cancel() -> bool:
        task = asyncio.create_task(aio.answer(function))
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert await aio.call(ask_and_cancel)
    assert called == []


async def test_a_cancel_around_the_bridge_is_a_cancel_for_the_asker_and_no_foreign_error() -> None:
    """The nursery in which the bridge was opened is cancelled: no `trio.Cancelled` may surface in the loop."""
    steps = Steps()

    async def ask() -> None:
        try:
            await aio.answer(sleeping_in_trio, steps)
        except BaseException as error:
            steps.note(type(error).__module__.split(".")[0])
            raise

    with trio.fail_after(60), trio.CancelScope() as scope:
        async with open_asyncio() as aio, trio.open_nursery() as nursery:
            nursery.start_soon(aio.call, ask)
            await steps.wait_for("started")
            scope.cancel("everything ends")

    assert steps.seen == ["started", "cleaned up", "asyncio"]


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_an_error_in_the_block_leaves_it_as_it_is() -> None:
    with pytest.raises(LookupError, match="mine"):
        async with open_asyncio():
            raise LookupError("mine")


async def test_leaving_ends_the_thread() -> None:
    before = threading.active_count()
    async with open_asyncio() as aio:
        await aio.call(asyncio.sleep, 0)

    assert "asyncio" not in {thread.name for thread in threading.enumerate()}
    assert threading.active_count() <= before + 1  # trio keeps a worker thread for the next one


async def test_leaving_cancels_what_runs_in_the_loop_and_waits_for_it() -> None:
    steps = Steps()

    async def start() -> None:
        tasks.append(asyncio.create_task(sleeping(steps)))

    tasks: list[asyncio.Task[None]] = []
    with trio.fail_after(60):
        async with open_asyncio() as aio:
            await aio.call(start)
            await steps.wait_for("started")

    assert steps.seen == ["started", "cleaned up"]


async def test_leaving_also_ends_what_a_cancelled_task_has_started() -> None:
    steps = Steps()

    async def late() -> None:
        steps.note("late started")
        try:
            await asyncio.sleep(60)
        finally:
            steps.note("late ended")

    async def run() -> None:
        steps.note("started")
        try:
            await asyncio.sleep(60)
        finally:
            tasks.append(asyncio.create_task(late()))

    async def start() -> None:
        tasks.append(asyncio.create_task(run()))

    tasks: list[asyncio.Task[None]] = []
    with trio.fail_after(60):
        async with open_asyncio() as aio:
            await aio.call(start)
            await steps.wait_for("started")

    assert all(task.done() for task in tasks)


async def test_leaving_while_a_function_answers_cancels_it_and_waits_for_it() -> None:
    steps = Steps()

    async def start() -> None:
        tasks.append(asyncio.create_task(aio.answer(sleeping_in_trio, steps)))

    tasks: list[asyncio.Task[None]] = []
    with trio.fail_after(60):
        async with open_asyncio() as aio:
            await aio.call(start)
            await steps.wait_for("started")
        steps.note("left")

    assert steps.seen == ["started", "cleaned up", "left"]


async def test_what_was_asked_for_without_a_task_has_ended_before_the_loop_is_closed() -> None:
    seen: list[str] = []

    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            seen.append("trio")

    async with open_asyncio() as aio:

        async def begin() -> None:
            aio.ask(lambda end: seen.append("asyncio"), slow)

        await aio.call(begin)
        await trio.testing.wait_all_tasks_blocked()

    assert seen == ["trio", "asyncio"]


async def test_nothing_is_asked_for_while_the_loop_is_being_closed() -> None:
    ends: list[outcome.Outcome[None]] = []

    async with open_asyncio() as aio:

        async def late() -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            aio.ask(ends.append, trio.sleep_forever)

        async def begin() -> None:
            running.append(asyncio.create_task(late()))
            await asyncio.sleep(0)

        running: list[asyncio.Task[None]] = []
        await aio.call(begin)

    (end,) = ends
    with pytest.raises(asyncio.CancelledError):
        end.unwrap()


async def test_a_cancel_of_the_block_still_ends_the_loop_in_order() -> None:
    steps = Steps()
    with trio.fail_after(60), trio.CancelScope() as scope:
        async with open_asyncio() as aio, trio.open_nursery() as nursery:
            nursery.start_soon(aio.call, sleeping, steps)
            await steps.wait_for("started")
            scope.cancel()
            await trio.sleep_forever()

    assert steps.seen == ["started", "cleaned up"]
    assert scope.cancelled_caught


async def test_a_call_after_the_end_is_an_error() -> None:
    async with open_asyncio() as aio:
        pass

    with trio.fail_after(60), pytest.raises(RuntimeError, match="closed"):
        await aio.call(asyncio.sleep, 0)


@pytest.mark.parametrize("of", ["a call", "an answer"])
async def test_an_error_is_freed_with_what_was_handed_over(aio: Asyncio, of: str) -> None:
    async def refuse(body: bytes) -> None:
        raise Later(f"{len(body)} bytes")

    args = (refuse,) if of == "a call" else (aio.answer, refuse)
    ended = await failed(lambda: aio.call(*args, bytes(BODY)), aio)

    assert ended == (f"Later: {BODY} bytes", set())


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()], ids=repr)
async def test_a_task_that_would_end_a_program_ends_no_loop(error: BaseException) -> None:
    """The loop's thread would end, and each call wait for ever."""

    async def ends() -> None:
        raise error

    async def begin() -> None:
        task = asyncio.ensure_future(ends())
        task.add_done_callback(lambda task: task.exception())

    async def five() -> int:
        return 5

    async with open_asyncio() as aio:
        await aio.call(begin)
        with trio.fail_after(60):
            assert [await aio.call(five) for _ in range(3)] == [5, 5, 5]


async def test_calls_that_come_together_wake_the_other_loop_once(aio: Asyncio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight clients of a server in asyncio, whose requests are stored by trio. Whoever is woken is busy meanwhile."""
    stored, wakes, loops = trio.Event(), list[str](), list[asyncio.AbstractEventLoop]()
    is_serving, serve_on, all_asked, is_busy, go_on = (threading.Event() for _ in range(5))

    async def store() -> None:
        await stored.wait()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loops.append(loop)
        for name, on in (("trio", aio._to_trio), ("asyncio", aio._to_asyncio)):
            monkeypatch.setattr(on, "_wake", _noted(on._wake, name, wakes))
        is_serving.set()
        serve_on.wait(30)
        asked = [loop.create_task(aio.answer(store)) for _ in range(8)]
        loop.call_soon(all_asked.set)
        await asyncio.gather(*asked)

    def work() -> None:
        is_busy.set()
        go_on.wait(30)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(aio.call, serve)
        await trio.to_thread.run_sync(is_serving.wait)
        serve_on.set()
        all_asked.wait(30)
        there = list(wakes)
        loops[0].call_soon_threadsafe(work)
        await trio.to_thread.run_sync(is_busy.wait)
        stored.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        go_on.set()

    assert there == ["trio"]
    assert wakes.count("asyncio") == 1


def _noted(wake: Callable[..., object], name: str, wakes: list[str]) -> Callable[..., object]:
    def noted(call: Callable[[], None]) -> None:
        wakes.append(name)
        wake(call)

    return noted


async def test_a_call_that_fails_keeps_none_of_those_behind_it() -> None:
    called: list[int] = []
    asked: list[Callable[[], None]] = []
    line = Line(asked.append)
    line.put(lambda: called.append(1))
    line.put(lambda: 1 / 0)
    line.put(lambda: called.append(3))
    with pytest.raises(ZeroDivisionError):
        asked[0]()
    asked[1]()

    assert len(asked) == 2
    assert called == [1, 3]


def test_a_loop_that_could_not_be_woken_is_woken_by_the_next_call() -> None:
    asked: list[Callable[[], None]] = []

    def wake(call: Callable[[], None]) -> None:
        asked.append(call)
        if len(asked) == 1:
            raise RuntimeError("the loop is closed")

    line, called = Line(wake), list[int]()
    with pytest.raises(RuntimeError):
        line.put(lambda: called.append(1))
    line.put(lambda: called.append(2))
    asked[1]()

    assert called == [1, 2]
