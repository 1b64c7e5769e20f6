"""What a member of a fleet needs of its supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shipper.fleet.records import Undelivered, Version
from shipper.membership import host


class Host(host.Host, Protocol):
    """What a member of a fleet needs of its supervisor. No method blocks, and none raises."""

    def undelivered(self) -> Undelivered:
        """Returns the events that the sidecar holds, as it last reported."""
        ...

    def accepted(self) -> Sequence[str] | None:
        """Returns those of `using` that a destination has accepted once, or that no output uses; None from a sidecar
        that does not tell."""
        ...

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        """Returns, for each of `using`, the forms of its content of which one is that of `publishing.essence`."""
        ...

    def withdraw(self, ids: Sequence[str]) -> None:
        """Withdraws secrets from the sidecar, or rebinds what needs them; before any later `lease`."""
        ...

    def joined(self, newest: Version | None) -> None:
        """Says that this process takes part now, and which version is the newest."""
        ...
