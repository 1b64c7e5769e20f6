"""The finalizer of a policy with `onDelete.drain`: its deletion waits for its events, for a limited time. Pure.

A policy that wants it gets it while it is not being deleted; one that wants it no longer loses it. When it is being
deleted, every member removes it. The finalizer goes when all have drained that, or at the deadline. The deadline counts
from the time of deletion, by the clock of the API server's machine; so a clock that is wrong makes it longer or
shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from shipper.kubernetes.kinds import DRAIN, OnDelete, PolicyStatus
from shipper.kubernetes.summing.judge import is_drained
from shipper.kubernetes.summing.records import Policy
from shipper.sdk.units import Duration

DEADLINE = 3600.0
"""Seconds, of a deadline that cannot be read."""


@dataclass(frozen=True)
class Step:
    """What is to be done about the finalizer."""

    finalizers: tuple[str, ...] | None = None
    """Those that the policy should have; None if nothing is to be written."""
    look_again: float | None = None
    """Seconds since 1970 at which the deadline ends."""
    said: str = ""
    """A sentence for the log: the finalizer goes, with events that have not drained."""


def finalize(policy: Policy, status: PolicyStatus, wall: float) -> Step:
    """Returns the step for a policy with the status that was judged for it; `wall`: seconds since 1970."""
    has = DRAIN in policy.finalizers
    if not policy.deleted_at:
        wants = policy.spec is not None and policy.spec.on_delete.drain
        if wants == has or policy.spec is None:
            return Step()
        return Step(_with(policy) if wants else _without(policy))
    if not has:
        return Step()
    if status.observed_generation == policy.generation and is_drained(status):
        return Step(_without(policy))
    end = _epoch(policy.deleted_at, wall) + deadline(policy.spec.on_delete if policy.spec else OnDelete())
    if wall < end:
        return Step(look_again=end)
    waiting = ", ".join(one.member for one in status.waiting[:3]) or "members that have not reported"
    text = f"ShipperPolicy {policy.name} is deleted after its deadline, though events have not drained: {waiting}"
    return Step(_without(policy), said=text)


def deadline(of: OnDelete) -> float:
    """Returns the seconds that a deletion waits at most."""
    try:
        return float(Duration.parse(of.deadline))
    except ValueError:
        return DEADLINE


def explained(status: PolicyStatus, until: float) -> PolicyStatus:
    """Returns the status whose Drained says until when the deletion waits at most, in seconds since 1970."""
    text = f"the deletion waits until {datetime.fromtimestamp(until, UTC):%Y-%m-%dT%H:%M:%SZ}"
    conditions = tuple(
        replace(one, message=f"{one.message}; {text}") if one.type == "Drained" else one for one in status.conditions
    )
    return replace(status, conditions=conditions)


def _with(policy: Policy) -> tuple[str, ...]:
    return (*policy.finalizers, DRAIN)


def _without(policy: Policy) -> tuple[str, ...]:
    return tuple(one for one in policy.finalizers if one != DRAIN)


def _epoch(text: str, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return otherwise
