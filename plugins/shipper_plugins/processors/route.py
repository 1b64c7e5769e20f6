"""`route`: assigns events to outputs.

    type: route
    routes:
      - when: {equals: {log.level: error}}
        outputs: [alerts, main]
      - when: {has_fields: [http.response.status_code]}
        outputs: [access]
    default: [main]

The first condition that an event meets decides; an event that meets none goes to `default`. Conditions are those of
`shipper.sdk.conditions`. An output that is not among the input's own `outputs` gets no events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from shipper.plugin import Batch, Condition, Part, Processor, Settings


class Case(Settings, frozen=True):
    """The outputs of events that meet a condition."""

    when: Condition
    """The condition."""
    outputs: tuple[str, ...]
    """Names of outputs; an empty list drops the events."""


class Route(Processor, frozen=True, kw_only=True):
    """Assigns events to outputs by conditions; the first that an event meets decides."""

    routes: Annotated[tuple[Case, ...], msgspec.Meta(min_length=1)]
    """The conditions, in their order."""
    default: tuple[str, ...] | None = None
    """The outputs for events that meet none (default: all of the input; an empty list drops the events)."""

    def process(self, batch: Batch) -> Sequence[Part]:
        """Returns a part for each choice of outputs."""
        chosen: dict[frozenset[str] | None, list[int]] = {}
        for position, outputs in enumerate(self._outputs(batch)):
            chosen.setdefault(outputs, []).append(position)
        if len(chosen) == 1:
            return [Part(batch, outputs) for outputs in chosen]
        return [Part(batch.pick(positions), outputs) for outputs, positions in chosen.items()]

    def _outputs(self, batch: Batch) -> list[frozenset[str] | None]:
        """Returns the outputs of each event."""
        chosen = [None if self.default is None else frozenset(self.default)] * batch.count
        for case in reversed(self.routes):
            outputs = frozenset(case.outputs)
            for position in case.when.meet(batch):
                chosen[position] = outputs
        return chosen

    @property
    def is_slow(self) -> bool:
        """Whether a condition has a regular expression; see `Drop`."""
        return any(case.when.searches() for case in self.routes)

    def named_outputs(self) -> Sequence[tuple[Sequence[str | int], str]]:
        """Returns the outputs of all routes, and the default ones."""
        of_routes = [
            (("routes", number, "outputs", at), output)
            for number, case in enumerate(self.routes)
            for at, output in enumerate(case.outputs)
        ]
        return [*of_routes, *((("default", at), output) for at, output in enumerate(self.default or ()))]
