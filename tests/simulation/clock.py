"""Virtual time: where no task can run, it is at once the next moment at which one can.

trio's `MockClock` jumps too, but asks the selector first, turns the loop once more to find that nothing came, and asks
for statistics to learn how far to jump; a pause by `trio.sleep` is a cancel scope, a cancel and an exception. A world
has some 250 jumps and 470 pauses, and nothing of it comes from outside; so here the loop's question how long it may
sleep is the jump itself, and a pause is an alarm: an entry in a heap, and a task that is rescheduled.

The selector is looked at now and then, for a Ctrl-C, and where there is nothing else to wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any
from unittest import mock

import trio

LOOKS_OUTSIDE_EVERY = 1000


class Alarm:
    """Wakes the one task that waits for it: at its time, or when it is rung before."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Until it rings; it may ring only once more for each wait."""
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def ring(self) -> None:
        """Wake the task; nothing happens if none waits any more."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def _give_up(self, raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Clock(trio.abc.Clock):
    """For one run of trio, which must be in `at_work`; it calls `exhausted` after so many turns of trio's loop."""

    def __init__(self, most_turns: int, exhausted: Callable[[], None]) -> None:
        self.now = 0.0
        self._turns_left, self._exhausted = most_turns, exhausted
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._alarms_set = 0
        self._is_lost = False
        """Nothing here will ever wake a task; trio itself may, by its selector, when a run ends."""

    async def wait(self, alarm: Alarm, seconds: float) -> None:
        """Until it rings, or for so long: a cancellable wait."""
        if seconds < math.inf:
            self._alarms_set += 1
            heappush(self._alarms, (self.now + seconds, self._alarms_set, alarm))
        await alarm.wait()

    # -- for trio ------------------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """trio asks this when no task can run before `deadline`: it is time for that, or for the next alarm."""
        alarms = self._alarms
        first = min(deadline, alarms[0][0]) if alarms else deadline
        if first == math.inf:
            self._is_lost = True
            return 0.0
        self.now = max(self.now, first)
        while alarms and alarms[0][0] <= self.now:
            heappop(alarms)[2].ring()
        return 0.0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """trio's loop does not look at the selector, within this block."""
        clock = self

        class Nothing(trio._core._run.TheIOManager):  # type: ignore[name-defined,misc]
            def get_events(self, timeout: float) -> Any:
                return super().get_events(0) if clock._turn() else ()

        with (
            mock.patch.object(trio._core._run, "TheIOManager", Nothing),
            mock.patch.object(trio._core._run, "Instruments", _nobody),
        ):
            yield

    def _turn(self) -> bool:
        """Count a turn of the loop; whether it is time to look outside."""
        self._turns_left -= 1
        if self._turns_left == 0:
            self._exhausted()
        was_lost, self._is_lost = self._is_lost, False
        return was_lost or self._turns_left % LOOKS_OUTSIDE_EVERY == 0


def _nobody(instruments: object) -> dict[str, Any]:
    """Who watches trio: it asks for each of them at each step, of its own slow kind of mapping."""
    return {}
