"""What the judges of a campaign may look at, and what follows from it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tests.campaign_kubernetes.audit import Write
from tests.campaign_kubernetes.history import State
from tests.campaign_kubernetes.records import Content, Mark, Policy, Secret
from tests.campaign_kubernetes.transcript import Transcript

Credential = tuple[str, str]
"""The uid of a Secret, and a key."""
Contents = Sequence[tuple[int, str]]
"""The names of contents of a key, each with the version from which on it was there; in order."""


class Request(NamedTuple):
    """A request at the destination."""

    at: float
    """By CLOCK_MONOTONIC."""
    member: str
    key: str
    """The name of the content with which it came."""
    status: int


class Bound(NamedTuple):
    """A release: from this instant on nobody may use what is older, unless it is the same."""

    at: float
    version: int
    """Of the ShipperSecret."""
    of: Credential
    secret: str
    before: int
    spent: frozenset[str]
    """The names of the contents that are released."""


def contents_of(states: Iterable[State]) -> dict[Credential, Contents]:
    """Returns what each key of a Secret was, by what etcd had."""
    found: dict[Credential, list[tuple[int, str]]] = defaultdict(list)
    for state in states:
        if isinstance(state.record, Content):
            for key, name in state.record.keys.items():
                of = found[state.record.uid, key]
                if not of or of[-1][1] != name:
                    of.append((state.version, name))
    return dict(found)


def content_at(contents: Contents, version: int) -> str:
    """Returns the name of the content at a version; empty if there was none."""
    at = bisect_right(contents, version, key=lambda one: one[0])
    return contents[at - 1][1] if at else ""


def spent_by(contents: Contents, before: int) -> frozenset[str]:
    """Returns the contents that a bound releases: those that are older and not the same."""
    kept = {content_at(contents, before)} | {name for version, name in contents if version >= before}
    return frozenset(name for version, name in contents if version < before) - kept


@dataclass
class Seen:
    """What was seen of one campaign; nothing is added once the judges look."""

    states: Sequence[State] = ()
    """What etcd had, in order."""
    writes: Sequence[Write] = ()
    """What the audit log says."""
    users: Mapping[str, str] = field(default_factory=dict)
    """The user of each member."""
    transcripts: Mapping[str, Transcript] = field(default_factory=dict)
    requests: Sequence[Request] = ()
    revoked: Mapping[str, float] = field(default_factory=dict)
    """When the destination has forgotten a content, by its name."""
    of_clocks: float = 0.0
    """What CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC."""

    @cached_property
    def marks(self) -> dict[tuple[str, int], Mark | None]:
        """The mark of each generation of a policy, by uid."""
        found: dict[tuple[str, int], Mark | None] = {}
        for state in self.states:
            if isinstance(state.record, Policy):
                found.setdefault((state.record.uid, state.record.generation), state.record.mark)
        return found

    @cached_property
    def contents(self) -> dict[Credential, Contents]:
        """What each key of a Secret was."""
        return contents_of(self.states)

    def content_at(self, of: Credential, version: int) -> str:
        """Returns the name of the content that a key had at a version; empty if it had none."""
        return content_at(self.contents.get(of, ()), version)

    @cached_property
    def bounds(self) -> list[Bound]:
        """Each release, at the instant at which it was seen first."""
        found: list[Bound] = []
        newest: dict[Credential, int] = {}
        for state in self.states:
            if not isinstance(state.record, Secret):
                continue
            for one in state.record.releases:
                of = one.uid, one.key
                if one.before > newest.get(of, 0):
                    newest[of] = one.before
                    spent = spent_by(self.contents.get(of, ()), one.before)
                    found.append(Bound(state.at, state.version, of, one.secret, one.before, spent))
        return found

    @cached_property
    def released(self) -> dict[str, Bound]:
        """The bound that has released each content."""
        found: dict[str, Bound] = {}
        for bound in self.bounds:
            for name in bound.spent:
                found.setdefault(name, bound)
        return found

    def of(self, kind: type) -> Iterator[State]:
        """Yields the states of a kind of record."""
        return (state for state in self.states if isinstance(state.record, kind))
