"""What a member of Kubernetes needs of its supervisor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shipper.membership import host


class Host(host.Host, Protocol):
    """What a member of Kubernetes needs of its supervisor. No method raises, and none but `withdraw` waits."""

    def undelivered(self) -> int:
        """Returns how many events the sidecar holds, as it last reported."""
        ...

    def degraded(self) -> str:
        """Returns what is wrong with this member in a sentence that changes seldom; empty if nothing is."""
        ...

    async def withdraw(self, ids: Sequence[str]) -> None:
        """Takes contents from the sidecar before any later `lease`; returns when that is durable."""
        ...

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event."""
        ...
