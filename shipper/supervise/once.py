"""When everything that is there has been shipped: for `--once`."""

from __future__ import annotations

from collections.abc import Collection

from shipper.messages import Observed


class Once:
    """Looks at observations of the wanted revision; `waits_for` says in words what is still missing."""

    def __init__(self) -> None:
        self.waits_for = "the policy to become active"

    def done(self, inputs: Collection[str], observed: Observed) -> bool:
        """Whether each of the inputs was read to its end and nothing is queued."""
        units = {unit.id: unit for unit in observed.units}
        running = [id for id in inputs if id not in units or units[id].state != "STOPPED"]
        troubled = [f"{unit.id}: {unit.message}" for unit in observed.units if unit.state in ("DEGRADED", "FAILED")]
        parts = [f"{', '.join(sorted(running))} to be read to the end"] if running else []
        parts += [f"{observed.queue.events} events to be delivered"] if observed.queue.events else []
        self.waits_for = "; ".join([*parts, *troubled])
        return not parts
