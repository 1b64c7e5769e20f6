"""Health for a supervisor: units, drains and their causes, figures.

The whole is as bad as its worst unit; of those that are equally bad it names one that needs a person.
Pure: made from the statements of the parts. A unit that does not do its job is never HEALTHY.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shipper.protocol.bounds import LIST_BYTES, cut, fitting
from shipper.protocol.messages import Draining, DrainsLeftOut, Failing, State, Unit, Waiting
from shipper.sdk.codes import Code, Why
from shipper.values import Revision

if TYPE_CHECKING:
    from shipper.spool.figures import Amount, Figures

MOST_DRAINS = 256
"""Units in one `observed`."""
MOST_OUTPUTS = 64
"""Outputs of one drain."""
LONGEST_REASON = 300
"""In a drain, in characters; that of its unit may be longer."""
LONG_SECONDS = 60.0
"""After which the message of an output names the batch that fails."""
_SEVERITY: dict[State, int] = {
    "STOPPED": 0,
    "HEALTHY": 0,
    "STARTING": 1,
    "CONFIGURING": 1,
    "DEGRADED": 2,
    "FAILED": 3,
}
NEEDS_PERSON = frozenset(
    {
        *(Code.UNAUTHORIZED, Code.FORBIDDEN, Code.REFUSED, Code.LOCKED, Code.ORDER_NEEDED),
        *(Code.CREDENTIAL_MISSING, Code.CREDENTIAL_WITHDRAWN, Code.CREDENTIAL_CONFLICT, Code.CREDENTIAL_INVALID),
        *(Code.DEAD_LETTERS_FULL, Code.DISK_FULL, Code.DISK_FAILED),
        *(Code.PLUGIN_FAULT, Code.UNKNOWN_PLUGIN, Code.BAD_OPTION),
    }
)
"""Codes of problems that do not pass by themselves."""
_NEED_PERSON = frozenset({"policy", "secret", "state_key", "state", "sidecar"})
"""The same of the kinds of a supervisor's troubles."""
_WELL = ("STARTING", "CONFIGURING", "HEALTHY", "UNKNOWN")
"""UNKNOWN is the state that a supervisor reports before its shipper has reported."""


class LaneView(msgspec.Struct, frozen=True):
    """The health of a lane."""

    id: int
    output: str
    type: str
    active: bool
    problem: str | None
    credentials: tuple[str, ...] = ()
    destination: str = ""
    held: bool = False
    code: str = Code.OK
    failing: tuple[int, float] | None = None
    """The batch that fails again and again, and for how many seconds."""


def output_units(lanes: Iterable[LaneView], unreadable: Mapping[str, Why]) -> list[Unit]:
    """Returns one unit for each output that is active or drains, with the worst problem of its lanes."""
    units: dict[str, Unit] = {}
    for lane in sorted(lanes, key=lambda lane: (not lane.active, lane.id)):
        known = units.get(lane.output)
        if known is None or (known.state == "HEALTHY" and lane.problem):
            units[lane.output] = _output_unit(lane)
    for output, why in unreadable.items():
        units[output] = Unit(f"outputs.{output}", "output", "", "DEGRADED", why.problem, code=why.code)
    return sorted(units.values(), key=lambda unit: unit.id)


def _output_unit(lane: LaneView) -> Unit:
    id = f"outputs.{lane.output}"
    if not lane.problem:
        return Unit(id, "output", lane.type, "HEALTHY", code=lane.code)
    message = lane.problem if lane.active else f"draining: {lane.problem}"
    if lane.failing is None:
        return Unit(id, "output", lane.type, "DEGRADED", message, code=lane.code)
    batch, seconds = lane.failing
    if seconds > LONG_SECONDS:
        message += f"; it is batch {batch} that fails"
    return Unit(id, "output", lane.type, "DEGRADED", message, code=lane.code, failing=Failing(batch, round(seconds, 3)))


class Whole(NamedTuple):
    """State, message and code of the whole shipper."""

    state: State
    message: str
    code: str


def overall(units: Sequence[Unit], *, failure: Why | None, running: bool, configuring: bool) -> Whole:
    """Returns the state of the whole. `failure`: a failure of the process itself."""
    if failure is not None:
        return Whole("FAILED", failure.problem, failure.code)
    base: State = "CONFIGURING" if configuring else "HEALTHY" if running else "STARTING"
    worst = max(units, key=_weight, default=None)
    if worst is None or _SEVERITY.get(worst.state, 0) <= _SEVERITY[base]:
        return Whole(base, "" if running else "waiting for a policy", Code.OK)
    kind, _, name = worst.id.partition(".")
    return Whole(worst.state, f"{kind[:-1]} {name}: {worst.message}", worst.code)


def also(unit: Unit, problem: str, code: str) -> Unit:
    """Returns the unit with another problem; a unit with a problem of its own keeps its code."""
    code = code if unit.state == "HEALTHY" else unit.code
    message = f"{problem}; {unit.message}".rstrip("; ")
    return msgspec.structs.replace(unit, state="DEGRADED", message=message, code=code)


def hindered(state: str, message: str, code: str, troubles: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Returns state and message of the whole, supervisor included. `troubles` are kinds and causes of the supervisor's.

    One of them degrades a better state. One that needs a person is named before what passes by itself, and beside what
    needs a person too.
    """
    kind, cause = min(troubles, key=lambda trouble: trouble[0] not in _NEED_PERSON, default=("", ""))
    if cause and state in _WELL:
        return "DEGRADED", cause
    if kind in _NEED_PERSON and state == "DEGRADED":
        return state, f"{cause}; {message}" if code in NEEDS_PERSON else cause
    return state, message


def _weight(unit: Unit) -> tuple[int, bool]:
    return _SEVERITY.get(unit.state, 0), unit.code in NEEDS_PERSON


def draining(
    lanes: Mapping[int, LaneView],
    amounts: Iterable[tuple[Revision, int, Amount]],
    totals: Mapping[Revision, Amount],
    oldest: Mapping[Revision, float],
    now: float,
) -> tuple[list[Draining], DrainsLeftOut]:
    """Returns the drains by the revision under which events entered, and the sums of those left out.

    `amounts` are (revision, lane, amount) of the oldest MOST_DRAINS revisions. `totals` are the amounts of all
    revisions, in which an event counts once. `oldest` are the times at which the oldest waiting event of each revision
    entered. The newest drains are left out, since they wait for the oldest.
    """
    served = {lane.output for lane in lanes.values() if lane.active}
    now_there = {_place(lane): lane.credentials for lane in lanes.values() if lane.active}
    outputs: dict[Revision, dict[str, Waiting]] = {}
    for revision, id, amount in amounts:
        lane = lanes[id]
        old, new = _successor(lane, now_there.get(_place(lane), ())) or (None, None)
        seen = outputs.setdefault(revision, {}).get(lane.output, Waiting(0, "delivering", code=Code.DELIVERING))
        outputs[revision][lane.output] = Waiting(
            events=seen.events + amount.events,
            reason=cut(lane.problem or seen.reason, LONGEST_REASON),
            code=lane.code if lane.problem else seen.code,
            credentials=sorted({*seen.credentials, *lane.credentials}),
            held=seen.held or lane.held,
            rebind_to=seen.rebind_to or new,
            rebind_from=sorted({*seen.rebind_from, *([] if old is None else [old])}),
            forward=seen.forward or (not lane.active and lane.output in served),
        )
    drains = [
        Draining(
            epoch=revision.epoch,
            revision=revision.number,
            events=totals[revision].events,
            bytes=totals[revision].bytes,
            oldest_seconds=round(max(0.0, now - oldest.get(revision, now)), 3),
            outputs=dict(islice(waiting.items(), MOST_OUTPUTS)),
            outputs_left_out=max(0, len(waiting) - MOST_OUTPUTS),
        )
        for revision, waiting in sorted(outputs.items())
    ]
    drains = drains[: fitting(drains, LIST_BYTES)]
    others = [totals[revision] for revision in sorted(totals)[len(drains) :]]
    events, size = sum(amount.events for amount in others), sum(amount.bytes for amount in others)
    return drains, DrainsLeftOut(len(others), events, size)


def drains(
    lanes: Mapping[int, LaneView],
    figures: Figures,
    barriers: Mapping[int, Revision],
    oldest_of: Callable[[Collection[tuple[Revision, int]]], Mapping[Revision, float]],
    now: float,
) -> tuple[list[Draining], DrainsLeftOut]:
    """Returns the oldest drains, as many as an `observed` may list, and the sums of the others.

    A drain is the set of events of a revision below a barrier of a lane, or on a retired lane. `barriers` are the last
    ones, by lane; `oldest_of` returns, for (revision, lane) pairs, when a revision's first event entered.
    """
    pairs = [
        (at, lane)
        for at, lane in figures.pairs(lanes)
        if not lanes[lane].active or (lane in barriers and at < barriers[lane])
    ]
    totals = figures.revisions(frozenset(pairs))
    listed = frozenset(sorted(totals)[:MOST_DRAINS])
    pairs = [pair for pair in pairs if pair[0] in listed]
    amounts = [(at, lane, figures.of_pair(at, lane)) for at, lane in pairs]
    return draining(lanes, amounts, totals, oldest_of(pairs), now)


def most_important(units: Sequence[Unit]) -> Sequence[Unit]:
    """Returns the worst units, as many as an `observed` may list, in their order."""
    worst_first = sorted(units, key=_weight, reverse=True)
    kept = {unit.id for unit in worst_first[: fitting(worst_first, LIST_BYTES)]}
    return [unit for unit in units if unit.id in kept]


def _place(lane: LaneView) -> tuple[str, str, str]:
    return lane.output, lane.type, lane.destination


def _successor(lane: LaneView, now: Collection[str]) -> tuple[str, str] | None:
    """Returns the one credential of a retired lane that those `now` at its destination replace, and its successor."""
    if lane.active:
        return None
    old, new = set(lane.credentials) - set(now), set(now) - set(lane.credentials)
    return (old.pop(), new.pop()) if len(old) == len(new) == 1 else None
