"""What one observer knows of a fleet: the head, the reports and leases of members, and whether the store was restored.

A member that takes no part, because the store is not as the member wrote it last, is an *outsider*. If it knows a
version that the history lacks, the whole store was restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from shipper.fleet.records import Alive, Head, Lost, Report, Restored, Version
from shipper.supervise.answers import Stage


@dataclass(frozen=True)
class View:
    """What one observer knows, as of revision `at` of the store. Instants are of the observer's own monotonic clock."""

    at: int
    head: Head
    reports: Mapping[str, Report]
    """The authentic reports, by member."""
    alive: Mapping[str, Alive]
    """The authentic leases that hold, by member."""
    gone: Mapping[str, float]
    """The instant at which the observer saw that a member has no lease; only for members without one."""
    now: float
    """The instant up to which the observer knows of every change."""
    refused: Mapping[str, float] = field(default_factory=dict)
    """The instant at which the observer saw the refusal in a member's report."""
    unauthentic: Set[str] = frozenset()
    """Members whose report or lease is not sealed by the fleet, or whose report was removed."""
    restored: bool = False
    """Whether the store has lost something that the observer has seen: it was restored."""
    apart: Mapping[str, Restored] = field(default_factory=dict)
    """The authentic records of members that take no part; `outsiders` has those that count."""

    @cached_property
    def places(self) -> Mapping[Version, int]:
        """The place of each version in the history; the newest has the highest."""
        return {line.version: place for place, line in enumerate(self.head.history)}

    @cached_property
    def outsiders(self) -> Mapping[str, Restored]:
        """The members that take no part. Each counts until a later epoch begins, or a person forgets it or its
        directory."""
        return {name: one for name, one in self.apart.items() if self._counts(one)}

    def _counts(self, one: Restored) -> bool:
        report = self.reports.get(one.name)
        is_forgotten = report is not None and report.state == "forgotten"
        return (
            one.epoch >= self.head.epoch
            and not is_forgotten
            and f"{one.name}/{one.directory}" not in self.head.forgotten
        )

    @cached_property
    def witnesses(self) -> list[str]:
        """The outsiders that know something which the store has lost."""
        return sorted(name for name, one in self.outsiders.items() if one.why == "store" and self.lost(one))

    def lost(self, one: Restored) -> str:
        """Returns in words what the store has lost of what an outsider has seen; empty if it is nothing."""
        if self._has_lost(one.newest):
            return f"version {one.newest}"
        return "a newer head" if one.head > self.head.order else ""

    @property
    def is_restored(self) -> bool:
        """Whether the store was restored from an older state, and nobody has accepted that yet."""
        return self.restored or bool(self.witnesses)

    def _has_lost(self, newest: Version | None) -> bool:
        if newest is None or newest.epoch < self.head.epoch or newest in self.places:
            return False
        return not self.head.history or newest[:2] >= self.head.history[0].version[:2]

    @cached_property
    def forgotten(self) -> Mapping[str, Sequence[Lost]]:
        """The lost directories that a person has forgotten, by member, apart from those that its report lists."""
        found: dict[str, list[Lost]] = {}
        for full, lost in self.head.forgotten.items():
            name = full.partition("/")[0]
            report = self.reports.get(name)
            listed = () if report is None else (report.directory, *(one.directory for one in report.lost))
            if lost.directory not in listed:
                found.setdefault(name, []).append(lost)
        return found

    @cached_property
    def names(self) -> Set[str]:
        """All members, also those of which no report is there."""
        return self.reports.keys() | self.alive.keys() | self.unauthentic | self.apart.keys() | self.forgotten.keys()

    def knows(self, name: str) -> bool:
        """Returns whether a name is one of `names`."""
        some = (self.reports, self.alive, self.unauthentic, self.apart, self.forgotten)
        return any(name in each for each in some)


def newest_at(view: View, stages: Mapping[Stage, Version], stage: Stage) -> Version | None:
    """Returns the version that has reached the stage, if the history contains it."""
    version = stages.get(stage)
    return version if version in view.places else None


def restored(view: View) -> str:
    """Returns in words that the store was restored, who says so, and what to do."""
    if view.head.accepting is not None:
        return "the store was restored; members register again before the next epoch begins"
    text = "the store was restored from an older state: see `shipper fleet accept-restore`"
    if not view.witnesses:
        return text
    some = ", ".join(f"{name} has seen {view.lost(view.outsiders[name])}" for name in view.witnesses[:3])
    return f"{text}; {some}" + (f", and {more} more" if (more := len(view.witnesses) - 3) > 0 else "")
