"""What a lane shows: what is wrong, for how long, and whether only a person can mend it."""

from __future__ import annotations

from collections.abc import Callable

from shipper.process import log
from shipper.sdk.codes import Code, Why, checked

STALLED_SECONDS = 10.0
"""Seconds without progress after which a lane with something to deliver is not healthy."""


class Shown:
    """`on_change` is called when the problem changes."""

    def __init__(self, on_change: Callable[[], None], now: float) -> None:
        self.problem: str | None = None
        self.code: str = Code.OK
        """The code of the problem."""
        self.is_held = False
        """Whether only a person or a supervisor can end `problem`: a refusal, or `hold`."""
        self.hold: Why | None = None
        """What holds its events, whatever its destination answers: a lease, or a credential; `problem` shows it."""
        self.ill_since: float | None = None
        self._on_change = on_change
        self._own: Why | None = None
        """What the lane has reported itself."""
        self._notice: Why | None = None
        """What its output reports, though the lane delivers."""
        self._done: tuple[int, Why | None] = 0, None
        self._moved = now
        """When the lane was last seen idle, making progress, or with a reported problem."""

    def report(self, now: float, why: Why | None, *, held: bool = False) -> None:
        """What is wrong with the lane now; None: nothing is."""
        self.is_held, self.hold, self._own = held, None, why
        self.ill_since = None if why is None else self.ill_since or now
        self._show()

    def report_hold(self, now: float, hold: Why) -> None:
        """What holds its events."""
        self.report(now, hold, held=True)
        self.hold = hold

    def notice(self, text: str | None, code: str) -> None:
        """What its output reports; see `OutputContext.notice`."""
        self._notice = None if text is None else Why(log.redacted(text), checked(code))
        self._show()

    def _show(self) -> None:
        problem, code = self._own or self._notice or (None, Code.OK)
        if (problem, code) != (self.problem, self.code):
            self.problem, self.code = problem, code
            self._on_change()

    def stalled(self, now: float, done: int, *, holds_events: bool, queues: str) -> Why | None:
        """Returns what to report if it has delivered nothing for long, though it holds events, and nothing else is
        reported; `done` are its final answers so far. `queues`, what it waits for, may have changed since the last
        look."""
        progress = done, self._own
        if progress != self._done or not holds_events:
            self._done, self._moved = progress, now
        is_said = self._own is not None and self._own.code != Code.NO_PROGRESS
        if is_said or now - self._moved <= STALLED_SECONDS:
            return None
        return Why(f"nothing was delivered for more than {STALLED_SECONDS:g} s{queues}", Code.NO_PROGRESS)
