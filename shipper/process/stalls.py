"""Finds the plugin that holds up the event loop: a thread inspects the stack of the main thread.

Several units may use one plugin. The task that runs says which of them it was: `unit` is set in the tasks of a unit,
and so in all that they start.

The whole process runs in one thread, so a plugin that computes, waits or sleeps there without a checkpoint stops all
others, their answers and the heartbeat. It cannot be stopped from outside; it can be named. The thread logs it during
the stall, and remembers it for some time, for the next observation.

If the process gets no CPU time, or sleeps with the machine, the thread is late too and blames nobody. So it is where a
library computes in C without releasing the interpreter lock: that is not found.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType

import trio

from shipper.process import log
from shipper.process.environment import REAL, Environment
from shipper.process.ticks import tick

_log = log.get(__name__)

TICK_SECONDS = 0.5
"""The interval of signs of life of the loop, and of looks of the thread."""
LONG_SECONDS = 2.0
"""The time without a sign of life after which the loop counts as held up."""
REMEMBERED_SECONDS = 60.0
"""For how long a plugin is named after a stall."""

unit: ContextVar[str] = ContextVar("unit")
"""The unit for which a task runs, such as `inputs.app`."""

Modules = tuple[str, ...]
"""The modules of the main thread's frames, innermost first."""


class Stalls:
    """`blamed` returns the module of a plugin among those of the main thread's stack, or None.

    It is called in the watching thread, as is `on_stall` for each module that is found.
    """

    def __init__(
        self,
        blamed: Callable[[Modules], str | None],
        on_stall: Callable[[str], None] = lambda module: None,
        *,
        environment: Environment = REAL,
    ) -> None:
        self._clock, self._start_thread = environment.monotonic, environment.start_thread
        self._blamed, self._on_stall = blamed, on_stall
        self._ticked = math.inf
        self._seen: tuple[str, float] | None = None
        self._until = -math.inf
        self._root: trio.lowlevel.Task | None = None
        self.unit: str | None = None
        """The unit whose task held up the loop, if that is known."""

    @property
    def module(self) -> str | None:
        """The plugin's module that held up the loop lately."""
        return self._seen[0] if self._seen is not None and self._clock() < self._until else None

    @property
    def seconds(self) -> float:
        """How long it held up the loop."""
        return 0.0 if self._seen is None else self._seen[1]

    async def run(self) -> None:
        """Gives signs of life of the loop, and runs the watching thread, until cancelled."""
        ended, main = threading.Event(), threading.get_ident()
        self._root = trio.lowlevel.current_root_task()
        self._start_thread(lambda: self._watch(main, ended), "watch the loop")
        try:
            while True:
                self._ticked = self._clock()
                await tick(TICK_SECONDS)
        finally:
            ended.set()

    def _watch(self, main: int, ended: threading.Event) -> None:
        logged: str | None = None
        looked = self._clock()
        while not ended.wait(TICK_SECONDS):
            before, looked = looked, self._clock()
            held = looked - self._ticked
            if held < LONG_SECONDS:
                logged = None
            elif looked - before < 2 * TICK_SECONDS:
                logged = self._look(main, held, logged)

    def _look(self, main: int, held: float, logged: str | None) -> str | None:
        """Records the module at fault, and logs it once for each stall; returns the module that is logged."""
        stack = list(_stack(sys._current_frames().get(main)))
        module = self._blamed(tuple([str(frame.f_globals.get("__name__", "")) for frame in stack]))
        if module is None:
            return logged
        self.unit = self._unit_of(stack)
        self._seen, self._until = (module, held), self._clock() + REMEMBERED_SECONDS
        if module != logged:
            _log.error("a plugin holds up the event loop", module=module, unit=self.unit, seconds=round(held, 1))
            self._on_stall(module)
        return module

    def _unit_of(self, stack: list[FrameType]) -> str | None:
        """Returns the unit of the task that runs: the one whose outermost frame is in the stack."""
        frames = set(map(id, stack))
        try:
            running = (task for task in _tasks(self._root) if id(getattr(task.coro, "cr_frame", None)) in frames)
            return next((task.context.get(unit) for task in running), None)
        except RuntimeError:  # the loop has gone on, and the tasks have changed meanwhile
            return None


def _tasks(root: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    """Yields a task, and all that it and its tasks have started."""
    left = [] if root is None else [root]
    while left:
        task = left.pop()
        yield task
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields the frames of a thread, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back
