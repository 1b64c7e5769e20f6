"""The steps of a member that are the same for every membership; its own module of steps has the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take these released credentials from the sidecar, before any later lease: `withdrew`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove released credentials that are no longer used from the ledger: `forgot`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """Let the sidecar send until an instant; None: for ever. Then `granted`."""

    until: float | None


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do before this instant, or the next event."""

    until: float | None
