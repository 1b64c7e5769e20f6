"""What the parts of a process get from the machine: clocks, randomness, threads, and memory that is given back.

`sidecar.Outside` holds one for the whole process, and the sidecar gives it to the parts that it opens. Timers are those
of trio, whose clock is an argument of `trio.run`.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

import msgspec
import trio

from shipper.process import memory
from shipper.sdk.threads import in_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Clock = Callable[[], float]
"""Returns seconds. Any thread."""
Entropy = Callable[[int], bytes]
"""Returns so many bytes that nobody can guess. Any thread."""
ToLoop = Callable[..., None]
"""Has a function called in the event loop soon, with these arguments. Any thread."""
StartThread = Callable[[Callable[[], None], str], None]
"""Calls a function in a thread of this name, which does not keep the process from ending."""


class InThread(Protocol):
    """Calls a function in a worker thread, as `shipper.sdk.threads.in_thread` does."""

    async def __call__(
        self,
        sync_fn: Callable[[Unpack[Ts]], T],
        /,
        *args: *Ts,
        abandon_on_cancel: bool = False,
        limiter: trio.CapacityLimiter | None = None,
    ) -> T: ...


def boottime() -> float:
    """The time in seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def to_loop() -> ToLoop:
    """The way from other threads to the event loop that runs here; after its end, calls have no effect."""
    token = trio.lowlevel.current_trio_token()

    def soon(function: Callable[..., object], *args: Any) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(function, *args)

    return soon


def start_thread(function: Callable[[], None], name: str) -> None:
    """See `StartThread`."""
    threading.Thread(target=function, name=name, daemon=True).start()


class Environment(msgspec.Struct, frozen=True):
    """The machine's own, unless others are given."""

    wall: Clock = time.time
    """Since 1970."""
    monotonic: Clock = time.monotonic
    """Goes only forward."""
    boottime: Clock = boottime
    entropy: Entropy = os.urandom
    draw: random.Random = msgspec.field(default_factory=random.Random)
    """For what need not be secret: how long to wait."""
    in_thread: InThread = in_thread
    start_thread: StartThread = start_thread
    to_loop: Callable[[], ToLoop] = to_loop
    give_back: Callable[[], None] = memory.give_back
    """Gives memory that is free back to the kernel."""


REAL = Environment()
