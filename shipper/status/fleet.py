"""A fleet as people see it: versions × members, and who is behind and why. Pure.

It is made from the document of `GET /fleet/members`, which `shipper fleet status --json` prints as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Cell = Literal["drained", "active", "received", "none"]
STEPS: tuple[Cell, ...] = ("drained", "active", "received")
GONE = ("left", "forgotten")
"""Kinds of those that are members no longer."""
WELL = ("reached", "fenced", *GONE)
"""Kinds that keep nothing closed."""
MOST_VERSIONS = 12
"""Versions of a picture; the history has the others."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member: where it is, and why."""

    name: str
    kind: str
    behind: int
    """Versions that are newer than its drained one."""
    drained: str | None
    why: str
    events: int
    """Undelivered."""
    is_alive: bool
    seen: float
    """Unix seconds of its last report, by its own clock."""
    http: str
    """Where it can be asked; empty if it says nothing."""

    @property
    def is_behind(self) -> bool:
        """Whether it keeps the newest version from being drained everywhere."""
        return self.kind not in WELL


@dataclass(frozen=True, slots=True)
class Version:
    """One version: how far each member is with it, in the order of `Fleet.members` without those that are gone."""

    name: str
    at: float
    by: str
    why: str
    cells: tuple[Cell, ...]

    def count(self, cell: Cell) -> int:
        """Returns how many members have got just so far."""
        return self.cells.count(cell)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole fleet."""

    name: str
    state: str
    newest: str | None
    leader: str
    members: tuple[Member, ...]
    """Those that are behind first."""
    versions: tuple[Version, ...]
    """The newest first, at most MOST_VERSIONS."""
    older: int
    """Versions beyond these."""
    warnings: tuple[str, ...]

    @property
    def present(self) -> tuple[Member, ...]:
        """The members without those that are gone."""
        return tuple(member for member in self.members if member.kind not in GONE)

    @property
    def behind(self) -> tuple[Member, ...]:
        """Those that keep the newest version from being drained everywhere."""
        return tuple(member for member in self.members if member.is_behind)


def of(document: Mapping[str, Any]) -> Fleet:
    """Returns the fleet of a document."""
    places = {row["version"]: place for place, row in enumerate(document["versions"])}
    there = [each for each in document["members"] if each["kind"] not in GONE]
    shown = document["versions"][:MOST_VERSIONS]
    return Fleet(
        name=document["name"],
        state=document["state"],
        newest=document["newest"],
        leader=document["leader"],
        members=tuple(_member(each) for each in document["members"]),
        versions=tuple(_version(row, place, there, places) for place, row in enumerate(shown)),
        older=len(document["versions"]) - len(shown),
        warnings=(*_failing(document), *document["warnings"]),
    )


def _member(each: Mapping[str, Any]) -> Member:
    return Member(
        name=each["name"],
        kind=each["kind"],
        behind=each["behind"],
        drained=each["stages"].get("drained"),
        why="; ".join(filter(None, (each["why"], *each["problems"]))),
        events=each["undelivered"]["events"],
        is_alive=each["alive"],
        seen=each["seen"],
        http=each["http"],
    )


def _version(row: Mapping[str, Any], place: int, there: list[Mapping[str, Any]], places: Mapping[str, int]) -> Version:
    cells = tuple(_cell(each["stages"], place, places) for each in there)
    return Version(row["version"], row["at"], row["by"], row["why"], cells)


def _cell(stages: Mapping[str, str | None], place: int, places: Mapping[str, int]) -> Cell:
    """Returns how far a member is with the version at a place; the newest version is at 0."""
    reached = {step: places.get(stages.get(step) or "", len(places)) for step in STEPS}
    return next((step for step in STEPS if reached[step] <= place), "none")


def _failing(document: Mapping[str, Any]) -> Iterator[str]:
    for one in document["failing"]:
        yield f"on_release fails on {document['leader']} for {one['name']} {one['id']}"
