"""A processor with a condition: it gets only the events that meet it, and the others pass it by.

What it makes of them takes their places in the batch, so that the order of events stays. If it makes several parts, or
new events without the places of those that it was given (as a stage does), the other events are a part of their own,
before these.
"""

from __future__ import annotations

from collections.abc import Callable

from shipper.plugin import Batch, Condition, Part
from shipper.sdk.joining import rejoined


def on_those_that_meet(
    when: Condition | None, part: Part, run: Callable[[Part], list[Part]], *, anew: bool
) -> list[Part]:
    """Returns what `run` makes of the events of a part that meet a condition, together with the others.

    `anew`: what it makes are new events, which have no places in the batch.
    """
    if when is None:
        return run(part)
    batch, positions = part.batch, when.meet(part.batch)
    if len(positions) == batch.count:
        return run(part)
    if not positions:
        return [part]
    met = batch.pick(positions)
    made = run(part._replace(batch=met))
    if not anew and len(made) == 1 and made[0].outputs == part.outputs and _keeps_places(made[0].batch, met):
        return [part._replace(batch=rejoined(batch, positions, made[0].batch))]
    chosen = frozenset(positions)
    others = batch.pick([at for at in range(batch.count) if at not in chosen])
    return [part._replace(batch=others), *made]


def _keeps_places(made: Batch, met: Batch) -> bool:
    """Whether each event has the place of another one of those that were given."""
    items = made.items
    return items is not None and len({*items}) == made.count and {*items} <= {*(met.items or ())}
