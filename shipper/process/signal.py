"""A wake-up that is never lost: set any number of times, waited for by one task at a time."""

from __future__ import annotations

import trio


class Signal:
    """Unlike an event it is used again and again: a wait takes the signal with it."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Return once the signal was set after the last wait returned."""
        await self._event.wait()
        self._event = trio.Event()
