"""What the agent of a member is to run: the newest vector, or the one that an earlier process has kept."""

from __future__ import annotations

import trio

from shipper.kubernetes.member.machine import Member
from shipper.kubernetes.member.steps import Vector

HASTE = 1.0
"""Seconds from the start of a process for which the API server may give something newer than what is kept."""


class Offers:
    """The newest offer; it never goes back."""

    def __init__(self) -> None:
        self.newest: Vector | None = None
        self._late = False
        """Whether the API server had its chance to give something newer than what is kept."""
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Waits for the next offer."""
        await self._changed.wait()

    def offer(self, vector: Vector) -> None:
        """Offers a vector, which is durable and announced."""
        self.newest = vector
        self._changed.set()
        self._changed = trio.Event()

    def wait_no_longer(self) -> None:
        """The API server had its chance."""
        self._late = True

    def offer_kept(self, member: Member) -> None:
        """Offers what an earlier process has run, if nothing newer came: with it the sidecar runs, whatever the API
        server does."""
        if self._late and self.newest is None and (kept := member.running.kept) is not None:
            self.offer(kept)
