"""A full disk is reported until there was room for a while.

    found      full  room  full  room  full  room ─────────────────────
    reported   full ───────────────────────────── QUIET_SECONDS ──> room

The room that the write-ahead log gives back is enough for another batch or two, about once a second. Without this the
state would change as often, nobody could read the log, and an alert that waits for a minute of trouble would not fire.
Only the report waits: events move as soon as they can. Any other trouble ends in the report when it ends. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from shipper.protocol.messages import Unit
from shipper.sdk.codes import Code, Why

QUIET_SECONDS = 5.0
"""How long a disk must have room before the end of the trouble is reported."""
_ILL = ("DEGRADED", "FAILED")

_Trouble = TypeVar("_Trouble", Unit, Why)


class _Past(Generic[_Trouble]):
    """The full disk of one unit, or of the whole."""

    def __init__(self) -> None:
        self._full: _Trouble | None = None
        """The trouble that is reported, if it is a full disk."""
        self._room_since: float | None = None

    def reported(self, trouble: _Trouble | None, now: float, *, may_end: bool = True) -> _Trouble | None:
        """Returns the trouble to report, for the one that was found now; None: the unit is well."""
        if trouble is not None:
            self._full = trouble if trouble.code == Code.DISK_FULL else None
            self._room_since = None
        elif self._full is not None and may_end:
            self._room_since = now if self._room_since is None else self._room_since
            if now - self._room_since >= QUIET_SECONDS:
                self._full = None
        return trouble or self._full


class Calm:
    """Remembers the full disks that were reported, of each unit that still exists and of the process itself."""

    def __init__(self) -> None:
        self._units: dict[str, _Past[Unit]] = {}
        self._failure: _Past[Why] = _Past()

    def failure(self, found: Why | None, now: float) -> Why | None:
        """Returns the failure of the process to report. `now` is in seconds, of a clock that never goes back."""
        return self._failure.reported(found, now)

    def units(self, found: Sequence[Unit], now: float, *, stopping: bool = False) -> list[Unit]:
        """Returns the units to report; one that has ended is reported as it is.

        A stop ends no full disk of an input: nothing waits for room any more, which does not mean that there is room.
        """
        self._units = {unit.id: self._units.get(unit.id) or _Past() for unit in found}
        return [self._unit(unit, now, may_end=not stopping or unit.kind == "output") for unit in found]

    def _unit(self, unit: Unit, now: float, *, may_end: bool) -> Unit:
        trouble = self._units[unit.id].reported(unit if unit.state in _ILL else None, now, may_end=may_end)
        if trouble is None or trouble is unit or unit.state != "HEALTHY":
            return unit
        return msgspec.structs.replace(unit, state=trouble.state, message=trouble.message, code=trouble.code)
