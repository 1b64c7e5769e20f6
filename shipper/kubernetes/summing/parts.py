"""How each member stands to a policy. Pure; see `judge` for the rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from shipper.kubernetes.kinds import STAGES, Nack, PolicyReport, PolicySpec
from shipper.kubernetes.selectors import matches
from shipper.kubernetes.summing.records import Member, Policy

DRAINED = STAGES.index("drained")
WORST = ("Refused", "Unreadable", "Lost", "Ended", "Absent", "Left", "Registering", "Waiting")
"""Why a member keeps a condition False; the first one of these that there is becomes the reason."""


@dataclass(frozen=True)
class Standings:
    """What a leader knows of members beside their own reports."""

    absent: frozenset[str] = frozenset()
    unproven: frozenset[str] = frozenset()
    """Those whose Leases were not looked at for long enough."""
    ended: frozenset[str] = frozenset()
    """Those with `keeps: pod` whose Pod is gone by a quorum read."""
    registering: frozenset[str] = frozenset()
    """Those that may live, and have not said yet what they have."""


@dataclass(frozen=True)
class Part:
    """How one member, or one lost directory of a member, stands to a policy."""

    name: str
    stage: int = -1
    """The place in STAGES that it has reached at this generation; -1 before the first one."""
    why: str = "Waiting"
    """Of WORST."""
    text: str = ""
    """More of that, for people."""
    runs: bool = True
    """Whether Received and Active wait for it."""
    drains: bool = True
    """Whether Drained waits for it."""
    joins: bool = False
    """Whether it has nothing of before this generation."""
    absent: bool = False
    ended: bool = False
    nack: Nack | None = None
    degraded: str = ""
    waits_for: tuple[str, ...] = ()

    @property
    def is_refusing(self) -> bool:
        """Whether it does not take this generation."""
        return self.why == "Refused"


def concerned(policy: Policy, members: Iterable[Member], standings: Standings) -> Iterator[Part]:
    """Yields how each member, and each lost directory, stands to a policy that concerns it."""
    for member in members:
        yield from _lost(policy, member)
        part = _part(policy, member, standings)
        if part is not None:
            yield part


def _part(policy: Policy, member: Member, standings: Standings) -> Part | None:
    name, status, spec = member.name, member.status, cast(PolicySpec, policy.spec)
    absent = name in standings.absent
    if status is None:
        return Part(name, why="Unreadable", text="its status cannot be read", absent=absent)
    entry = next((one for one in status.policies if one.uid == policy.uid), None)
    unfinished = entry is not None and not (entry.removed and entry.stage == "drained")
    ended = name in standings.ended
    selected = not policy.deleted_at and status.state != "left" and matches(spec.members, member.labels) and not ended
    if not selected and not unfinished:
        return None
    if ended:
        return _ended(policy, member, entry)
    if status.state == "left" and not status.undelivered:
        return None
    nack = entry.nack if entry is not None and entry.nack and entry.nack.generation >= policy.generation else None
    behind = entry is None or entry.removed or entry.generation < policy.generation
    stage = _reached(entry, policy.generation, selected)
    why = "Waiting"
    if name in standings.registering:
        why = "Registering"
    elif status.state == "left":
        why = "Left"
    elif absent:
        why = "Absent"
    if nack is not None and selected and (behind or stage < STAGES.index("received")):
        why = "Refused"
    return Part(
        name,
        stage,
        why,
        _undelivered(status.undelivered) if why in ("Left", "Absent") else "",
        runs=status.state != "left" and not (entry is not None and entry.removed and not selected),
        joins=selected and (entry is None or (entry.first and not behind)),
        absent=absent,
        nack=nack,
        degraded="" if absent else status.degraded,
        waits_for=() if entry is None else entry.waits_for,
    )


def _reached(entry: PolicyReport | None, generation: int, selected: bool) -> int:
    """Returns the place in STAGES; of a member that is to run the policy no more, that of its removal."""
    if entry is None or (entry.removed if selected else not entry.removed):
        return -1
    return STAGES.index(entry.stage) if entry.removed or entry.generation >= generation else -1


def _ended(policy: Policy, member: Member, entry: PolicyReport | None) -> Part | None:
    events = 0 if member.status is None else member.status.undelivered
    stage = -1 if entry is None else _reached(entry, policy.generation, not entry.removed)
    if not events or entry is None:
        return None
    ignored = cast(PolicySpec, policy.spec).ended_members == "ignore"
    text = f"its Pod is gone, with {_undelivered(events)}"
    return Part(member.name, stage, "Ended", text, runs=False, drains=not ignored, ended=True)


def _lost(policy: Policy, member: Member) -> Iterator[Part]:
    for lost in () if member.status is None else member.status.lost:
        entry = next((one for one in lost.policies if one.uid == policy.uid), None)
        if entry is None or (entry.removed and entry.stage == "drained"):
            continue
        stage = STAGES.index(entry.stage) if entry.removed or entry.generation >= policy.generation else -1
        name = f"{member.name}/{lost.process.partition('/')[0]}"
        text = f"another directory is under this name now; the lost one has {_undelivered(lost.undelivered)}"
        yield Part(name, stage, "Lost", text, runs=False)


def _undelivered(events: int) -> str:
    return "1 undelivered event" if events == 1 else f"{events:,} undelivered events"
