"""What a supervisor sees: units, what drains and why, how much waits. The whole is as bad as its worst unit.

Pure: made from what the parts say of themselves. A unit that is not doing its job is never HEALTHY.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shipper.messages import Draining, Revision, State, Unit, Waiting
from shipper.spool.figures import Amount

_SEVERITY: dict[State, int] = {
    "STOPPED": 0,
    "HEALTHY": 0,
    "STARTING": 1,
    "CONFIGURING": 1,
    "DEGRADED": 2,
    "FAILED": 3,
}


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane, as health sees it."""

    id: int
    output: str
    type: str
    active: bool
    problem: str | None


def output_units(lanes: Iterable[LaneView], unreadable: Mapping[str, str]) -> list[Unit]:
    """One unit for each output that is active or still drains, with the worst problem of its lanes."""
    units: dict[str, Unit] = {}
    for lane in sorted(lanes, key=lambda lane: (not lane.active, lane.id)):
        known = units.get(lane.output)
        if known is None or (known.state == "HEALTHY" and lane.problem):
            where = "" if lane.active else "draining: "
            state: State = "DEGRADED" if lane.problem else "HEALTHY"
            message = f"{where}{lane.problem}" if lane.problem else ""
            units[lane.output] = Unit(f"outputs.{lane.output}", "output", lane.type, state, message)
    for output, problem in unreadable.items():
        units[output] = Unit(f"outputs.{output}", "output", "", "DEGRADED", problem)
    return sorted(units.values(), key=lambda unit: unit.id)


def overall(units: Sequence[Unit], *, failure: str | None, running: bool, configuring: bool) -> tuple[State, str]:
    """State and message of the whole. `failure`: what keeps the process itself from working."""
    if failure is not None:
        return "FAILED", failure
    base: State = "CONFIGURING" if configuring else "HEALTHY" if running else "STARTING"
    worst = max(units, key=lambda unit: _SEVERITY.get(unit.state, 0), default=None)
    if worst is None or _SEVERITY.get(worst.state, 0) <= _SEVERITY[base]:
        return base, "" if running else "waiting for a policy"
    kind, _, name = worst.id.partition(".")
    return worst.state, f"{kind[:-1]} {name}: {worst.message}"


def draining(
    lanes: Mapping[int, LaneView],
    amounts: Iterable[tuple[Revision, int, Amount]],
    totals: Mapping[Revision, Amount],
    first: Mapping[Revision, float],
    now: float,
) -> list[Draining]:
    """By the revision under which events entered: what lanes still hold of it below a barrier.

    `amounts` are (revision, lane, amount) of it, `totals` count each event once, `first` says when the first
    event of a revision that still waits entered.
    """
    outputs: dict[Revision, dict[str, Waiting]] = {}
    for revision, id, amount in amounts:
        lane = lanes[id]
        seen = outputs.setdefault(revision, {}).get(lane.output)
        reason = lane.problem or (seen.reason if seen is not None else "delivering")
        events = amount.events + (seen.events if seen is not None else 0)
        outputs[revision][lane.output] = Waiting(events, reason)
    return [
        Draining(
            epoch=revision.epoch,
            revision=revision.number,
            events=totals[revision].events,
            bytes=totals[revision].bytes,
            oldest_seconds=round(max(0.0, now - first.get(revision, now)), 3),
            outputs=waiting,
        )
        for revision, waiting in sorted(outputs.items())
    ]
