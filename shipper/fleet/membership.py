"""One member of a fleet: performs on the store what `member` decides, and offers the newest version to the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from shipper.fleet.home import Home
from shipper.fleet.records import Text, Undelivered, Version
from shipper.fleet.seal import Seals
from shipper.fleet.settings import FleetSettings
from shipper.fleet.store import Store
from shipper.process.environment import REAL, Environment
from shipper.supervise.answers import Stage
from shipper.values import Revision


class Host(Protocol):
    """What a member needs of its supervisor. No method blocks, and none raises."""

    def undelivered(self) -> Undelivered:
        """Returns the events that the sidecar holds, as it last reported."""
        ...

    def using(self) -> Sequence[str]:
        """Returns the ids of the fleet's secrets that the sidecar uses or may use: those of the ledger that are not
        released."""
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

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what the fleet has released and the sidecar no longer uses."""
        ...


@dataclass(frozen=True, slots=True)
class Offered:
    """A version to run, authentic and complete."""

    version: Version
    text: Text
    secrets: Mapping[str, bytes] = field(repr=False)
    """Contents by name; their ids are `text.secrets`."""

    @property
    def name(self) -> str:
        """`Wanted.version`: the name of the version in answers."""
        return f"{self.version.epoch}.{self.version.number}.{self.version.sha256}"


class Membership:
    """`run` it once."""

    offered: Offered | None
    """What to run; None before the store or `home` has a version for this member. It never goes back."""
    holding: bool
    """Whether the sidecar needs a lease to send; if so it must start without one (`hello.lease`)."""

    def __init__(
        self,
        store: Store,
        seals: Seals,
        settings: FleetSettings,
        home: Home,
        host: Host,
        *,
        boot: str = "",
        environment: Environment = REAL,
    ) -> None:
        """`home` is open; `boot` is the id of the machine's boot, by default the kernel's."""
        raise NotImplementedError

    async def run(self) -> None:
        """Takes part for ever, also while the store is away; never raises StoreError."""
        raise NotImplementedError

    async def changed(self) -> None:
        """Waits for the next change of `offered`."""
        raise NotImplementedError

    def answered(
        self,
        version: str,
        revision: Revision,
        stage: Stage | Literal["refused"],
        reason: str = "",
        problems: Sequence[str] = (),
    ) -> None:
        """Receives the answer of the sidecar to a version (`Offered.name`); it is kept until it is stored.

        Other names are of local revisions, and have no answer.
        """
        raise NotImplementedError

    async def leave(self) -> None:
        """Ends the membership; returns when the store has the last report and `home` remembers it.

        It goes on in the background if it is cancelled.
        """
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Returns the part of `shipper status` about the fleet, without secrets."""
        raise NotImplementedError
