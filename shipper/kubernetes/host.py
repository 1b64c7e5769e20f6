"""What a member of Kubernetes needs of its supervisor: figures, the lease, and contents of Secrets. Implements
`membership.host.Host` on an agent with one member."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shipper.kubernetes.membership.troubles import (
    APART,
    HELD,
    OUT,
    OUTDATED,
    REFUSED,
    TAKEN,
    UNREACHABLE,
    UNSAVED,
    WAITS,
)
from shipper.membership.longest import longest_request
from shipper.policy.registry import Registry
from shipper.supervise.agent import Agent
from shipper.supervise.member import Member
from shipper.supervise.rebinding import Rebinding
from shipper.supervise.report import Report

UNLEASED = (UNREACHABLE, REFUSED, OUTDATED, UNSAVED, APART, TAKEN, OUT, HELD)
"""Causes of troubles that keep a member from a lease."""

_OF_ITSELF = (UNREACHABLE, HELD, WAITS, "leader_unreachable", "leader_status_unreachable")
"""Causes that are no Event: they end by themselves, or are said with the policies; or nobody can be told."""

ILL = ("DEGRADED", "FAILED")
MOST_UNITS = 10


class Host:
    """See the module; `agent` is set before the membership runs. No method but `withdraw` waits."""

    agent: Agent

    def __init__(self, report: Report, registry: Registry, *, holds: bool, rebinds: bool = False) -> None:
        """`holds`: nothing is sent after the lease; `rebinds`: events of a withdrawn content go with the next one."""
        self._report, self._registry, self._holds = report, registry, holds
        self._told: dict[str, str] = {}
        self._longest = 0.0
        self._rebinds = rebinds
        self.describe: Callable[[str, str | None], None] = lambda cause, message: None
        """Has an Event of Kubernetes say a trouble, or None when it is over."""
        self.rebinding = Rebinding(lambda: self._member)
        """To be run beside the membership."""

    @property
    def _member(self) -> Member:
        (member,) = self.agent.members
        return member

    def undelivered(self) -> int:
        """Returns how many events the sidecar held when it was heard last."""
        return self._member.held.events

    def using(self) -> Sequence[str]:
        """Returns the ids of contents that the sidecar uses or may use, and of those that wait for what has come in
        their place to be accepted."""
        ledger = self._member.ledger
        used = {id for id, kept in ledger.kept.items() if kept.shared and not kept.released}
        return sorted(used | (ledger.delayed().keys() if self.agent.delays else set()))

    def sidecar(self) -> str | None:
        """Returns the address at which the sidecar answers over HTTP; None while it does not."""
        return self._member.http

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that any policy of this process makes: what drains may be of an
        older one."""
        self._longest = max(self._longest, longest_request(self._member.ledger.policy, self._registry))
        return self._longest

    def degraded(self) -> str:
        """Returns which inputs and outputs are not well, by their codes: messages have figures that change all the
        time, and each change would be a write."""
        observed = self._member.observed
        ill = [unit for unit in (observed.units if observed is not None else ()) if unit.state in ILL]
        shown = [f"{unit.id} {unit.state} ({unit.code})" if unit.code else f"{unit.id} {unit.state}" for unit in ill]
        more = [f"and {len(shown) - MOST_UNITS} more"] if len(shown) > MOST_UNITS else []
        return ", ".join([*shown[:MOST_UNITS], *more])

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None ends the need for a lease."""
        self._member.lease(until)

    async def withdraw(self, ids: Sequence[str]) -> None:
        """Takes contents from the sidecar at once; returns when no later process supplies them either."""
        self._member.withdraw(ids)
        await self._member.save()
        if self._rebinds:
            self.rebinding.add(ids)

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger contents that are not used any more."""
        self.agent.forget(ids)

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble in the status and the report; None: it is over."""
        if message is None:
            if self._told.pop(cause, None) is not None:
                self.describe(cause, None)
                self.agent.troubles.over(in_words(cause))
                fields = {"code": code_of(cause), "cause": in_words(cause), "state": "HEALTHY"}
                self._report.say("kubernetes_well", fields)
            return
        if self._told.get(cause) == message or self.agent.is_leaving:
            return
        is_new = cause not in self._told
        self._told[cause] = message
        if cause not in _OF_ITSELF:
            self.describe(cause, message)
        self.agent.troubles.begin(in_words(cause), [message], kind="kubernetes")
        if is_new:
            stops = self._holds and cause in UNLEASED
            consequence = "nothing is sent after the lease" if stops else "shipping continues"
            fields = {"code": code_of(cause), "message": message, "consequence": consequence, "state": "DEGRADED"}
            self._report.say("kubernetes_trouble", fields)

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event."""
        self._report.say(what, fields)


def code_of(cause: str) -> str:
    """Returns the code of a trouble in reports."""
    return f"kubernetes_{cause}"


def in_words(cause: str) -> str:
    """Returns the cause of a trouble for people."""
    return f"kubernetes: {cause.replace('_', ' ')}"
