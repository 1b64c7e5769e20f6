"""Finds the plugin that holds up the event loop: a thread inspects the stack of the main thread.

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
from collections.abc import Callable
from types import FrameType

import trio

from shipper.process import log
from shipper.process.environment import REAL, Environment

_log = log.get(__name__)

TICK_SECONDS = 0.5
"""The interval of signs of life of the loop, and of looks of the thread."""
LONG_SECONDS = 2.0
"""The time without a sign of life after which the loop counts as held up."""
REMEMBERED_SECONDS = 60.0
"""For how long a plugin is named after a stall."""

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
        self._start_thread(lambda: self._watch(main, ended), "watch the loop")
        try:
            while True:
                self._ticked = self._clock()
                await trio.sleep(TICK_SECONDS)
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
        module = self._blamed(_modules(sys._current_frames().get(main)))
        if module is None:
            return logged
        self._seen, self._until = (module, held), self._clock() + REMEMBERED_SECONDS
        if module != logged:
            _log.error("a plugin holds up the event loop", module=module, seconds=round(held, 1))
            self._on_stall(module)
        return module


def _modules(frame: FrameType | None) -> Modules:
    found = []
    while frame is not None:
        found.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return tuple(found)
