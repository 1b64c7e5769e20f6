"""Directories that were registered under the name of a member before, and were lost."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shipper.fleet.records import Lost, Report, Undelivered

LOST = 32
"""Lost directories that a report lists; the oldest are joined to one, under the name of the last of them."""


def counts_as_lost(old: Report) -> bool:
    """Returns whether a directory may have left something undone: events, or credentials in use. Who forgot it knew
    that."""
    if old.state == "forgotten":
        return False
    if old.undelivered.events:
        return True
    return old.state != "left" and (old.state == "member" or old.begun is not None or bool(old.stages))


def lost_with(old: Report, wall: float) -> Lost:
    """Returns the loss of the directory that has written this report."""
    return Lost(old.directory, wall, old.stages, old.undelivered)


def bounded(lost: Sequence[Lost]) -> list[Lost]:
    """Returns as many as a report lists, without losing any events: the joined ones have reached what both had."""
    more = len(lost) - LOST
    return [functools.reduce(_joined, lost[: more + 1]), *lost[more + 1 :]] if more > 0 else list(lost)


def _joined(one: Lost, other: Lost) -> Lost:
    both = one.stages.keys() & other.stages.keys()
    a, b = one.undelivered, other.undelivered
    return Lost(
        other.directory,
        other.at,
        {stage: min(one.stages[stage], other.stages[stage]) for stage in both},
        Undelivered(a.events + b.events, a.bytes + b.bytes, max(a.oldest_seconds, b.oldest_seconds)),
    )
