"""Records as a leader has them, with what a test does not care about filled in."""

from __future__ import annotations

from typing import Any

from shipper.kubernetes.kinds import (
    Lost,
    MemberSpec,
    MemberStatus,
    Nack,
    PodName,
    PolicyReport,
    PolicySpec,
    PolicyStatus,
    Using,
)
from shipper.kubernetes.summing.judge import judge
from shipper.kubernetes.summing.parts import Standings
from shipper.kubernetes.summing.records import Lease, Member, Policy

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
UID = "u-web"


def policy(generation: int = 7, status: PolicyStatus | None = None, **more: Any) -> Policy:
    spec = {one: more.pop(one) for one in ("members", "ended_members", "on_delete") if one in more}
    found = PolicySpec(policy={"version": 1}, **spec)
    return Policy("web", UID, "100", generation, found, status or PolicyStatus(), **more)


def entry(generation: int = 7, stage: str = "drained", uid: str = UID, **more: Any) -> PolicyReport:
    return PolicyReport(name="web", uid=uid, generation=generation, stage=stage, **more)


def member(
    name: str, *entries: PolicyReport, labels: dict[str, str] | None = None, pod: str = "", **more: Any
) -> Member:
    spec = MemberSpec(pod=PodName(name=name, uid=pod), keeps="pod") if pod else MemberSpec()
    status = MemberStatus(process=f"dir-{name}/p", policies=entries, **more)
    return Member(name, f"uid-{name}", "50", labels or {}, spec, status)


def nack(generation: int = 7, reason: str = "invalid", message: str = "no such option", path: str = "") -> Nack:
    return Nack(generation=generation, reason=reason, message=message, path=path)


def using(version: str, *, secret: str = "es", uid: str = "s", key: str = "api_key") -> Using:
    return Using(secret=secret, uid=uid, key=key, resource_version=version)


def lost(*, policies: tuple[PolicyReport, ...] = (), using: tuple[Using, ...] = (), undelivered: int = 0) -> Lost:
    return Lost(process="dir-old/p", policies=policies, using=using, undelivered=undelivered)


def lease(name: str, *, holder: str | None = None, renewed: str = "r1", seconds: float = 40, **more: Any) -> Lease:
    held = f"dir-{name}/boot/p" if holder is None else holder
    values = {"uid": f"l-{name}", "version": "60", "transitions": 0, **more}
    return Lease(f"shipper-member-{name}", holder=held, seconds=seconds, renewed=renewed, **values)


def judged(of: Policy, *members: Member, now: str = NOW, **standings: Any) -> PolicyStatus:
    known = Standings(**{key: frozenset(value) for key, value in standings.items()})
    return judge(of, members, known, now)


def condition(status: PolicyStatus, type: str) -> Any:
    return next(one for one in status.conditions if one.type == type)


def says(status: PolicyStatus) -> dict[str, str]:
    """The status of each condition."""
    return {one.type: one.status for one in status.conditions}
