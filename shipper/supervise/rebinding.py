"""Moves the events of withdrawn credentials to what has replaced them, where settings allow that (`rebind_revoked`).

A host that was cut off under `on_lapse: hold` may hold events bound to a credential that was released meanwhile. They
stay held until a person decides, or go with the credential that their output uses now, to the same destination only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import trio

from shipper.protocol.messages import Observed
from shipper.supervise.member import Member

_SECONDS = 2.0
"""Between two attempts to find the events that are held."""
_ATTEMPTS = 30


class Rebinding:
    """`run` it once."""

    def __init__(self, member: Callable[[], Member]) -> None:
        """`member` returns the one whose sidecar holds the events."""
        self._member = member
        self._withdrawn: set[str] = set()
        self._withdrew = trio.Event()

    def add(self, ids: Iterable[str]) -> None:
        """These credentials were withdrawn, and that is durable."""
        self._withdrawn |= {*ids}
        self._withdrew.set()

    async def run(self) -> None:
        """Gives an order for each credential as soon as the sidecar says what has replaced it; runs for ever.

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
                with trio.move_on_after(_SECONDS):
                    await self._withdrew.wait()
                    self._withdrew = trio.Event()
            self._withdrawn.clear()


def successors(observed: Observed | None, withdrawn: Collection[str]) -> list[tuple[str, str]]:
    """Returns each withdrawn credential whose events are held, with the one that their output uses now."""
    found: dict[str, str] = {}
    for drain in observed.draining if observed is not None else ():
        for waiting in drain.outputs.values():
            if waiting.held and waiting.rebind_to is not None:
                found |= {id: waiting.rebind_to for id in waiting.rebind_from if id in withdrawn}
    return [(source, target) for source, target in found.items() if source != target]
