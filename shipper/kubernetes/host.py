"""What a member of Kubernetes needs of its supervisor: figures, the lease, and contents of Secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from shipper.membership.agent_host import AgentHost
from shipper.policy.registry import Registry
from shipper.supervise.report import Report

_OF_ITSELF = (UNREACHABLE, HELD, WAITS, "leader_unreachable", "leader_status_unreachable")
"""Causes that are no Event: they end by themselves, or are said with the policies; or nobody can be told."""

ILL = ("DEGRADED", "FAILED")
MOST_UNITS = 10


class Host(AgentHost):
    """Implements `membership.host.Host`. No method but `withdraw` waits."""

    kind = "kubernetes"
    unleased = (UNREACHABLE, REFUSED, OUTDATED, UNSAVED, APART, TAKEN, OUT, HELD)

    def __init__(self, report: Report, registry: Registry, *, holds: bool, rebinds: bool = False) -> None:
        super().__init__(report, registry, holds=holds, rebinds=rebinds)
        self.describe: Callable[[str, str | None], None] = lambda cause, message: None
        """Has an Event of Kubernetes say a trouble, or None when it is over."""

    def undelivered(self) -> int:
        """Returns how many events the sidecar held when it was heard last."""
        return self._member.held.events

    def using(self) -> Sequence[str]:
        """Returns the ids of contents that the sidecar uses or may use, and of those that wait for what has come in
        their place to be accepted."""
        return sorted(self._used() | (self._member.ledger.delayed().keys() if self.agent.delays else set()))

    def degraded(self) -> str:
        """Returns which inputs and outputs are not well, by their codes: messages have figures that change all the
        time, and each change would be a write."""
        observed = self._member.observed
        ill = [unit for unit in (observed.units if observed is not None else ()) if unit.state in ILL]
        shown = [f"{unit.id} {unit.state} ({unit.code})" if unit.code else f"{unit.id} {unit.state}" for unit in ill]
        more = [f"and {len(shown) - MOST_UNITS} more"] if len(shown) > MOST_UNITS else []
        return ", ".join([*shown[:MOST_UNITS], *more])

    async def withdraw(self, ids: Sequence[str]) -> None:
        """Takes contents from the sidecar at once; returns when no later process supplies them either."""
        self._member.withdraw(ids)
        await self._member.save()
        if self._rebinds:
            self._rebinding.add(ids)

    @staticmethod
    def code_of(cause: str) -> str:
        """Returns the code of a trouble in reports."""
        return f"kubernetes_{cause}"

    @staticmethod
    def in_words(cause: str) -> str:
        """Returns the cause of a trouble for people."""
        return f"kubernetes: {cause.replace('_', ' ')}"

    def _begin(self, cause: str, message: str, *, is_new: bool) -> None:
        if cause not in _OF_ITSELF:
            self.describe(cause, message)
        super()._begin(cause, message, is_new=is_new)

    def _end(self, cause: str) -> None:
        self.describe(cause, None)
        super()._end(cause)

    async def run(self) -> None:
        """Has the events of withdrawn contents moved, where that is configured. Runs for ever."""
        await self._rebinding.run()
