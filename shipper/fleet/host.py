"""What a member of a fleet needs of its supervisor: figures, the lease, and its secrets. No method waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from shipper.fleet.membership.troubles import APART, HELD, OUT, REFUSED, SLOW, TAKEN, UNREACHABLE, UNSAVED
from shipper.fleet.records import Undelivered, Version
from shipper.fleet.settings import FleetSettings
from shipper.membership.agent_host import AgentHost
from shipper.policy.registry import Registry
from shipper.supervise.questions import Status
from shipper.supervise.report import Report
from shipper.supervise.secrets import essences


class Host(AgentHost):
    """Implements `membership.Host`."""

    kind = "fleet"
    unleased = (UNREACHABLE, REFUSED, SLOW, UNSAVED, APART, TAKEN, OUT, HELD)

    def __init__(self, report: Report, registry: Registry, settings: FleetSettings) -> None:
        super().__init__(report, registry, holds=settings.on_lapse == "hold", rebinds=settings.rebind_revoked)
        self._settings = settings
        self._withdrawn: set[str] = set()
        """What is not durable yet."""
        self._withdrew = trio.Event()

    def undelivered(self) -> Undelivered:
        """Returns the events that the sidecar held when it was heard last."""
        return Undelivered(*self._member.held)

    def using(self) -> Sequence[str]:
        """Returns the ids of the fleet's secrets that the sidecar uses or may use."""
        return sorted(self._used())

    def accepted(self) -> Sequence[str] | None:
        """Returns those of these that a destination has accepted once, or that no output uses; None from a sidecar that
        does not tell."""
        ledger = self._member.ledger
        return [id for id in self.using() if not ledger.kept[id].is_awaited] if ledger.tells_accepted else None

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        """Returns, for each of these, the forms in which the publisher may know its content."""
        kept = self._member.ledger.kept
        return {id: essences(kept[id].credential) for id in self.using()}

    def withdraw(self, ids: Sequence[str]) -> None:
        """Takes secrets from the sidecar, before any later lease; later their events go with the successor, where that
        is configured."""
        self._member.withdraw(ids)
        self._withdrawn |= {*ids}
        self._withdrew.set()

    @staticmethod
    def code_of(cause: str) -> str:
        """Returns the code of a trouble; its cause may have an id, too."""
        return cause.partition(" ")[0]

    @staticmethod
    def in_words(cause: str) -> str:
        """Returns the cause of a trouble for people."""
        code, *of = cause.removeprefix("fleet_").split(" ")
        return " ".join(["fleet:", code if of else code.replace("_", " "), *of])

    def joined(self, newest: Version | None) -> None:
        """Reports that this host takes part now."""
        fields = {"fleet": self._settings.name, "name": self._settings.member}
        self.say("fleet_joined", {**fields, "version": None if newest is None else str(newest)})

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what the fleet has released and the sidecar no longer uses."""
        for id in ids:
            if (kept := self._member.ledger.kept.get(id)) is not None and kept.released:
                self.say("fleet_released", {"credential": id, "sources": kept.sources})
        super().forget(ids)

    async def status(self) -> Mapping[str, Any]:
        """Returns what `shipper status` says of this host, with its state directory for commands to copy."""
        said = await self._member.answer(Status())
        return {**said, "supervisor": {**said["supervisor"], "directory": str(self._member.state.absolute())}}

    async def run(self) -> None:
        """Makes each withdrawal durable, for a later process without leases; then has its events moved, where that is
        configured. Runs for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._rebinding.run)
            while True:
                await self._withdrew.wait()
                self._withdrew, withdrawn = trio.Event(), {*self._withdrawn}
                await self._member.save()
                self._withdrawn -= withdrawn
                if self._rebinds:
                    self._rebinding.add(withdrawn)
