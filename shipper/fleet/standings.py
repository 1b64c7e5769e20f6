"""How far one member is with one version and stage, from what an observer has seen; pure.

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
a person has forgotten it. So is the directory of a member that takes no part (`view`).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Literal

import msgspec

from shipper.fleet.records import Fence, Lost, Refusal, Report, Undelivered, Version
from shipper.fleet.view import View, newest_at
from shipper.supervise.answers import STAGES, Stage
from shipper.values import Counts

Kind = Literal["reached", "waiting", "joining", "refused", "absent", "fenced", "left", "forgotten", "unauthentic"]

OPENING: Set[Kind] = frozenset({"reached", "fenced", "left", "forgotten"})
"""The kinds that do not keep an answer closed."""
NO_MEMBERS: Set[Kind] = frozenset({"left", "forgotten"})
"""The kinds of those that are members no longer."""
AT_ONCE = frozenset({"invalid", "conflict", "credential_conflict"})
"""Reasons of nacks that another attempt does not change."""
HARMLESS = frozenset({"superseded", "stale"})
"""Reasons of nacks that only say that something newer has come."""


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


def fenced(view: View, name: str) -> bool:
    """Returns whether a member has certainly stopped to send: no request of it has begun since, and none will.

    That ends when it is seen alive again.
    """
    holds = _fence_at(view, name)
    return holds is not None and view.now >= holds


def margin(fence: Fence) -> float:
    """Returns the seconds after a lease for which requests may still go on, and for clocks that run apart."""
    return 0.02 * fence.lease + fence.request


def due_of(view: View, name: str, standing: Standing, grace: float) -> float | None:
    """Returns the next instant at which the kind of a member may change by time alone."""
    if standing.kind in OPENING:
        return None
    at = [] if (holds := _fence_at(view, name)) is None else [holds]
    if name in view.refused and standing.kind != "refused":
        at.append(view.refused[name] + grace)
    return min((each for each in at if each > view.now), default=None)


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
