"""Revisions as people see them: received → active → drained, and what each waits for. Pure.

A revision is drained when every event that entered under an older one has its final answer. So what revision 7 waits
for are the drains of revisions below 7. A drain is named after the revision under which its events entered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shipper.status.rates import NO_RATES, Rates
from shipper.status.remedies import Remedy, of_drain, passing

Place: TypeAlias = tuple[int, int]
"""Epoch and number."""
Step = Literal["sent", "received", "active", "drained"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Events of one revision that wait for one output, below a newer revision."""

    revision: str
    output: str
    events: int
    oldest_seconds: float
    reason: str
    code: str
    held: bool
    """Whether it waits for a person."""
    credentials: tuple[str, ...] = ()
    """The ids that it needs."""
    per_second: float | None = None
    """How fast it shrinks; None: not known, or it does not."""
    remedies: tuple[Remedy, ...] = ()
    """Commands that end it, the gentlest first."""

    @property
    def ends(self) -> str:
        """What ends it without an order, in words."""
        return passing(self.code)

    @property
    def seconds_left(self) -> float | None:
        """When it ends at this rate, in seconds; None if that is not known."""
        return self.events / self.per_second if self.per_second else None


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision: the last step that it has reached, and what hinders the next."""

    name: str
    step: Step
    is_active: bool
    """Whether it is the one that runs."""
    own: tuple[Wait, ...] = ()
    """Its own events, which newer revisions wait for."""
    waits: tuple[Wait, ...] = ()
    """What it waits for until it is drained: events of older revisions."""
    more_events: int = 0
    """Events that it waits for beyond those of `waits`, which the document does not list."""

    @property
    def events(self) -> int:
        """The events that its own waits have together; one that waits for two outputs counts for each."""
        return sum(wait.events for wait in self.own)

    @property
    def waits_for(self) -> int:
        """The events of older revisions that it waits for, counted in the same way."""
        return sum(wait.events for wait in self.waits) + self.more_events

    @property
    def is_held(self) -> bool:
        """Whether it waits for a person."""
        return any(wait.held for wait in self.waits)


def named(at: Sequence[int]) -> str:
    """Returns a revision as people write it: `7`, or `1:7` in epoch 1."""
    return f"{at[0]}:{at[1]}" if at[0] else str(at[1])


def waits(
    observed: Mapping[str, Any], rates: Rates = NO_RATES, directory: str = "", orders: Collection[str] = ()
) -> dict[Place, list[Wait]]:
    """Returns the drains of a document, by revision; `directory` and `orders` are for the commands."""
    found: dict[Place, list[Wait]] = {}
    for drain in observed.get("draining") or ():
        place = (drain.get("epoch", 0), drain["revision"])
        found[place] = [_wait(drain, output, rates, directory, orders) for output in drain["outputs"]]
    return dict(sorted(found.items()))


def _wait(drain: Mapping[str, Any], output: str, rates: Rates, directory: str, orders: Collection[str]) -> Wait:
    waiting, epoch = drain["outputs"][output], drain.get("epoch", 0)
    change = rates.change("draining", f"{epoch}:{drain['revision']}", output)
    known = {"epoch": epoch, "oldest_seconds": 0.0, **drain}
    return Wait(
        revision=named((epoch, drain["revision"])),
        output=output,
        events=waiting["events"],
        oldest_seconds=known["oldest_seconds"],
        reason=waiting.get("reason", ""),
        code=waiting.get("code", ""),
        held=waiting.get("held", False),
        credentials=tuple(waiting.get("credentials") or ()),
        per_second=-change if change is not None and change < 0 else None,
        remedies=tuple(of_drain(known, output, directory, orders)) if directory else (),
    )


def revisions(
    observed: Mapping[str, Any], found: Mapping[Place, Sequence[Wait]], wanted: Sequence[int] | None = None
) -> list[Revision]:
    """Returns the revisions that a document names, the newest first.

    `found` are the drains (`waits`), `wanted` is the revision that the supervisor wants, if it is known.
    """
    stages = {stage: tuple(at) for stage, at in (observed.get("revisions") or {}).items() if at is not None}
    places = {*found, *stages.values(), *([tuple(wanted)] if wanted else [])}
    more = (observed.get("draining_left_out") or {}).get("events", 0)
    return [_revision(place, stages, found, more) for place in sorted(places - {(0, 0)}, reverse=True)]


def _revision(place: Place, stages: Mapping[str, Place], found: Mapping[Place, Sequence[Wait]], more: int) -> Revision:
    step: Step = next(_reached(place, stages), "sent")
    is_waiting = step == "active"
    return Revision(
        name=named(place),
        step=step,
        is_active=stages.get("active") == place,
        own=tuple(found.get(place, ())),
        waits=tuple(wait for older, those in found.items() if older < place for wait in those) if is_waiting else (),
        more_events=more if is_waiting and place >= max(stages.values(), default=place) else 0,
    )


def _reached(place: Place, stages: Mapping[str, Place]) -> Iterator[Step]:
    """Yields the steps that a revision has reached, the last first; one that was overtaken has reached what a newer
    one has."""
    steps: tuple[Step, ...] = ("drained", "active", "received")
    yield from (step for step in steps if step in stages and place <= stages[step])
