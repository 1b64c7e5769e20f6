"""Who holds up the event loop: a thread looks where the main thread is while nothing else runs there.

Everything of the process runs in one thread, so a plugin that computes, waits or sleeps there without a checkpoint
stops the others, their answers and the heartbeat. It cannot be stopped from outside; it can be named. The thread logs
it while it lasts, as only a thread can, and remembers it for some time, since an observation comes after.

A process that gets no processor, or sleeps with the machine, holds nothing up: then the thread is late itself. So it is
where a library computes in C without letting other threads run: that is not seen.
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
"""How often the loop shows that it runs, and the thread looks."""
LONG_SECONDS = 2.0
"""Without a sign of the loop, after which it is held up."""
REMEMBERED_SECONDS = 60.0
"""For how long a plugin that held it up is named."""

Modules = tuple[str, ...]
"""Of the main thread's frames, the innermost first."""


class Stalls:
    """`blamed` says which of the modules that the main thread is in is a plugin's; None: none of them.

    It is called in the thread. `on_stall` is called there too, for each module that is found.
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
        """For how long it did."""
        return 0.0 if self._seen is None else self._seen[1]

    async def run(self) -> None:
        """Show that the loop runs, and look after it, until cancelled."""
        ended, main = threading.Event(), threading.get_ident()
        self._start_thread(lambda: self._watch(main, ended), "watch the loop")
        try:
            while True:
                self._ticked = self._clock()
                await trio.sleep(TICK_SECONDS)
        finally:
            ended.set()

    def _watch(self, main: int, ended: threading.Event) -> None:
        told: str | None = None
        looked = self._clock()
        while not ended.wait(TICK_SECONDS):
            before, looked = looked, self._clock()
            held = looked - self._ticked
            if held < LONG_SECONDS:
                told = None
            elif looked - before < 2 * TICK_SECONDS:
                told = self._look(main, held, told)

    def _look(self, main: int, held: float, told: str | None) -> str | None:
        """Note who is at fault now, and log it once for each stall; returns whom it has logged."""
        module = self._blamed(_modules(sys._current_frames().get(main)))
        if module is None:
            return told
        self._seen, self._until = (module, held), self._clock() + REMEMBERED_SECONDS
        if module != told:
            _log.error("a plugin holds up the event loop", module=module, seconds=round(held, 1))
            self._on_stall(module)
        return module


def _modules(frame: FrameType | None) -> Modules:
    found = []
    while frame is not None:
        found.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return tuple(found)
