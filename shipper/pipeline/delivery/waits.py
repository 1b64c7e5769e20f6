"""The clock of a lane's waits: the instants before which something is not tried again. No I/O.

    destination   nothing is asked of it: there was trouble with all of it
    wanted        no events that it put off singly: it said for how long
    questions     no target is asked whether it takes events again: the last question was in vain

Instants are those of `trio.current_time()`; one that has passed means that nothing waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

Backoff = Callable[[], Iterator[float]]
"""Begins a series of growing waits, in seconds."""
PASSED = -math.inf


class Waits:
    """`backoff` gives the waits after trouble."""

    def __init__(self, backoff: Backoff) -> None:
        self.destination = self.wanted = self.questions = PASSED
        self._backoff, self._growing = backoff, backoff()
        self._is_waived = False
        """Whether the wait after the present session is waived."""
        self._is_of_left = False
        """Whether the destination answers, and what was left behind is not due yet."""
        self._may_hasten = self._hastened = False
        """Whether another lane's success may end the wait, and whether one ended the last wait."""

    def begin(self) -> None:
        """A session begins."""
        self._is_waived = self._may_hasten = False

    def progressed(self) -> None:
        """Events had final answers: the next wait is a short one."""
        self._growing = self._backoff()

    def after_trouble(self, now: float, *, held: bool, wanted: float | None, left: float | None) -> None:
        """Puts the destination off: for a growing wait, and not before it wants that (`wanted`: seconds).

        `left`: if it answers, when something is due that was left behind, which is the latest instant.
        """
        wait = max(next(self._growing), wanted or 0.0)
        self.destination = PASSED if self._is_waived else min(now + wait, math.inf if left is None else left)
        self._is_of_left = left is not None
        self._may_hasten = not (held or wanted or self._hastened)
        self._hastened = False

    def waive(self) -> None:
        """Tries at once, also after the present session, and begins with short waits."""
        self._growing = self._backoff()
        self._is_waived = True
        self.end()

    def end(self) -> None:
        """Tries at once."""
        self.destination = PASSED

    def forget_left(self) -> None:
        """Nothing was left behind, as far as is known."""
        self.wanted = self.questions = PASSED

    def left_is_due(self) -> None:
        """Something that was left behind is due: if all waits for that, it is tried at once."""
        if self._is_of_left:
            self.end()

    def hasten(self) -> bool:
        """The destination took events of another lane: tries at once, if it was unreachable or overloaded; whether it
        does.

        Not after a refusal, which may concern this lane's credential, nor where the destination asked for a wait. If it
        fails again all the same, the wait after that is kept.
        """
        if not self._may_hasten:
            return False
        self._may_hasten, self._hastened = False, True
        self.end()
        return True
