"""What every member needs of its supervisor; each membership needs some more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Host(Protocol):
    """What every member needs of its supervisor. No method blocks, and none raises."""

    def using(self) -> Sequence[str]:
        """Returns the ids of the shared credentials that the sidecar uses or may use: those of the ledger that are not
        released."""
        ...

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that the outputs make."""
        ...

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None: it needs no lease any more."""
        ...

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what is released everywhere and the sidecar no longer uses."""
        ...

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble under its cause, in place of an earlier one; None: it is over."""
        ...
