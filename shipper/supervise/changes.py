"""What people are told of the sidecar's units: those whose health changed, once each.

A count that goes on in a message is no news. A unit may miss a secret; if we hold all that are wanted, the observation
and our answer crossed in the pipes, and the unit is told of as it is once the secret has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shipper.protocol.messages import Unit
from shipper.sdk.codes import Code


class Changes:
    """Remembers the units as they were told."""

    def __init__(self) -> None:
        self._told: dict[str, Unit] = {}

    def of(self, units: Iterable[Unit], *, crossed: bool) -> Iterator[dict[str, str]]:
        """What is to be told of an observation; `crossed`: every secret that it misses is on its way."""
        before, self._told = self._told, {}
        for unit in units:
            known = before.pop(unit.id, None)
            arrives = crossed and unit.code == Code.CREDENTIAL_MISSING
            if arrives or (known is None and unit.state in ("STARTING", "CONFIGURING")):
                self._told |= {unit.id: known} if known else {}
                continue
            self._told[unit.id] = unit
            if known is None or _essence(known) != _essence(unit):
                yield _fields(unit, unit.state, unit.message, unit.code)
        for unit in before.values():
            yield _fields(unit, "removed", "", "")

    def forget(self) -> None:
        """The sidecar has ended."""
        self._told.clear()


def _fields(unit: Unit, state: str, message: str, code: str) -> dict[str, str]:
    return {"unit": unit.id, "type": unit.type, "state": state, "message": message, "code": code}


def _essence(unit: Unit) -> tuple[str, str, str]:
    """What makes it worth telling: people want to read other words too, but not other numbers."""
    return unit.state, unit.code, re.sub(r"\d+", "#", unit.message)
