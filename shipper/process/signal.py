"""A wake-up that is never lost; any number of `set`, one waiting task at a time."""

from __future__ import annotations

import trio


class Signal:
    """Like an event that a wait resets."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Returns once the signal was set after the last wait returned."""
        await self._event.wait()
        self._event = trio.Event()
