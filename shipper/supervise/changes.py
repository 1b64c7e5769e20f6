"""What people are told of the sidecar's units: those whose health changed, once each.

A count that goes on in a message is no news. A unit that names a credential misses its secret; if we hold that, the
observation and our answer crossed in the pipes, and the unit is told of as it is once the secret has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from shipper.protocol.messages import Unit


class Changes:
    """Remembers the units as they were told."""

    def __init__(self) -> None:
        self._told: dict[str, Unit] = {}

    def of(self, units: Iterable[Unit], held: Collection[str]) -> Iterator[dict[str, str]]:
        """What is to be told of an observation; `held` are the credentials that are sent as soon as one is wanted."""
        before, self._told = self._told, {}
        for unit in units:
            known = before.pop(unit.id, None)
            crossed = any(id in unit.message for id in held)
            if crossed or (known is None and unit.state in ("STARTING", "CONFIGURING")):
                self._told |= {unit.id: known} if known else {}
                continue
            self._told[unit.id] = unit
            if known is None or (known.state, _shape(known.message)) != (unit.state, _shape(unit.message)):
                yield _fields(unit, unit.state, unit.message)
        for unit in before.values():
            yield _fields(unit, "removed", "")

    def forget(self) -> None:
        """The sidecar has ended."""
        self._told.clear()


def _fields(unit: Unit, state: str, message: str) -> dict[str, str]:
    return {"unit": unit.id, "type": unit.type, "state": state, "message": message}


def _shape(message: str) -> str:
    """A message without its numbers."""
    return re.sub(r"\d+", "#", message)
