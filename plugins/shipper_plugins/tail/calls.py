"""Calls to a file system, in threads of one input: any of them may hang for hours, where a network is in between.

No such call is made in the thread of the event loop. A call that hangs cannot be ended; it holds one of the few threads
that its input has, and the input says which path it is at. Nobody waits for it where the input is cancelled: the thread
is left behind, and counts against the threads of the same input until it comes back, so that revisions which remove and
bring back an input whose file system hangs make no more of them.

What a thread may be using when its owner has done with it (an open file, a watch) is `Lent`: whoever is the last to
need it closes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

import trio

from shipper.plugin import in_thread

THREADS = 5
"""Of an input: its turns, its scan, and one to spare."""
SILENT = 3.0
"""Seconds after which a call that has not come back is told of."""
_LOOK = 1.0

_T = TypeVar("_T")

_limiters: WeakValueDictionary[str, trio.CapacityLimiter] = WeakValueDictionary()
"""By input; kept as long as it runs, or a call of it hangs."""
_here = threading.local()


class _Call:
    """A call under way: at which path it is, and since when (of the monotonic clock)."""

    __slots__ = ("path", "since")

    def __init__(self, path: str) -> None:
        self.path, self.since = path, time.monotonic()


def at(path: str) -> None:
    """In such a thread, before each call that may hang: it is about this path."""
    call: _Call | None = getattr(_here, "call", None)
    if call is not None:
        call.path, call.since = path, time.monotonic()


class Calls:
    """The calls of one input. Inputs with the same `key` share their threads."""

    def __init__(self, key: str) -> None:
        self._limiter = _limiters.setdefault(key, trio.CapacityLimiter(THREADS))
        self._under_way: dict[_Call, None] = {}
        self._began = trio.Event()

    async def run(self, path: str, work: Callable[[], _T]) -> _T:
        """What `work` returns or raises, in a thread; it begins at this path. On cancel it is left behind."""
        call = _Call(path)
        self._under_way[call] = None
        self._began.set()
        try:
            return await in_thread(_called, call, work, expected=OSError, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            del self._under_way[call]

    def silent(self) -> dict[str, str]:
        """The paths at which calls hang, and what to say of them."""
        latest = time.monotonic() - SILENT
        return {call.path: "its file system does not answer" for call in self._under_way if call.since <= latest}

    async def watch(self, look: Callable[[], None]) -> None:
        """Call `look` whenever what is silent may be another; for ever, and at no cost while nothing is under way."""
        while True:
            await self._began.wait()
            while self._under_way:
                await trio.sleep(_LOOK)
                look()
            self._began = trio.Event()


def _called(call: _Call, work: Callable[[], _T]) -> _T:
    call.since = time.monotonic()
    _here.call = call
    try:
        return work()
    finally:
        _here.call = None


class Lent:
    """Something that threads use in `with` blocks, and that is closed once nobody does; `end` may block like a call."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._users = 0
        self._is_over = False

    def __enter__(self) -> None:
        """Raises OSError where it is closed, or about to be."""
        with self._lock:
            if self._is_over:
                raise OSError(0, "it was closed meanwhile")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            is_last = self._is_over and not self._users
        if is_last:
            self._end()

    def close(self) -> None:
        """Now, or when the last block is left."""
        with self._lock:
            is_last = not self._is_over and not self._users
            self._is_over = True
        if is_last:
            self._end()
