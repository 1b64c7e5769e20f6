"""The steps of a member, and what its caller brings along: values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from shipper.fleet.memory import Memory
from shipper.fleet.records import Alive, Head, Report, Restored, Undelivered, Version
from shipper.membership.steps import Forget, Grant, Rest, Withdraw


@dataclass(frozen=True, slots=True)
class Terms:
    """What one process of a member brings along."""

    name: str
    boot: str
    """Names the state directory on this boot of the machine."""
    instance: str
    spare: str
    """A new id for the directory, in case it turns out to be older than its own report."""
    lease: float
    hold: bool = False
    releases: bool = False
    forget_after: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of the sidecar and of the world now."""

    using: frozenset[str] = frozenset()
    accepted: frozenset[str] | None = None
    """Those of these that a destination has accepted from here; None from a sidecar that does not tell."""
    contents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`Report.contents` of these."""
    undelivered: Undelivered = field(default_factory=Undelivered)
    request: float = 0.0
    """Seconds of its longest request."""
    wall: float = 0.0
    http: str = ""
    """The address at which this host answers questions."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a linearizable reading found; a forged record is None, with its revision."""

    report: Report | None = None
    revision: int = 0
    alive: Alive | None = None
    alive_revision: int = 0
    head: Head | None = None
    at: int = 0
    restored: Restored | None = None
    restored_revision: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """Read the lease's key, the own record, that of `Mark`, and then the head: `looked`."""

    since: int
    """The head is known as of this revision."""


@dataclass(frozen=True, slots=True)
class Save:
    """Make this durable: `saved`."""

    memory: Memory


@dataclass(frozen=True, slots=True)
class Claim:
    """Write the lease's key under a new lease, over this revision: `claimed`."""

    alive: Alive
    expected: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write the report over this revision, which renews the lease, and see that its key is there still: `wrote`, or
    `lapsed` if the lease has ended, or the key is not as it was claimed; the report may have been written then."""

    report: Report
    expected: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Write over this revision what this member knows that takes no part; None: remove it. Then `marked`."""

    restored: Restored | None
    expected: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the text and the secrets of a version: `fetched`, `missing` or `unauthentic`."""

    version: Version


@dataclass(frozen=True, slots=True)
class Offer:
    """Keep a fetched version durably, and offer it: `offered`."""

    version: Version


@dataclass(frozen=True, slots=True)
class Revoke:
    """End the lease: `revoked`."""


Step: TypeAlias = Look | Save | Claim | Write | Mark | Fetch | Offer | Withdraw | Forget | Grant | Revoke | Rest
