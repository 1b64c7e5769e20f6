"""The answer to "has version N reached this stage everywhere?", from what an observer has seen; pure.

A member has reached N for ever once it has reported N, or anything newer, for the stage. A report counts only where
the head's history contains its triple; N itself is in the history, so whatever is older than that cannot matter.

    left, forgotten   no longer a member; left with nothing undelivered                      does not keep it closed
    reached           it has reported the stage for N or for a newer version                 does not keep it closed
    fenced            cut off, and it has stopped to send (`on_lapse: hold`)                 does not keep it closed
    unauthentic       its record, or its lease's, is not sealed by the fleet, or was removed keeps it closed
    refused           it has refused N                                                       ends the wait
    absent            its lease is over, or its directory was lost, or it left with events   keeps it closed
    joining           it has not begun yet                                                   keeps it closed
    waiting           the rest                                                               keeps it closed

The first kind that applies is the member's. A directory that was lost is listed apart, as `NAME/DIRECTORY`, also after
a person has forgotten it. So is the directory of a member that takes no part because the store is not as the member
wrote it last; if that member knows a version that the history lacks, the whole store was restored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from shipper.fleet.records import Alive, Fence, Head, Lost, Refusal, Report, Restored, Undelivered, Version
from shipper.supervise.answers import STAGES, Stage
from shipper.values import Counts

Kind = Literal["reached", "waiting", "joining", "refused", "absent", "fenced", "left", "forgotten", "unauthentic"]
State = Literal["open", "closed", "refused", "unknown", "gone", "store_restored"]

OPENING: Set[Kind] = frozenset({"reached", "fenced", "left", "forgotten"})
"""The kinds that do not keep an answer closed."""
AT_ONCE = frozenset({"invalid", "conflict", "credential_conflict"})
"""Reasons of nacks that another attempt does not change."""
HARMLESS = frozenset({"superseded", "stale"})
"""Reasons of nacks that only say that something newer has come."""

_NUMBER = re.compile(r"([0-9]{1,18})")
_ASKED = re.compile(r"(?:(\d{1,9})\.)?(\d{1,18})", re.ASCII)


class Asked(NamedTuple):
    """A version as people name it: `7` is of the newest epoch, `0.7` of that one."""

    epoch: int | None
    number: int

    def __str__(self) -> str:
        return str(self.number) if self.epoch is None else f"{self.epoch}.{self.number}"


def asked(text: str) -> Asked:
    """Returns the version that `7` or `0.7` names; raises ValueError for anything else."""
    if (found := _ASKED.fullmatch(text)) is None:
        raise ValueError("a version is a number of at most 18 digits, such as 7, or an epoch and a number, such as 0.7")
    return Asked(None if found[1] is None else int(found[1]), int(found[2]))


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


class Standing(msgspec.Struct, frozen=True):
    """How far one member is with one version and stage."""

    name: str
    """`NAME`, or `NAME/DIRECTORY` for a directory that was lost."""
    kind: Kind
    version: str | None
    """The newest version that has reached the stage; None if none in the history has."""
    why: str = ""
    """Why it has not reached the version, in words; a nack's begins with its reason."""
    problems: list[str] = []
    """The problems of a nack."""
    undelivered: Undelivered = Undelivered()
    """As it reported last."""
    ledger: Counts | None = None
    """The events for which its newest drained version waited there; None if that is unknown."""
    seen: float = 0.0
    """Unix seconds of its last report, by its own clock."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer for one version and stage, as of revision `at` of the store."""

    version: str
    stage: Stage
    state: State
    at: int
    triple: Version | None = None
    """The version in full; None if it is unknown or gone."""
    counts: dict[Kind, int] = {}
    undelivered: dict[Kind, Undelivered] = {}
    """The events last reported, by kind of member."""
    members: list[Standing] = []
    """The members that have not reached the version, those that keep it closed first."""
    warnings: list[str] = []


def judge(view: View, number: int | Asked | Version, stage: Stage, nack_grace: float) -> Verdict:
    """Returns the answer; a number without an epoch means the newest epoch."""
    tally = Tally(number, stage, nack_grace)
    tally.again(view)
    return tally.verdict(view)


def due(view: View, number: int | Asked | Version, stage: Stage, nack_grace: float) -> float | None:
    """Returns the instant at which the answer may change by time alone: a fence holds, or a grace is over."""
    tally = Tally(number, stage, nack_grace)
    tally.again(view)
    return tally.due()


def fenced(view: View, name: str) -> bool:
    """Returns whether a member has certainly stopped to send: no request of it has begun since, and none will.

    That ends when it is seen alive again.
    """
    holds = _fence_at(view, name)
    return holds is not None and view.now >= holds


def margin(fence: Fence) -> float:
    """Returns the seconds after a lease for which requests may still go on, and for clocks that run apart."""
    return 0.02 * fence.lease + fence.request


def find(view: View, number: int | Asked | Version) -> Version | Literal["unknown", "gone"]:
    """Returns the version in full: `gone` if it was there once and is no longer in the history."""
    if isinstance(number, Version):
        return number if number in view.places else "gone"
    named = Asked(None, number) if isinstance(number, int) else number
    epoch = view.head.epoch if named.epoch is None else named.epoch
    for version in view.places:
        if (version.epoch, version.number) == (epoch, named.number):
            return version
    future = (epoch, named.number) > (view.head.epoch, view.head.number)
    return "unknown" if future or named.number < 1 else "gone"


class Tally:
    """The answer to one question, kept as members change; costs the same for each change, however many members."""

    def __init__(self, number: int | Asked | Version, stage: Stage, nack_grace: float) -> None:
        self._asked = number
        self._stage: Stage = stage
        self._grace = nack_grace
        self._head: Head | None = None
        self._target: Version | Literal["unknown", "gone"] = "unknown"
        self._members: dict[str, tuple[Standing, ...]] = {}
        self._counts: Counter[Kind] = Counter()
        self._due: dict[str, float] = {}

    def again(self, view: View) -> None:
        """Judges all members."""
        self._head = view.head
        self._target = find(view, self._asked)
        self._members, self._counts, self._due = {}, Counter(), {}
        self._judge(view, view.names)

    def changed(self, view: View, names: Iterable[str]) -> None:
        """Judges some members again, and those for whom time decides; all after a change of the head."""
        if view.head is not self._head:
            self.again(view)
        else:
            self._judge(view, {*names, *(name for name, at in self._due.items() if at <= view.now)})

    def state(self, view: View) -> State:
        if view.is_restored or view.head.accepting is not None:
            return "store_restored"
        if self._target == "unknown" or self._target == "gone":
            return self._target
        if self._counts["refused"]:
            return "refused"
        return "open" if all(kind in OPENING for kind in +self._counts) else "closed"

    def due(self) -> float | None:
        """As the function `due`."""
        return min(self._due.values(), default=None)

    def verdict(self, view: View) -> Verdict:
        state = self.state(view)
        if not isinstance(self._target, Version):
            return Verdict(str(self._asked), self._stage, state, view.at, warnings=list(self._warnings(view)))
        found = [standing for each in self._members.values() for standing in each]
        return Verdict(
            version=str(self._target),
            stage=self._stage,
            state=state,
            at=view.at,
            triple=self._target,
            counts=dict(+self._counts),
            undelivered=undelivered((each.kind, each.undelivered) for each in found),
            members=sorted((each for each in found if each.kind != "reached"), key=_order),
            warnings=list(self._warnings(view)),
        )

    def _judge(self, view: View, names: Iterable[str]) -> None:
        if not isinstance(self._target, Version):
            return
        for name in names:
            self._counts.subtract(standing.kind for standing in self._members.pop(name, ()))
            self._due.pop(name, None)
            if not view.knows(name):
                continue
            found = tuple(standings(view, name, self._target, self._stage, self._grace))
            self._members[name] = found
            self._counts.update(standing.kind for standing in found)
            if found and (at := _due(view, name, found[0], self._grace)) is not None:
                self._due[name] = at

    def _warnings(self, view: View) -> Iterator[str]:
        if view.is_restored or view.head.accepting is not None:
            yield restored(view)
        elif self._target == "gone":
            yield from _instead(view, self._asked)
        elif isinstance(self._target, Version) and not has_members(self._counts):
            yield "the fleet has no members"


_ORDER: tuple[Kind, ...] = (
    *("refused", "unauthentic", "absent", "joining", "waiting"),
    *("fenced", "forgotten", "left", "reached"),
)
NO_MEMBERS: Set[Kind] = frozenset({"left", "forgotten"})
"""The kinds of those that are members no longer."""


def has_members(counts: Mapping[Kind, int]) -> bool:
    """Returns whether a fleet with so many members of each kind has any."""
    return any(count for kind, count in counts.items() if kind not in NO_MEMBERS)


def restored(view: View) -> str:
    """Returns in words that the store was restored, who says so, and what to do."""
    if view.head.accepting is not None:
        return "the store was restored; members register again before the next epoch begins"
    text = "the store was restored from an older state: see `shipper fleet accept-restore`"
    if not view.witnesses:
        return text
    some = ", ".join(f"{name} has seen {view.lost(view.outsiders[name])}" for name in view.witnesses[:3])
    return f"{text}; {some}" + (f", and {more} more" if (more := len(view.witnesses) - 3) > 0 else "")


def undelivered(members: Iterable[tuple[Kind, Undelivered]]) -> dict[Kind, Undelivered]:
    """Returns the undelivered events by kind of member; only the kinds that have some."""
    sums: dict[Kind, Undelivered] = {}
    for kind, one in members:
        total = sums.get(kind, Undelivered())
        if one.events or one.bytes:
            oldest = max(total.oldest_seconds, one.oldest_seconds)
            sums[kind] = Undelivered(total.events + one.events, total.bytes + one.bytes, oldest)
    return sums


def in_order(name: str) -> Sequence[str | int]:
    """Returns a key by which names are sorted as people count: `web-2` comes before `web-10`."""
    return [int(part) if at % 2 else part for at, part in enumerate(_NUMBER.split(name))]


def _order(each: Standing) -> tuple[int, Sequence[str | int]]:
    return _ORDER.index(each.kind), in_order(each.name)


def _instead(view: View, number: int | Asked | Version) -> Iterator[str]:
    """Yields how to ask for a version of an earlier epoch."""
    wanted = number if isinstance(number, int) else number.number
    for version in view.places:
        if version.number == wanted:
            yield f"epoch {version.epoch} has a version {wanted}: ask for {version.epoch}.{wanted}"


# -- One member --------------------------------------------------------------------------------------------------------


def standings(view: View, name: str, target: Version, stage: Stage, grace: float) -> Iterator[Standing]:
    """Yields the standing of a member, then those of the directories that it has lost, or that take no part."""
    apart = _of_apart(view, name)
    for each in _of_member(view, name, target, stage, grace):
        if apart is None or each.name != apart.name:
            yield each
        else:
            apart = msgspec.structs.replace(apart, undelivered=each.undelivered, seen=each.seen)
    if apart is not None:
        yield apart


def _of_member(view: View, name: str, target: Version, stage: Stage, grace: float) -> Iterator[Standing]:
    report = view.reports.get(name)
    if report is not None and name not in view.unauthentic:
        yield from _of_report(view, report, target, stage, grace)
    elif name in view.alive or name in view.unauthentic:
        yield _without_report(view, name)
    for lost in view.forgotten.get(name, ()):
        yield _of_lost(view, name, lost, target, stage)


def _of_report(view: View, report: Report, target: Version, stage: Stage, grace: float) -> Iterator[Standing]:
    name = report.name
    kind, why = _kind(view, report, target, stage, grace)
    yield Standing(
        name=name,
        kind=kind,
        version=_text(newest_at(view, report.stages, stage)),
        why=why,
        problems=list(report.refusal.problems) if kind == "refused" and report.refusal else [],
        undelivered=report.undelivered,
        ledger=report.ledger,
        seen=report.seen,
    )
    for lost in report.lost:
        yield _of_lost(view, name, lost, target, stage)


def _without_report(view: View, name: str) -> Standing:
    if name in view.unauthentic:
        return Standing(
            name,
            "unauthentic",
            None,
            "its record is not sealed by a key of this fleet, has a newer format, or was removed",
        )
    return Standing(name, "joining", None, "it has a lease, and no report yet")


def _of_lost(view: View, name: str, lost: Lost, target: Version, stage: Stage) -> Standing:
    full = f"{name}/{lost.directory}"
    newest = newest_at(view, lost.stages, stage)
    kind, why = _kind_of_lost(view, name, lost, _is_reached(newest, target))
    return Standing(
        name=full,
        kind=kind,
        version=_text(newest),
        why=why,
        undelivered=lost.undelivered,
        seen=lost.at,
    )


def _kind_of_lost(view: View, name: str, lost: Lost, reached: bool) -> tuple[Kind, str]:
    if reached:
        return "reached", ""
    if is_forgotten(view, name, lost):
        return "forgotten", "the directory was lost, and was forgotten by an operator"
    return "absent", "directory lost"


def is_forgotten(view: View, name: str, lost: Lost) -> bool:
    """Returns whether a person has forgotten a lost directory, or the member itself, before or after the loss."""
    report = view.reports.get(name)
    return lost.forgotten or view.head.has_forgotten(name, lost) or (report is not None and report.state == "forgotten")


def _of_apart(view: View, name: str) -> Standing | None:
    """Returns the standing of the directory of a member that takes no part."""
    if (one := view.outsiders.get(name)) is None:
        return None
    why = (
        f"the store is older than what it knows: `shipper fleet accept-restore`, or `forget {name}/{one.directory}`"
        if one.why == "store"
        else f"another process writes its record, as a copy of its directory does: stop one of them, then `forget "
        f"{name}/{one.directory}`"
    )
    return Standing(f"{name}/{one.directory}", "absent", _text(one.newest), why)


def _kind(view: View, report: Report, target: Version, stage: Stage, grace: float) -> tuple[Kind, str]:
    if report.state == "forgotten":
        return "forgotten", "it was forgotten by an operator, or after `forget_after`"
    if report.state == "left" and not report.undelivered.events:
        return "left", "it left with nothing undelivered"
    if _is_reached(newest_at(view, report.stages, stage), target):
        return "reached", ""
    if fenced(view, report.name):
        return "fenced", "its lease is over, and it has stopped to send"
    refusal = _refusal(view, report, target)
    if refusal is not None and view.now >= _refused_at(view, report, refusal, target, grace):
        return "refused", f"{refusal.reason}: it refused version {refusal.version}"
    if report.state == "left":
        return "absent", f"it left with {report.undelivered.events} events undelivered"
    if report.name not in view.alive:
        return "absent", _why_absent(view, report)
    if report.state == "joining":
        return "joining", "it joins, and has not begun yet"
    return "waiting", _why_waiting(view, report, target, stage, refusal)


def newest_at(view: View, stages: Mapping[Stage, Version], stage: Stage) -> Version | None:
    """Returns the version that has reached the stage, if the history contains it."""
    version = stages.get(stage)
    return version if version in view.places else None


def _is_reached(newest: Version | None, target: Version) -> bool:
    return newest is not None and newest[:2] >= target[:2]


def _text(version: Version | None) -> str | None:
    return None if version is None else str(version)


def _refusal(view: View, report: Report, target: Version) -> Refusal | None:
    """Returns the nack that keeps a member from the version; a later stage clears it, as does a newer version."""
    refusal = report.refusal
    if refusal is None or refusal.reason in HARMLESS or refusal.version not in view.places:
        return None
    refused = refusal.version[:2]
    if refused < target[:2]:
        return None
    received = newest_at(view, report.stages, "received")
    if received is not None and (received[:2] > refused or (received[:2] >= target[:2] and refused > target[:2])):
        return None
    if any(_is_reached(newest_at(view, report.stages, later), target) for later in ("active", "drained")):
        return None
    return refusal


def _refused_at(view: View, report: Report, refusal: Refusal, target: Version, grace: float) -> float:
    """Returns the instant from which a nack counts. That of a newer version may overtake an answer to this one."""
    if refusal.version == target and refusal.reason in AT_ONCE:
        return view.now
    return view.refused.get(report.name, view.now) + grace


def _fence_at(view: View, name: str) -> float | None:
    """Returns the instant at which a member without a lease is fenced; None if it has one, or never stops.

    A report of an earlier epoch proves nothing: the restore may have lost that the member no longer holds.
    """
    report, since = view.reports.get(name), view.gone.get(name)
    if report is None or report.fence is None or since is None:
        return None
    if name in view.alive or name in view.unauthentic or report.epoch != view.head.epoch:
        return None
    return since + max(report.fence.lease, report.lease) + margin(report.fence)


def _due(view: View, name: str, standing: Standing, grace: float) -> float | None:
    """Returns the next instant at which the kind of a member may change by time alone."""
    if standing.kind in OPENING:
        return None
    at = [] if (holds := _fence_at(view, name)) is None else [holds]
    if name in view.refused and standing.kind != "refused":
        at.append(view.refused[name] + grace)
    return min((each for each in at if each > view.now), default=None)


def _why_absent(view: View, report: Report) -> str:
    if report.epoch != view.head.epoch:
        return f"its lease is over, and its report is of epoch {report.epoch}: `forget` it, or start it again"
    if report.fence is None:
        return "its lease is over, and it may still send (`on_lapse: continue`)"
    seconds = max(report.fence.lease, report.lease) + margin(report.fence)
    return f"its lease is over; it counts as fenced {seconds:.1f} s after that was seen"


def _why_waiting(view: View, report: Report, target: Version, stage: Stage, refusal: Refusal | None) -> str:
    if refusal is not None:
        return f"{refusal.reason}: it refused version {refusal.version}; that ends the wait after the grace"
    claimed = report.stages.get(stage)
    if claimed is not None and claimed not in view.places and claimed[:2] >= target[:2]:
        return f"it reports a version {claimed} that the history of this store does not contain"
    for before in reversed(STAGES[: STAGES.index(stage)]):
        if _is_reached(newest_at(view, report.stages, before), target):
            return f"{before}, not yet {stage}; {report.undelivered.events} events undelivered"
    return f"it has not received version {target} yet" if target.number else "no version was published yet"
