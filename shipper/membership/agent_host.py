"""What a supervisor does for its member: figures, the lease, its troubles. Each membership has a subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from shipper.membership.longest import longest_request
from shipper.policy.registry import Registry
from shipper.supervise.agent import Agent
from shipper.supervise.member import Member
from shipper.supervise.rebinding import Rebinding
from shipper.supervise.report import Report


class AgentHost(ABC):
    """Implements `host.Host` on an agent with one member; `agent` is set before the membership runs."""

    agent: Agent
    kind: ClassVar[str]
    """The kind of its troubles, with which the names of their events begin."""
    unleased: ClassVar[Collection[str]]
    """Causes of troubles that keep a member from a lease."""

    def __init__(self, report: Report, registry: Registry, *, holds: bool, rebinds: bool) -> None:
        """`holds`: nothing is sent after the lease; `rebinds`: events of a withdrawn credential go with the next
        one."""
        self._report, self._registry, self._holds, self._rebinds = report, registry, holds, rebinds
        self._rebinding = Rebinding(lambda: self._member)
        self._told: dict[str, str] = {}
        self._longest = 0.0

    @property
    def _member(self) -> Member:
        (member,) = self.agent.members
        return member

    def _used(self) -> set[str]:
        """Returns the ids of shared credentials that the sidecar uses or may use."""
        return {id for id, kept in self._member.ledger.kept.items() if kept.shared and not kept.released}

    def longest_request(self) -> float:
        """Returns the seconds of the longest request that any policy of this process makes: what drains may be of an
        older one."""
        self._longest = max(self._longest, longest_request(self._member.ledger.policy, self._registry))
        return self._longest

    def lease(self, until: float | None) -> None:
        """Lets the sidecar begin requests until an instant of CLOCK_BOOTTIME; None ends the need for a lease."""
        self._member.lease(until)

    def forget(self, ids: Sequence[str]) -> None:
        """Removes from the ledger what is released everywhere and the sidecar no longer uses."""
        self.agent.forget(ids)

    def sidecar(self) -> str | None:
        """Returns the address at which the sidecar answers over HTTP; None while it does not."""
        return self._member.http

    def say(self, what: str, fields: Mapping[str, Any]) -> None:
        """Reports an event."""
        self._report.say(what, fields)

    # -- troubles ------------------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def code_of(cause: str) -> str:
        """Returns the code of a trouble in reports."""

    @staticmethod
    @abstractmethod
    def in_words(cause: str) -> str:
        """Returns the cause of a trouble for people."""

    def trouble(self, cause: str, message: str | None) -> None:
        """Shows a trouble in the status and the report; None: it is over. Nothing is shown anew while it leaves."""
        if message is None:
            if self._told.pop(cause, None) is not None:
                self._end(cause)
        elif self._told.get(cause) != message and not self.agent.is_leaving:
            is_new = cause not in self._told
            self._told[cause] = message
            self._begin(cause, message, is_new=is_new)

    def _begin(self, cause: str, message: str, *, is_new: bool) -> None:
        """Shows a trouble that `is_new`, or has another message."""
        self.agent.troubles.begin(self.in_words(cause), [message], kind=self.kind)
        if is_new:
            stops = self._holds and cause in self.unleased
            consequence = "nothing is sent after the lease" if stops else "shipping continues"
            fields = {"code": self.code_of(cause), "message": message, "consequence": consequence, "state": "DEGRADED"}
            self.say(f"{self.kind}_trouble", fields)

    def _end(self, cause: str) -> None:
        """Shows that a trouble is over."""
        self.agent.troubles.over(self.in_words(cause))
        fields = {"code": self.code_of(cause), "cause": self.in_words(cause), "state": "HEALTHY"}
        self.say(f"{self.kind}_well", fields)
