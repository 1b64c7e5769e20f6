"""Troubles that come and go are reported as one: a unit that is well for a moment only stays ill in the report.

    found      ill  well ill  well ill  well ─────────────────────
    reported   ill  well ill ──────────────── QUIET_SECONDS ──> well

A trouble is reported at once, and so is its end. But where a trouble has come back within RECENT_SECONDS of that end,
the next end is reported once the trouble has been absent for QUIET_SECONDS. A destination may answer every other
request with 503, and a health that changes with each of them is read by nobody. The first end of a full disk waits too:
the room that the write-ahead log gives back is enough for another batch or two, about once a second.

Only the report is calm: events move as soon as they can. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from shipper.protocol.messages import Unit
from shipper.sdk.codes import Code, Why

QUIET_SECONDS = 5.0
"""How long a trouble that comes back must be absent before its end is reported."""
RECENT_SECONDS = 60.0
"""A trouble that begins so soon after the reported end of the last one counts as one that comes back."""
_ILL = ("DEGRADED", "FAILED")

_Trouble = TypeVar("_Trouble", Unit, Why)


class _Past(Generic[_Trouble]):
    """The troubles of one unit, or of the whole."""

    def __init__(self) -> None:
        self._last: _Trouble | None = None
        """The trouble that is reported."""
        self._comes_back = False
        self._absent_since: float | None = None
        self._ended_at: float | None = None
        """When the end of the last trouble was reported."""

    def reported(self, trouble: _Trouble | None, now: float, *, may_end: bool = True) -> _Trouble | None:
        """Returns the trouble to report, for the one that was found now; None: the unit is well."""
        if trouble is not None:
            return self._begin(trouble, now)
        if self._last is None or not may_end:
            return self._last
        if self._absent_since is None:
            self._absent_since = now
        waits = self._comes_back or self._last.code == Code.DISK_FULL
        if waits and now - self._absent_since < QUIET_SECONDS:
            return self._last
        self._last, self._ended_at = None, now
        return None

    def _begin(self, trouble: _Trouble, now: float) -> _Trouble:
        if self._last is None:
            self._comes_back = self._ended_at is not None and now - self._ended_at < RECENT_SECONDS
        self._last, self._absent_since = trouble, None
        return trouble


class Calm:
    """Remembers the troubles that were reported, of each unit that still exists and of the process itself."""

    def __init__(self) -> None:
        self._units: dict[str, _Past[Unit]] = {}
        self._failure: _Past[Why] = _Past()

    def failure(self, found: Why | None, now: float) -> Why | None:
        """Returns the failure of the process to report. `now` is in seconds, of a clock that never goes back."""
        return self._failure.reported(found, now)

    def units(self, found: Sequence[Unit], now: float, *, stopping: bool = False) -> list[Unit]:
        """Returns the units to report; one that has ended is reported as it is.

        A stop ends no trouble of an input: nothing waits for room any more, which does not mean that there is room.
        """
        self._units = {unit.id: self._units.get(unit.id) or _Past() for unit in found}
        return [self._unit(unit, now, may_end=not stopping or unit.kind == "output") for unit in found]

    def _unit(self, unit: Unit, now: float, *, may_end: bool) -> Unit:
        trouble = self._units[unit.id].reported(unit if unit.state in _ILL else None, now, may_end=may_end)
        if trouble is None or trouble is unit or unit.state != "HEALTHY":
            return unit
        return msgspec.structs.replace(unit, state=trouble.state, message=trouble.message, code=trouble.code)
