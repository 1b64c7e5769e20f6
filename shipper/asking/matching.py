"""Compares events with expected ones, field by field. Pure.

An expected event names the fields that matter, by dotted names or nested. Fields that it does not name may have any
value; a field that it expects to be null must be absent. Numbers are equal by their value, and never equal to texts or
to truth values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shipper.plugin import Fields

ABSENT = object()
"""The value of a field that an event does not have."""


class Difference(NamedTuple):
    """A field with another value than expected; ABSENT where there is none."""

    field: str
    expected: Any
    came: Any


@dataclass(frozen=True, slots=True)
class Compared:
    """An expected event and the one that came in its place; None where there is none."""

    expected: Fields | None
    came: Fields | None
    differences: Sequence[Difference] = ()

    @property
    def is_good(self) -> bool:
        return self.expected is not None and self.came is not None and not self.differences


def compared(
    expected: Sequence[Fields], came: Sequence[Fields], given: Sequence[Fields] | None = None
) -> list[Compared]:
    """Returns the expected events beside those that came, in order.

    With `given`, the events before any processor, an event may have no field that is not expected, unless a given
    event has it with the same value. Where the numbers of events differ, those that match stay together.
    """
    before = None if given is None else [flat(one) for one in given]
    found = [[differences(one, other, before) for other in came] for one in expected]

    def pair(at: int, other: int) -> Compared:
        return Compared(expected[at], came[other], found[at][other])

    if len(expected) == len(came):
        return [pair(at, at) for at in range(len(expected))]
    rows: list[Compared] = []
    at = other = 0
    for next_at, next_other in [*_matching(found, len(came)), (len(expected), len(came))]:
        both = min(next_at - at, next_other - other)
        rows += [pair(at + step, other + step) for step in range(both)]
        rows += [Compared(one, None) for one in expected[at + both : next_at]]
        rows += [Compared(None, one) for one in came[other + both : next_other]]
        if next_at < len(expected):
            rows.append(pair(next_at, next_other))
        at, other = next_at + 1, next_other + 1
    return rows


def _matching(found: Sequence[Sequence[Sequence[Difference]]], width: int) -> list[tuple[int, int]]:
    """Returns the longest sequence of pairs without a difference, in order."""
    longest = [[0] * (width + 1) for _ in range(len(found) + 1)]
    for at in reversed(range(len(found))):
        for other in reversed(range(width)):
            alone = max(longest[at + 1][other], longest[at][other + 1])
            longest[at][other] = alone if found[at][other] else max(alone, longest[at + 1][other + 1] + 1)
    pairs: list[tuple[int, int]] = []
    at = other = 0
    while at < len(found) and other < width:
        if not found[at][other] and longest[at][other] == longest[at + 1][other + 1] + 1:
            pairs.append((at, other))
            at, other = at + 1, other + 1
        elif longest[at + 1][other] >= longest[at][other + 1]:
            at += 1
        else:
            other += 1
    return pairs


def differences(expected: Fields, came: Fields, given: Sequence[Fields] | None = None) -> list[Difference]:
    """Returns the fields that differ, by name; `given` are flat."""
    has, wanted = flat(came), flat(expected)
    found = [
        Difference(name, ABSENT if value is None else value, has.get(name, ABSENT))
        for name, value in wanted.items()
        if not _fits(value, has.get(name, ABSENT))
    ]
    if given is not None:
        found += [
            Difference(name, ABSENT, value)
            for name, value in has.items()
            if name not in wanted and not any(same(value, one.get(name, ABSENT)) for one in given)
        ]
    return sorted(found, key=lambda one: one.field)


def _fits(expected: Any, came: Any) -> bool:
    return came is ABSENT or came is None if expected is None else same(expected, came)


def same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are equal."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return bool(one == other)


def flat(fields: Mapping[str, Any], above: str = "") -> Fields:
    """Returns nested fields by their dotted names; an empty mapping stays a value."""
    return dict(_flat(fields, above))


def _flat(fields: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        name = f"{above}.{key}" if above else key
        if isinstance(value, dict) and value:
            yield from _flat(value, name)
        else:
            yield name, value
