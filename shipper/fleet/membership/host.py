"""What a member needs of its supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shipper.fleet.records import Undelivered, Version


class Host(Protocol):
    """What a member needs of its supervisor. No method blocks, and none raises."""

    def undelivered(self) -> Undelivered:
        """Returns the events that the sidecar holds, as it last reported."""
        ...

    def using(self) -> Sequence[str]:
        """Returns the ids of the fleet's secrets that the sidecar uses or may use: those of the ledger that are not
        released."""
        ...

    def accepted(self) -> Sequence[str] | None:
        """Returns those of these that a destination has accepted once, or that no output uses; None from a sidecar that
        does not tell."""
        ...

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        """Returns, for each of these, the forms of its content of which one is that of `publishing.essence`."""
        ...

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None: it needs no lease any more."""
        ...

    def withdraw(self, ids: Sequence[str]) -> None:
        """Withdraws secrets from the sidecar, or rebinds what needs them; before any later `lease`."""
        ...

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that the outputs make."""
        ...

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble under its cause, in place of an earlier one; None: it is over."""
        ...

    def joined(self, newest: Version | None) -> None:
        """Says that this process takes part now, and which version is the newest."""
        ...

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what the fleet has released and the sidecar no longer uses."""
        ...
