"""Reports the sidecar's units whose health has changed, once each.

A new count in a message is no change. If a unit misses a secret, and the supervisor holds all wanted ones, the
observation and the supervisor's message crossed in the pipes; then the unit is reported once the secret has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shipper.protocol.messages import Unit
from shipper.sdk.codes import Code


class Changes:
    """Remembers the units as they were reported."""

    def __init__(self) -> None:
        self._reported: dict[str, Unit] = {}

    def of(self, units: Iterable[Unit], *, crossed: bool) -> Iterator[dict[str, str]]:
        """Yields the changes of an observation; `crossed`: every secret that it misses is already sent."""
        before, self._reported = self._reported, {}
        for unit in units:
            known = before.pop(unit.id, None)
            arrives = crossed and unit.code == Code.CREDENTIAL_MISSING
            if arrives or (known is None and unit.state in ("STARTING", "CONFIGURING")):
                self._reported |= {unit.id: known} if known else {}
                continue
            self._reported[unit.id] = unit
            if known is None or _essence(known) != _essence(unit):
                yield _fields(unit, unit.state, unit.message, unit.code)
        for unit in before.values():
            yield _fields(unit, "removed", "", "")

    def forget(self) -> None:
        """Forgets all units, when the sidecar has ended."""
        self._reported.clear()


def _fields(unit: Unit, state: str, message: str, code: str) -> dict[str, str]:
    return {"unit": unit.id, "type": unit.type, "state": state, "message": message, "code": code}


def _essence(unit: Unit) -> tuple[str, str, str]:
    """Returns the parts whose change is reported: the state, and the message without its numbers."""
    return unit.state, unit.code, re.sub(r"\d+", "#", unit.message)
