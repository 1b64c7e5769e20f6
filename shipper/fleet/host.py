"""What a member of a fleet needs of its supervisor: figures, the lease, and its secrets. No method waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from shipper.fleet.membership.troubles import APART, HELD, OUT, REFUSED, SLOW, TAKEN, UNREACHABLE, UNSAVED
from shipper.fleet.records import Undelivered, Version
from shipper.fleet.settings import FleetSettings
from shipper.membership.longest import longest_request
from shipper.policy.registry import Registry
from shipper.supervise.agent import Agent
from shipper.supervise.member import Member
from shipper.supervise.questions import Status
from shipper.supervise.rebinding import Rebinding
from shipper.supervise.report import Report
from shipper.supervise.secrets import essences

UNLEASED = (UNREACHABLE, REFUSED, SLOW, UNSAVED, APART, TAKEN, OUT, HELD)
"""Causes of troubles that keep a host from a lease."""


class Host:
    """Implements `membership.Host` on an agent with one member; `agent` is set before the membership runs."""

    agent: Agent

    def __init__(self, report: Report, registry: Registry, settings: FleetSettings) -> None:
        self._report, self._registry, self._settings = report, registry, settings
        self._told: dict[str, str] = {}
        self._rebinding = Rebinding(lambda: self._member)
        self._withdrawn: set[str] = set()
        """What is not durable yet."""
        self._withdrew = trio.Event()
        self._longest = 0.0

    @property
    def _member(self) -> Member:
        (member,) = self.agent.members
        return member

    def undelivered(self) -> Undelivered:
        """Returns the events that the sidecar held when it was heard last."""
        return Undelivered(*self._member.held)

    def using(self) -> Sequence[str]:
        """Returns the ids of the fleet's secrets that the sidecar uses or may use."""
        return sorted(id for id, kept in self._member.ledger.kept.items() if kept.shared and not kept.released)

    def accepted(self) -> Sequence[str] | None:
        """Returns those of these that a destination has accepted once, or that no output uses; None from a sidecar that
        does not tell."""
        ledger = self._member.ledger
        return [id for id in self.using() if not ledger.kept[id].is_awaited] if ledger.tells_accepted else None

    def contents(self) -> Mapping[str, Sequence[bytes]]:
        """Returns, for each of these, the forms in which the publisher may know its content."""
        kept = self._member.ledger.kept
        return {id: essences(kept[id].credential) for id in self.using()}

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None ends the need for a lease."""
        self._member.lease(until)

    def withdraw(self, ids: Sequence[str]) -> None:
        """Takes secrets from the sidecar, before any later lease; later their events go with the successor, where that
        is configured."""
        self._member.withdraw(ids)
        self._withdrawn |= {*ids}
        self._withdrew.set()

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that any policy of this process makes: what drains may be of an
        older one."""
        self._longest = max(self._longest, longest_request(self._member.ledger.policy, self._registry))
        return self._longest

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble, by its code and perhaps an id, in the status and the report; None: it is over."""
        code = cause.partition(" ")[0]
        if message is None:
            if self._told.pop(cause, None) is not None:
                self.agent.troubles.over(in_words(cause))
                self._report.say("fleet_well", {"code": code, "cause": in_words(cause), "state": "HEALTHY"})
            return
        if self._told.get(cause) == message or self.agent.is_leaving:
            return
        is_new = cause not in self._told
        self._told[cause] = message
        self.agent.troubles.begin(in_words(cause), [message], kind="fleet")
        if is_new:
            stops = self._settings.on_lapse == "hold" and cause in UNLEASED
            consequence = "nothing is sent after the lease" if stops else "shipping continues"
            fields = {"code": code, "message": message, "consequence": consequence, "state": "DEGRADED"}
            self._report.say("fleet_trouble", fields)

    def joined(self, newest: Version | None) -> None:
        """Reports that this host takes part now."""
        fields = {"fleet": self._settings.name, "name": self._settings.member}
        self._report.say("fleet_joined", {**fields, "version": None if newest is None else str(newest)})

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what the fleet has released and the sidecar no longer uses."""
        for id in ids:
            if (kept := self._member.ledger.kept.get(id)) is not None and kept.released:
                self._report.say("fleet_released", {"credential": id, "sources": kept.sources})
        self.agent.forget(ids)

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event."""
        self._report.say(what, fields)

    def sidecar(self) -> str | None:
        """Returns the address at which the sidecar answers over HTTP; None while it does not."""
        return self._member.http

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
                if self._settings.rebind_revoked:
                    self._rebinding.add(withdrawn)


def in_words(cause: str) -> str:
    """Returns the cause of a trouble for its code."""
    code, *of = cause.removeprefix("fleet_").split(" ")
    return " ".join(["fleet:", code if of else code.replace("_", " "), *of])
