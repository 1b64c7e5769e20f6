"""What a member needs of its supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Host(Protocol):
    """What a member needs of its supervisor. No method blocks, and none raises."""

    def undelivered(self) -> int:
        """Returns how many events the sidecar holds, as it last reported."""
        ...

    def using(self) -> Sequence[str]:
        """Returns the ids of contents that the sidecar uses or may use: those of the ledger that are not released."""
        ...

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that the outputs make."""
        ...

    def degraded(self) -> str:
        """Returns what is wrong with this member in a sentence that changes seldom; empty if nothing is."""
        ...

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None: it needs no lease any more."""
        ...

    async def withdraw(self, ids: Sequence[str]) -> None:
        """Takes contents from the sidecar before any later `lease`; returns when that is durable."""
        ...

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger contents that are released everywhere."""
        ...

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble under its cause, in place of an earlier one; None: it is over."""
        ...

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event."""
        ...
