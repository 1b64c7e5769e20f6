"""The whole fleet at a glance: versions by members, and who is behind and why; pure.

It is judged by the rules of `judge`, as to the newest version and `drained`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from shipper.fleet.judge import has_members, in_order, undelivered
from shipper.fleet.records import Head, Line, Report, Undelivered, Version
from shipper.fleet.standings import NO_MEMBERS, OPENING, Kind, Standing, standings
from shipper.fleet.view import View, newest_at, restored
from shipper.supervise.answers import STAGES, Stage
from shipper.values import Counts


class Member(msgspec.Struct, frozen=True):
    """One member, or a lost directory of it, as `status` and `members` show it."""

    name: str
    kind: Kind
    """As to the newest version and `drained`."""
    behind: int
    """Versions in the history that are newer than its drained one."""
    stages: dict[Stage, str | None]
    """The newest version that has reached each stage; None if none in the history has."""
    why: str
    problems: list[str]
    undelivered: Undelivered
    ledger: Counts | None
    """The events for which its newest drained version waited there; None if that is unknown."""
    alive: bool
    seen: float
    """Unix seconds of its last report, by its own clock."""
    since: float = 0.0
    """Unix seconds at which it joined."""
    lease: float = 0.0
    fence: bool = False
    """Whether it stops to send when its lease is over (`on_lapse: hold`)."""
    secrets: list[str] = []
    """The fleet's secrets in use, as `NAME ID`; `? ID` for one that no kept version names."""
    local: str = ""
    """The stage of its newest own rotation, and its revision: `drained 12`."""
    directory: str = ""
    releases: bool = False
    http: str = ""


class Row(msgspec.Struct, frozen=True):
    """One version of the history, and how many members have reached it."""

    version: str
    at: float
    by: str
    why: str
    reached: dict[Stage, int]
    ledger: Counts
    """The events for which it waited, of the members whose newest drained version it is and that know them."""
    counted: int
    """How many members these are."""


class Failing(msgspec.Struct, frozen=True):
    """A released secret for which `on_release` fails; it is tried again."""

    id: str
    name: str
    since: float
    """Unix seconds of its first failure on the elected member, by that member's clock."""


class Fleet(msgspec.Struct, frozen=True):
    """The whole fleet: versions by members, as of revision `at` of the store; members that are behind come first."""

    name: str
    at: int
    newest: str | None
    state: Literal["consistent", "behind", "refused", "empty", "store_restored"]
    counts: dict[Kind, int]
    """Members by kind, as to the newest version and `drained`."""
    undelivered: dict[Kind, Undelivered]
    members: list[Member]
    versions: list[Row]
    """The newest first."""
    leader: str
    """The member that was elected last to run `on_release`; empty if there was none."""
    failing: list[Failing]
    warnings: list[str]


def overview(view: View) -> Fleet:
    """Returns the summary of a fleet; a refusal of the newest version is shown without a grace."""
    newest = view.head.newest
    target = newest or Version(view.head.epoch, 0, "")
    names = secret_names(view.head)
    members = [member for name in view.names for member in _members(view, name, target, names)]
    members.sort(key=lambda each: (each.kind in OPENING, -each.behind, -each.undelivered.events, in_order(each.name)))
    counts = Counter(each.kind for each in members)
    return Fleet(
        name=view.head.fleet,
        at=view.at,
        newest=str(newest) if newest else None,
        state=_fleet_state(view, counts),
        counts=dict(counts),
        undelivered=undelivered((each.kind, each.undelivered) for each in members),
        members=members,
        versions=list(_rows(view, members)),
        leader=view.head.leader,
        failing=[Failing(id, one.name, one.failing) for id, one in view.head.released.items() if one.failing],
        warnings=list(_fleet_warnings(view, counts)),
    )


def secret_names(head: Head) -> Mapping[str, str]:
    """Returns the name of each secret by id, as far as the head still knows it."""
    names = {id: release.name for id, release in head.released.items()}
    for pins in (*(line.secrets for line in head.history), head.secrets):
        names.update({id: name for name, id in pins.items()})
    return names


def _members(view: View, name: str, target: Version, names: Mapping[str, str]) -> Iterator[Member]:
    report = view.reports.get(name) if name not in view.unauthentic else None
    known = [*view.forgotten.get(name, ()), *(report.lost if report is not None else ())]
    lost = {f"{name}/{one.directory}": one.stages for one in known}
    for standing in standings(view, name, target, "drained", 0.0):
        if standing.name == name:
            yield _member(view, standing, report.stages if report else {}, name in view.alive, report, names)
        else:
            yield _member(view, standing, lost.get(standing.name, {}), False, None, names)


def _member(
    view: View,
    standing: Standing,
    stages: Mapping[Stage, Version],
    alive: bool,
    report: Report | None,
    names: Mapping[str, str],
) -> Member:
    drained = newest_at(view, stages, "drained")
    member = Member(
        name=standing.name,
        kind=standing.kind,
        behind=len(view.places) - 1 - (-1 if drained is None else view.places[drained]),
        stages={stage: str(at) if (at := newest_at(view, stages, stage)) else None for stage in STAGES},
        why=standing.why,
        problems=standing.problems,
        undelivered=standing.undelivered,
        ledger=standing.ledger,
        alive=alive,
        seen=standing.seen,
    )
    if report is None:
        return member
    return msgspec.structs.replace(
        member,
        since=report.since,
        lease=report.lease,
        fence=report.fence is not None,
        secrets=[f"{names.get(id, '?')} {id}" for id in report.using],
        local=report.local,
        directory=report.directory,
        releases=report.releases,
        http=report.http,
    )


def _fleet_state(
    view: View, counts: Mapping[Kind, int]
) -> Literal["consistent", "behind", "refused", "empty", "store_restored"]:
    if view.is_restored or view.head.accepting is not None:
        return "store_restored"
    if view.head.newest is None or not has_members(counts):
        return "empty"
    if counts.get("refused"):
        return "refused"
    return "consistent" if all(kind in OPENING for kind in counts) else "behind"


def _fleet_warnings(view: View, counts: Mapping[Kind, int]) -> Iterator[str]:
    if view.is_restored or view.head.accepting is not None:
        yield restored(view)
    if view.head.newest is None:
        yield "no version was published yet"
    if not has_members(counts):
        yield "the fleet has no members"


def _rows(view: View, members: Iterable[Member]) -> Iterator[Row]:
    """Yields the versions, the newest first, with the members that have reached each; lost directories are members."""
    places = {str(version): place for version, place in view.places.items()}
    exact: dict[Stage, Counter[int]] = {stage: Counter() for stage in STAGES}
    ledgers: dict[str, list[Counts]] = {}
    for member in members:
        if member.kind not in NO_MEMBERS:
            for stage, version in member.stages.items():
                if version is not None:
                    exact[stage][places[version]] += 1
            if member.ledger is not None and (drained := member.stages["drained"]) is not None:
                ledgers.setdefault(drained, []).append(member.ledger)
    sums: dict[Stage, int] = dict.fromkeys(STAGES, 0)
    for place in reversed(range(len(view.head.history))):
        for stage in STAGES:
            sums[stage] += exact[stage][place]
        line: Line = view.head.history[place]
        known = ledgers.get(str(line.version), [])
        yield Row(str(line.version), line.at, line.by, line.why, dict(sums), _total(known), len(known))


def _total(ledgers: Iterable[Counts]) -> Counts:
    columns = zip(*map(msgspec.structs.astuple, ledgers), strict=True)
    return Counts(*(sum(column) for column in columns))
