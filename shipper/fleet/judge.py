"""The answer to "has version N reached this stage everywhere?", from what an observer has seen; pure.

The standings of all members (`standings`) are counted. The answer is open if no member keeps it closed, and refused if
one has refused; a store that was restored gives no answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from shipper.fleet.records import Head, Undelivered, Version
from shipper.fleet.standings import NO_MEMBERS, OPENING, Kind, Standing, due_of, standings
from shipper.fleet.view import View, restored
from shipper.supervise.answers import Stage

State = Literal["open", "closed", "refused", "unknown", "gone", "store_restored"]

_ORDER: tuple[Kind, ...] = (
    *("refused", "unauthentic", "absent", "joining", "waiting"),
    *("fenced", "forgotten", "left", "reached"),
)
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
            if found and (at := due_of(view, name, found[0], self._grace)) is not None:
                self._due[name] = at

    def _warnings(self, view: View) -> Iterator[str]:
        if view.is_restored or view.head.accepting is not None:
            yield restored(view)
        elif self._target == "gone":
            yield from _instead(view, self._asked)
        elif isinstance(self._target, Version) and not has_members(self._counts):
            yield "the fleet has no members"


def has_members(counts: Mapping[Kind, int]) -> bool:
    """Returns whether a fleet with so many members of each kind has any."""
    return any(count for kind, count in counts.items() if kind not in NO_MEMBERS)


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
