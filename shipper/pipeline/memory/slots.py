"""Slots: retired lanes drain a few at a time, and a lane that makes no progress gives its slot up.

There are two kinds. A lane that is not known to be answered (it was just opened, or its last session ended in trouble)
holds a slot for asking, for one request. A lane that is answered holds a slot for draining. So lanes of silent
destinations never block those that deliver. A lane whose requests have had no answer for a while gives its slot back,
of either kind, and keeps the requests: their answers count when they come. To send more, it needs a slot again.

An active lane needs no slot. A limiter knows its borrowers, so a slot cannot be taken twice. Whatever ends the need for
it (a missing answer, the end of a session, a lane that becomes active again) calls `give_back`.
"""

from __future__ import annotations

import math
from contextlib import suppress

import trio

DRAINING_AT_ONCE = 8
ASKING_AT_ONCE = 32


class Slots:
    """The slots that the lanes of a process share."""

    def __init__(self) -> None:
        self.draining = trio.CapacityLimiter(DRAINING_AT_ONCE)
        self.asking = trio.CapacityLimiter(ASKING_AT_ONCE)


class Slot:
    """The slot of one lane, or none; `is_needed`: whether the lane is retired."""

    def __init__(self, slots: Slots, *, is_needed: bool) -> None:
        self.is_needed = is_needed
        self.is_waited_for = False
        self.since = -math.inf
        """When it was last taken."""
        self._slots = slots
        self._held: trio.CapacityLimiter | None = None
        self._queue = trio.CancelScope()

    async def take_to_ask(self) -> None:
        """Waits for a slot for asking, if none is held; also returns after `leave_queue`, and where none is needed."""
        if self._held is None:
            await self._take(self._slots.asking)

    async def take_to_drain(self) -> None:
        """Exchanges a slot for asking for one for draining, after a wait; otherwise like `take_to_ask`."""
        if self._held is not self._slots.draining:
            self.give_back()
            await self._take(self._slots.draining)

    @property
    def is_of_draining(self) -> bool:
        """Whether it holds a slot for draining."""
        return self._held is self._slots.draining

    def take_at_once(self) -> bool:
        """Whether it holds a slot for draining, or needs none."""
        with suppress(trio.WouldBlock):
            if self.is_needed and self._held is not self._slots.draining:
                self._slots.draining.acquire_on_behalf_of_nowait(self)
                self._hold(self._slots.draining)
        return not self.is_needed or self._held is self._slots.draining

    async def _take(self, limiter: trio.CapacityLimiter) -> None:
        try:
            with trio.CancelScope() as self._queue:
                if self.is_needed:
                    self.is_waited_for = True
                    await limiter.acquire_on_behalf_of(self)
                    self._hold(limiter)
        finally:
            self.is_waited_for = False
        if not self.is_needed:  # it became active in the very instant in which it was its turn
            self.give_back()

    def _hold(self, limiter: trio.CapacityLimiter) -> None:
        self.give_back()
        self._held, self.since = limiter, trio.current_time()

    def give_back(self) -> None:
        """Gives the slot to another lane; harmless where none is held."""
        if self._held is not None:
            self._held.release_on_behalf_of(self)
            self._held = None

    def leave_queue(self) -> None:
        """Ends the wait for a slot, without one."""
        self._queue.cancel("the lane needs no slot any more")
