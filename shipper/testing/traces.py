"""What a plugin leaves behind, shows, and does when it is cancelled."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import trio

from shipper.plugin import Asyncio

PATIENCE = 30.0
"""Seconds that anything may take. Only what is wrong takes so long."""
MOST_STRIKES = 64
"""Instants at which a plugin is cancelled."""


def in_time() -> AbstractContextManager[trio.CancelScope]:
    """Raises TooSlowError behind that."""
    return trio.fail_after(PATIENCE)


def for_a_while() -> AbstractContextManager[trio.CancelScope]:
    """Gives up after that."""
    return trio.move_on_after(PATIENCE)


# -- left behind -------------------------------------------------------------------------------------------------------


class Traces:
    """Descriptors, threads and tasks of this process, as they are when it is made."""

    def __init__(self) -> None:
        self._before = _counts()

    async def wait_until_gone(self) -> None:
        """Raises AssertionError if there are more than before, after some seconds."""
        with for_a_while():
            while self._left():  # noqa: ASYNC110 - nobody tells when a descriptor closes
                await trio.sleep(0.01)
        assert not self._left(), f"something was left open or running: more {', '.join(self._left())} than before"

    def _left(self) -> list[str]:
        return [name for name, count in _counts().items() if count > self._before[name]]


async def with_loop(aio: Asyncio | None) -> Traces:
    """Returns the traces, with the loop of asyncio running: it starts with the first call, and stays."""
    await round_trips(aio, 1)
    return Traces()


async def round_trips(aio: Asyncio | None, count: int) -> None:
    """Let tasks and coroutines that can go on do so, for a few steps each."""
    for _ in range(count):
        await trio.lowlevel.checkpoint()
        if aio is not None:
            await aio.call(_nothing)


async def _nothing() -> None:
    """A call of the loop."""


def _counts() -> dict[str, int]:
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")]  # idle ones
    return {
        "descriptors": len(os.listdir("/dev/fd")) if Path("/dev/fd").is_dir() else 0,
        "threads": len(threads),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
    }


# -- cancelled ---------------------------------------------------------------------------------------------------------


class _Strike(trio.abc.Instrument):
    """Cancels a scope when a task and those below it have taken so many steps: it strikes where they wait then.

    Whoever shields himself from it for ever makes the check hang.
    """

    def __init__(self, task: trio.lowlevel.Task, at: int, scope: trio.CancelScope) -> None:
        self.steps = 0
        self._task, self._at, self._scope = task, at, scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._is_below(task):
            self.steps += 1
            if self.steps == self._at:
                self._scope.cancel()

    def _is_below(self, task: trio.lowlevel.Task | None) -> bool:
        while task is not None and task is not self._task:
            task = task.parent_nursery.parent_task if task.parent_nursery is not None else None
        return task is not None


async def struck(work: Callable[[], Awaitable[object]], at: int) -> bool:
    """Run it, and cancel it where it waits after its n-th step; False if it ended before. Raises what it raises."""
    scope = trio.CancelScope()
    errors: list[Exception] = []
    steps = 0

    async def run() -> None:
        nonlocal steps
        strike = _Strike(trio.lowlevel.current_task(), at, scope)
        trio.lowlevel.add_instrument(strike)
        try:
            with scope:
                await work()
        except Exception as error:
            errors.append(error)
        finally:
            trio.lowlevel.remove_instrument(strike)
            steps = strike.steps

    with in_time():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
    for error in errors:
        raise error
    return steps >= at


# -- shown -------------------------------------------------------------------------------------------------------------


class Secrets:
    """Texts that nobody may see."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text for text in texts if text]

    def check(self, *shown: str) -> None:
        """Raises AssertionError for one that a text shows."""
        for text in shown:
            assert not any(secret in text for secret in self._texts), "a secret is shown"

    @contextmanager
    def kept_from_the_log(self) -> Iterator[None]:
        """Raises AssertionError at the end of the block if the log, its exceptions included, shows one."""
        lines: list[str] = []
        handler = _Lines(lines)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)
        self.check(*lines)


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
