"""Directories that were registered under the name of a member before, and were lost."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from msgspec.structs import replace

from shipper.fleet.records import Lost, Report, Undelivered

LOST = 32
"""Lost directories that a report lists; the oldest are joined to one, under the name of the last of them."""
FORGOTTEN = 4
"""Of them, those that were forgotten before another directory took their name: the newest."""


def counts_as_lost(old: Report) -> bool:
    """Returns whether a directory may have left something undone: events, or credentials in use."""
    if old.undelivered.events:
        return True
    return old.state != "left" and (old.state == "member" or old.begun is not None or bool(old.stages))


def lost_with(old: Report, wall: float) -> Lost:
    """Returns the loss of the directory that has written this report."""
    return Lost(old.directory, wall, old.stages, old.undelivered, forgotten=old.state == "forgotten")


def lost_before(found: Report) -> tuple[Lost, ...]:
    """Returns what the next report lists of a record; who forgot the member forgot these too."""
    return tuple(replace(one, forgotten=one.forgotten or found.state == "forgotten") for one in found.lost)


def bounded(lost: Sequence[Lost]) -> list[Lost]:
    """Returns as many as a report lists; of those that count, without losing any events: the joined ones have reached
    what both had."""
    forgotten = [one for one in lost if one.forgotten][-FORGOTTEN:]
    counted = [one for one in lost if not one.forgotten]
    if (more := len(counted) - LOST) > 0:
        counted = [functools.reduce(_joined, counted[: more + 1]), *counted[more + 1 :]]
    return [*forgotten, *counted]


def _joined(one: Lost, other: Lost) -> Lost:
    both = one.stages.keys() & other.stages.keys()
    a, b = one.undelivered, other.undelivered
    return Lost(
        other.directory,
        other.at,
        {stage: min(one.stages[stage], other.stages[stage]) for stage in both},
        Undelivered(a.events + b.events, a.bytes + b.bytes, max(a.oldest_seconds, b.oldest_seconds)),
    )
