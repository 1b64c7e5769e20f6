"""Decides when everything has been shipped, for `--once`."""

from __future__ import annotations

from collections.abc import Callable, Collection

import trio

from shipper.protocol.messages import Observed
from shipper.sdk.codes import Code
from shipper.sdk.units import events_in_words

_LEAST_SECONDS = 0.01
_WELL = ("", Code.OK, Code.END_OF_INPUT)
"""The codes of an input that has stopped and missed nothing; an older shipper has none."""


class Once:
    """Checks observations of the wanted revision; `waits_for` names the condition that is not yet met.

    No policy is sent before `begin`: the first events may be dead letters before anything else is observed.
    """

    def __init__(self) -> None:
        self.waits_for = "the policy to become active"
        self.failures: list[str] = []
        """At the end: events that were not read, or were refused for ever."""
        self._letters: int | None = None
        self._is_done = False

    @property
    def has_begun(self) -> bool:
        """Whether the dead letters that were there before are known."""
        return self._letters is not None

    def begin(self, observed: Observed) -> None:
        """Takes the first observation, from before the policy."""
        self._letters = observed.dead_letters.events

    def done(self, inputs: Collection[str], observed: Observed) -> bool:
        """Returns whether each of the inputs was read to its end and nothing is queued; true once."""
        assert self._letters is not None
        units = {unit.id: unit for unit in observed.units}
        running = [id for id in inputs if id not in units or units[id].state != "STOPPED"]
        troubled = [f"{unit.id}: {unit.message}" for unit in observed.units if unit.state in ("DEGRADED", "FAILED")]
        parts = [f"{', '.join(sorted(running))} to be read to the end"] if running else []
        parts += [f"{events_in_words(observed.queue.events)} to be delivered"] if observed.queue.events else []
        self.waits_for = "; ".join([*parts, *troubled])
        if parts or self._is_done:
            return False
        self._is_done = True
        ended = [unit for unit in observed.units if unit.kind == "input" and unit.state == "STOPPED"]
        self.failures = [f"{unit.id}: {unit.message}" for unit in ended if unit.code not in _WELL]
        if (refused := observed.dead_letters.events - self._letters) > 0:
            self.failures.append(f"{events_in_words(refused)} refused for good, kept as dead letters")
        return True


async def lasting(seconds: float, condition: Callable[[], bool]) -> None:
    """Returns when a condition has held without a break for `seconds`, checked twenty times; with 0 seconds, when it
    first holds.
    """
    since = trio.current_time()
    while True:
        if not condition():
            since = trio.current_time()
        elif trio.current_time() - since >= seconds:
            return
        await trio.sleep(max(seconds / 20, _LEAST_SECONDS))
