"""Released secrets that the sidecar of a member has to give up: withdrawn while it uses them, and forgotten then."""

from __future__ import annotations

from collections.abc import Iterable

from shipper.fleet.member.head import KnownHead
from shipper.membership.steps import Forget, Withdraw


class Withdrawals:
    """The ids that were withdrawn and forgotten, each once; a secret that the head names again counts anew."""

    def __init__(self, known: KnownHead) -> None:
        self._known = known
        self._withdrawn: frozenset[str] = frozenset()
        self._forgotten: frozenset[str] = frozenset()

    def step(self, using: frozenset[str], registered: int | None) -> Withdraw | Forget | None:
        """Returns the next step, if there is one; `registered` is the epoch of the report in the store."""
        released = self._known.released
        if ids := using & (released | self._known.unnamed(using, registered)) - self._withdrawn:
            return Withdraw(tuple(sorted(ids)))
        if ids := released - using - self._forgotten:
            return Forget(tuple(sorted(ids)))
        return None

    def saw_head(self, registered: int | None) -> None:
        """Another head is known."""
        released = self._known.released
        self._withdrawn &= released | self._known.unnamed(self._withdrawn, registered)
        self._forgotten &= released

    def withdrew(self, ids: Iterable[str]) -> None:
        self._withdrawn |= frozenset(ids)

    def forgot(self, ids: Iterable[str]) -> None:
        self._forgotten |= frozenset(ids)
