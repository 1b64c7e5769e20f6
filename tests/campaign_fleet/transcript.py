"""What one member's sidecar has heard and said, as its recorder wrote it down."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shipper.supervise.answers import STAGES, Stage
from tests.campaign_fleet.recorded import Record

Revision = tuple[int, int]

_MARK = re.compile(r"mark-(\w+)-")


class What(NamedTuple):
    """What a version is, as far as a sidecar can see."""

    mark: str
    """Of the policy's text."""
    secrets: frozenset[str]
    """The ids of the fleet's secrets."""


def mark(name: str) -> str:
    """Returns the text by which a policy is known again."""
    return f"mark-{name}-"


def marked(policy: str) -> str:
    """Returns the name by which a policy is known; empty for one without a mark."""
    found = _MARK.search(policy)
    return "" if found is None else found[1]


@dataclass
class Transcript(Record):
    """What it is about."""

    offered: dict[Revision, tuple[float, What]] = field(default_factory=dict)
    """When each revision was first heard, and what it is."""
    reached: list[tuple[float, Stage, Revision]] = field(default_factory=list)
    """Each stage that was said, in order."""
    supplied: list[tuple[float, str]] = field(default_factory=list)
    """Each secret that was heard."""
    leases: list[tuple[float, float | None]] = field(default_factory=list)
    """Each lease that was heard: its end on CLOCK_BOOTTIME, or None if none is needed."""

    def _heard(self, at: float, message: dict[str, Any]) -> None:
        if message["type"] in ("policy", "credentials"):
            self.supplied += [(at, id) for id, secret in message["credentials"].items() if secret is not None]
        if message["type"] == "hello":
            self.leases.append((at, 0.0 if message.get("lease") else None))
        if message["type"] == "lease":
            self.leases.append((at, message["until"]))
        if message["type"] == "policy":
            what = What(marked(message["policy"]), frozenset(message["credentials"]))
            self.offered.setdefault((message.get("epoch", 0), message["revision"]), (at, what))

    def _said(self, at: float, message: dict[str, Any]) -> None:
        if message["type"] == "ack":
            self.reached.append((at, message["stage"], (message["epoch"], message["revision"])))
        if message["type"] == "ready":
            found = message["revisions"]
            self.reached += [(at, stage, (found[stage][0], found[stage][1])) for stage in STAGES if found[stage]]

    def implied(self, stage: Stage, until: float) -> Iterator[tuple[Revision, float, What]]:
        """Yields the revisions that had reached a stage by an instant, with when each was heard, and what it is."""
        enough = STAGES[STAGES.index(stage) :]
        newest = max((revision for at, said, revision in self.reached if said in enough and at <= until), default=None)
        if newest is not None:
            yield from ((one, *self.offered[one]) for one in self.offered if one <= newest)

    def follows(self, revision: Revision, since: float) -> bool:
        """Whether another revision was heard after this one, and before an instant."""
        return any(one > revision and at < since for one, (at, _) in self.offered.items())

    def sends_until(self, at: float) -> float:
        """Returns until when it could send, on CLOCK_BOOTTIME, by what it had heard at an instant."""
        heard = bisect.bisect_right(self.leases, at, key=lambda one: one[0])
        ends = [until for _, until in self.leases[max(0, heard - 20) : heard]]
        if self.needs_lease(heard):
            return max(until for until in ends if until is not None)
        return math.inf

    def needs_lease(self, heard: int | None = None) -> bool:
        """Whether it needs a lease to send, by the first so many messages about leases, or by all."""
        until = self.leases[:heard][-1:]
        return bool(until) and until[0][1] is not None
