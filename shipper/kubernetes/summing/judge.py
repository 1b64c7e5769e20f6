"""What the status of a policy is. Pure.

A policy *concerns* the members that it selects, and those that still have something of it: an entry that is not
finished (removed and drained), also one of a lost directory.

| condition | True if |
|---|---|
| Received | each selected member has got this generation, or a later one |
| Active   | each selected member runs it, and no other member does |
| Drained  | and no concerned member has an event of before it |
| Degraded | something needs a person, or may: a member is absent, lost, ended with events, refuses, or says so itself |

- A new generation is observed, and Drained is taken back, in one status, so in one write.
- Drained, once True for a generation, stays so although members join: what they take in is of this generation or of a
  later one. That is so because a member registers before it lists policies, and reads a policy that is new to it again
  after it has announced it. It is taken back if a member is found to be behind.
- While a member is registering, which has not said yet what it has, Drained does not become True, whatever the last
  process of that name has left.
- A policy without members is not Received or Active for the reason NoMembers: nobody has carried it out. These are
  Unknown if there never was a member: perhaps its selector has a mistake. It is Drained, for the same reason, if there
  never was a member, or all have ended and the policy says that what they had is to be ignored. Else it is not, since
  members may have been deleted with events.
- A refusal (nack) of a newer generation than the one that runs keeps Received False. One of the generation that runs,
  whose Secret was deleted for example, makes the policy Degraded: it runs on.
- An absent member keeps its stages: what has drained stays drained.
- A member that has ended, whose directory is gone with its Pod, uses nothing any more. It counts only while it has
  undelivered events that nobody will deliver, unless the policy says that those are to be ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from shipper.kubernetes.kinds import (
    STAGES,
    Condition,
    Counts,
    Nack,
    PolicySpec,
    PolicyStatus,
    Waiting,
)
from shipper.kubernetes.summing.parts import DRAINED, WORST, Part, Standings, concerned
from shipper.kubernetes.summing.records import Member, Policy

MOST_WAITING = 50
"""Members that `waiting` lists."""
MOST_NAMED = 3
"""Members that a message names."""
LONGEST = 1000
"""Characters of what a message quotes."""

Status = Literal["True", "False", "Unknown"]
_NEVER = "no member has these labels, or none was started yet"
_REASONS = {
    "invalid": "Invalid",
    "conflict": "Conflict",
    "secret_missing": "SecretMissing",
    "unsupported": "Unsupported",
    "failed": "Failed",
}


@dataclass
class _Verdict:
    """One condition before it is compared with the last one."""

    type: str
    status: Status
    reason: str
    message: str = ""


def judge(policy: Policy, members: Iterable[Member], standings: Standings, now: str) -> PolicyStatus:
    """Returns the status that a policy should have. It is that of the policy if nothing has changed.

    `policy` must have been read before `members` were listed. `now` is the time for conditions that change, as RFC 3339
    has it. The token of the leader is the caller's.
    """
    if policy.spec is None:
        return policy.status
    parts = list(concerned(policy, members, standings))
    before = policy.status
    behind = [part for part in parts if part.drains and part.stage < DRAINED]
    latched = _condition(before, "Drained", policy.generation) == "True" and all(part.joins for part in behind)
    waiting = [] if latched else behind
    unknown = () if latched else sorted(standings.registering - {part.name for part in parts if part.drains})
    verdicts = [
        _running("Received", policy, parts, "received"),
        _running("Active", policy, parts, "active"),
        _drained(policy, parts, waiting, unknown, latched),
        _degraded(policy, parts, standings),
    ]
    listed = sorted(waiting, key=lambda part: (WORST.index(part.why), part.name))
    return PolicyStatus(
        observed_generation=policy.generation,
        conditions=tuple(_dated(one, before, policy.generation, now) for one in verdicts if one is not None),
        members=_counts(parts),
        waiting=tuple(Waiting(part.name, _stage(part), _short(_explained(part))) for part in listed[:MOST_WAITING]),
        waits_for=tuple(sorted({name for part in waiting for name in part.waits_for})[:MOST_WAITING]),
        leader=before.leader,
    )


def is_drained(status: PolicyStatus) -> bool:
    """Whether a status says Drained of the generation that it observes."""
    return _condition(status, "Drained", status.observed_generation) == "True"


# -- conditions --------------------------------------------------------------------------------------------------------


def _running(type: str, policy: Policy, parts: Sequence[Part], stage: str) -> _Verdict:
    if policy.deleted_at:
        return _Verdict(type, "False", "Deleted", "this policy is being deleted")
    runs = [part for part in parts if part.runs]
    if not runs:
        return _nobody(type, policy, parts)
    waiting = [part for part in runs if part.stage < STAGES.index(stage)]
    if waiting:
        return _waits(type, policy, runs, waiting)
    return _Verdict(type, "True", f"All{type}", f"{_members(len(runs))}: {type.lower()} generation {policy.generation}")


def _drained(
    policy: Policy, parts: Sequence[Part], waiting: Sequence[Part], unknown: Sequence[str], latched: bool
) -> _Verdict:
    if waiting:
        return _waits("Drained", policy, [part for part in parts if part.drains], waiting)
    if unknown:
        text = f"may live, and has not said yet what it has: {_names(unknown)}"
        return _Verdict("Drained", "False", "Registering", text)
    counted = [part for part in parts if part.drains]
    if not counted and not policy.deleted_at:
        if not latched:
            return _drained_by_nobody(policy, parts)
        (before,) = (one for one in policy.status.conditions if one.type == "Drained")
        if before.reason == "NoMembers":
            return _Verdict("Drained", "True", before.reason, before.message)
    text = f"{_members(len(counted))}: no event is left of before generation {policy.generation}"
    return _Verdict("Drained", "True", "AllDrained", text)


def _nobody(type: str, policy: Policy, parts: Sequence[Part]) -> _Verdict:
    was_there = _had_members(policy, parts, type)
    text = "no member runs it now" if was_there else _NEVER
    return _Verdict(type, "False" if was_there else "Unknown", "NoMembers", text)


def _drained_by_nobody(policy: Policy, parts: Sequence[Part]) -> _Verdict:
    if not _had_members(policy, parts, "Drained"):
        return _Verdict("Drained", "True", "NoMembers", f"{_NEVER}: no event is left of before this generation")
    if cast(PolicySpec, policy.spec).ended_members == "ignore":
        names = _names([one.name for one in parts])
        ignored = f", and what they had not delivered is ignored: {names}" if parts else ""
        return _Verdict("Drained", "True", "NoMembers", f"all members have ended{ignored}")
    return _nobody("Drained", policy, parts)


def _had_members(policy: Policy, parts: Sequence[Part], type: str) -> bool:
    """Whether there was a member once."""
    before = next((one for one in policy.status.conditions if one.type == type), None)
    if policy.status.members.registered > 0 or any(part.why != "Lost" for part in parts):
        return True
    never = [("Unknown", "NoMembers"), ("True", "NoMembers"), ("False", "Registering")]
    return before is not None and (before.status, before.reason) not in never


def _waits(type: str, policy: Policy, all: Sequence[Part], waiting: Sequence[Part]) -> _Verdict:
    worst = min(waiting, key=lambda part: (WORST.index(part.why), part.name))
    done = len(all) - len(waiting)
    text = f"{done} of {_members(len(all))}: {type.lower()} generation {policy.generation}"
    if worst.is_refusing and worst.nack is not None:
        refusing = [part.name for part in waiting if part.is_refusing]
        return _Verdict(
            type, "False", _REASONS[worst.nack.reason], f"{_refusal(worst.nack)} ({_names(refusing)}); {text}"
        )
    others = sorted({name for part in waiting for name in part.waits_for}) if type == "Drained" else []
    if others and worst.why == "Waiting":
        return _Verdict(type, "False", "WaitsForPolicies", f"events of {_names(others)} have to drain first; {text}")
    same = [part.name for part in waiting if part.why == worst.why]
    return _Verdict(type, "False", worst.why, f"{_cause(worst, same)}; {text}")


def _cause(worst: Part, names: Sequence[str]) -> str:
    words = {
        "Unreadable": "the status of {} cannot be read",
        "Lost": "a directory was lost: {}",
        "Ended": "the Pod is gone, with undelivered events: {}",
        "Absent": "does not renew its Lease: {}",
        "Left": "left with undelivered events: {}",
        "Registering": "has not said yet what it has: {}",
        "Waiting": "waits for {}",
    }
    return words[worst.why].format(_names(names))


def _degraded(policy: Policy, parts: Sequence[Part], standings: Standings) -> _Verdict:
    causes: list[tuple[str, str]] = []
    refusing = [part for part in parts if part.nack is not None]
    if refusing and refusing[0].nack is not None:
        worst = min(refusing, key=lambda part: (not part.is_refusing, part.name))
        nack = cast(Nack, worst.nack)
        causes.append((_REASONS[nack.reason], f"{_refusal(nack)} ({_names([part.name for part in refusing])})"))
    for why, reason in (("Unreadable", "Unreadable"), ("Lost", "Lost"), ("Ended", "Ended"), ("Left", "Left")):
        found = [part for part in parts if part.why == why and part.drains]
        if found:
            causes.append((reason, _cause(found[0], [part.name for part in found])))
    absent = [part.name for part in parts if part.absent]
    if absent:
        causes.append(("Absent", f"does not renew its Lease: {_names(absent)}"))
    sick = [part for part in parts if part.degraded]
    if sick:
        causes.append(("Member", f"{sick[0].name}: {_short(sick[0].degraded)}{_more(len(sick) - 1)}"))
    if causes:
        return _Verdict("Degraded", "True", causes[0][0], "; ".join(text for _, text in causes))
    if any(part.name in standings.unproven for part in parts):
        before = next((one for one in policy.status.conditions if one.type == "Degraded"), None)
        if before is not None and before.reason == "Absent":  # which a new leader cannot know yet
            return _Verdict("Degraded", before.status, before.reason, before.message)
    return _Verdict("Degraded", "False", "AsExpected")


# -- words and figures -------------------------------------------------------------------------------------------------


def _counts(parts: Sequence[Part]) -> Counts:
    live = [part for part in parts if part.why != "Lost"]
    return Counts(
        registered=len(live),
        active=sum(part.runs and part.stage >= STAGES.index("active") for part in live),
        drained=sum(part.stage >= DRAINED for part in live),
        absent=sum(part.absent for part in live),
        ended=sum(part.ended for part in live),
        refused=sum(part.is_refusing for part in live),
    )


def _dated(one: _Verdict, before: PolicyStatus, generation: int, now: str) -> Condition:
    known = next((condition for condition in before.conditions if condition.type == one.type), None)
    changed = known is None or known.status != one.status or not known.last_transition_time
    at = now if known is None or changed else known.last_transition_time
    return Condition(one.type, one.status, generation, one.reason, one.message, at)


def _condition(status: PolicyStatus, type: str, generation: int) -> str:
    return next(
        (one.status for one in status.conditions if one.type == type and one.observed_generation == generation), ""
    )


def _stage(part: Part) -> str:
    return STAGES[part.stage] if part.stage >= 0 else ""


def _explained(part: Part) -> str:
    if part.is_refusing and part.nack is not None:
        return f"{_REASONS[part.nack.reason]}: {_refusal(part.nack)}"
    if part.text:
        return f"{part.why}: {part.text}"
    return f"WaitsForPolicies: {_names(part.waits_for)}" if part.waits_for else part.why


def _refusal(nack: Nack) -> str:
    return _short(f"{nack.path}: {nack.message}" if nack.path else nack.message)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _names(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:MOST_NAMED]) + _more(len(names) - MOST_NAMED)


def _more(others: int) -> str:
    return f" and {others} more" if others > 0 else ""


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"
