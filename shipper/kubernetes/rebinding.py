"""Moves the events of withdrawn contents to what has replaced them, where the settings allow that (`rebind_revoked`).

A member that was cut off under `on_lapse: hold` may hold events bound to a content that was released meanwhile. They
stay held until a person decides, or go with the content that their output uses now, to the same destination only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from shipper.fleet.host import REBIND_SECONDS, successors
from shipper.supervise.member import Member

_ATTEMPTS = 30


class Rebinding:
    """`run` it once."""

    def __init__(self, member: Callable[[], Member]) -> None:
        """`member` returns the one whose sidecar holds the events."""
        self._member = member
        self._withdrawn: set[str] = set()
        self._withdrew = trio.Event()

    def add(self, ids: Iterable[str]) -> None:
        """These contents were withdrawn."""
        self._withdrawn |= {*ids}
        self._withdrew.set()

    async def run(self) -> None:
        """Gives an order for each content as soon as the sidecar says what has replaced it; runs for ever.

        What no order can move stays held, and the status shows the commands.
        """
        while True:
            await self._withdrew.wait()
            self._withdrew = trio.Event()
            for _ in range(_ATTEMPTS):
                member = self._member()
                for source, target in successors(member.observed, self._withdrawn):
                    await member.order("rebind", {"from": source, "to": target})
                self._withdrawn &= {*member.ledger.kept}
                if not self._withdrawn:
                    break
                with trio.move_on_after(REBIND_SECONDS):
                    await self._withdrew.wait()
                    self._withdrew = trio.Event()
            self._withdrawn.clear()
