"""The Lease of a member: whether the name is free for this process, and what is written into it.

A Lease of another holder is over when it was seen unchanged for its seconds and a margin, by the own clock. Only the
same directory on the same boot is taken over at once: its lock proves that the old process is gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

from shipper.apiserver.objects import LEASES, Object, annotation, uid
from shipper.kubernetes.kinds import MEMBER_LEASE, RELEASED
from shipper.kubernetes.member.steps import Facts, Terms

DRIFT = 0.02
"""How far clocks may run apart."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another holder has the name, or had it just now."""

    until: float
    """When to look again."""
    why: str


class Name:
    """The Lease as it was last found."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.lease: Object | None = None
        self._seen: tuple[object, ...] = ()
        self._since = 0.0
        """Since when it was seen unchanged."""

    def holder(self, directory: str) -> str:
        """Returns how this process names itself."""
        return f"{directory}/{self._terms.boot}/{self._terms.process}"

    def is_ours(self, directory: str) -> bool:
        """Whether this process has the Lease."""
        return self.lease is not None and _holder(self.lease) == self.holder(directory)

    def found(self, lease: Object | None, now: float) -> None:
        """The Lease is like this."""
        self.lease = lease
        seen = _mark(lease)
        if seen != self._seen:
            self._seen, self._since = seen, now

    def judge(self, directories: Collection[str], now: float) -> Taken | None:
        """Returns who is in the way of this process, whose directory has these ids; None if nobody is."""
        holder = _holder(self.lease) if self.lease is not None else ""
        directory, _, rest = holder.partition("/")
        if not holder or (directory in directories and rest.rpartition("/")[0] == self._terms.boot):
            return None
        until = self._since + _seconds(self.lease) * (1 + DRIFT) + 1.0
        if now >= until:
            return None
        who = "this directory, or a copy of it," if directory in directories else "another directory"
        return Taken(min(until, now + self._terms.lease / 3), f"{who} has the name of this member, or had it just now")

    @property
    def bounds(self) -> Mapping[str, str]:
        """The bounds that a leader has set while the Lease was over."""
        try:
            found = json.loads(annotation(self.lease or {}, RELEASED) or "{}")
        except ValueError:
            return {}
        if not isinstance(found, dict):
            return {}
        return {key: bound for key, bound in found.items() if isinstance(bound, str)}

    def to_hold(self, directory: str, facts: Facts, *, give_up: bool = False) -> Object:
        """Returns the Lease to create, or to put in place of the one that was found."""
        before = self.lease or {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.name,
            "metadata": {"name": MEMBER_LEASE + self._terms.name},
        }
        spec: dict[str, Any] = dict(before.get("spec") or {})
        holder = "" if give_up else self.holder(directory)
        at = _microtime(facts.wall)
        if spec.get("holderIdentity") != holder and not give_up:
            spec["acquireTime"] = at
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (self.lease is not None)
        request = facts.request if self._terms.hold else 0.0
        spec |= {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, ceil(self._terms.lease + request)),
            "renewTime": at,
        }
        return {**before, "spec": spec}


def _mark(lease: Object | None) -> tuple[object, ...]:
    """Returns what a renewal changes: a leader's bounds are none."""
    spec = (lease or {}).get("spec") or {}
    return uid(lease or {}), *(spec.get(key) for key in ("holderIdentity", "renewTime", "leaseTransitions"))


def _holder(lease: Object) -> str:
    found = (lease.get("spec") or {}).get("holderIdentity")
    return found if isinstance(found, str) else ""


def _seconds(lease: Object | None) -> float:
    found = ((lease or {}).get("spec") or {}).get("leaseDurationSeconds")
    return float(found) if isinstance(found, int) and found > 0 else 0.0


def _microtime(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
