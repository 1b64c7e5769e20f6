"""What the agent of a member is to run: the newest offer. What is kept from before is the affair of each membership."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

Offer = TypeVar("Offer")

HASTE = 1.0
"""Seconds from the start of a process for which there may be something newer than what an earlier one has kept."""


class Offers(Generic[Offer]):
    """The newest offer; it never goes back."""

    def __init__(self) -> None:
        self.newest: Offer | None = None
        self._late = False
        """Whether there was the chance of something newer than what is kept."""
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Waits for the next offer."""
        await self._changed.wait()

    def wait_no_longer(self) -> None:
        """There was the chance of something newer."""
        self._late = True

    def give(self, offer: Offer) -> None:
        """Offers this, which is durable."""
        self.newest = offer
        self._changed.set()
        self._changed = trio.Event()
