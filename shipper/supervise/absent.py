"""The status of a state directory without a supervisor that answers, for `shipper status`.

It has the form of `standing.status`, with what is stored: there is no health of inputs and outputs, and events wait
because nothing runs.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from shipper.protocol.messages import Draining, DrainsLeftOut, Observed, QueueFigures
from shipper.sdk.codes import Code, Why
from shipper.sdk.errors import OptionError, raised_at
from shipper.spool import stored
from shipper.spool.directory import StateDirectory
from shipper.spool.stored import NotReadable, Owner, Stored
from shipper.status import health
from shipper.status.health import LaneView
from shipper.values import Revision

_UNKNOWN = "the figures are not known"
_UNTRUE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of stored values of the wrong type, where a database is damaged."""
_FILES = ("supervise.lock", "supervise.json", "supervise.key")


def status(directory: Path, silence: str | None) -> dict[str, Any]:
    """Returns the status of a directory whose supervisor gave no answer; `silence` is the reason, if one runs.

    Raises OptionError for a path that is no state directory, or not readable for this user.
    """
    sidecar = _sidecar_of(directory)
    owner = stored.owner(sidecar)
    state, message = _standing(owner, _last_seen(directory, owner), silence)
    if state == "STOPPED" and stored.is_locked(directory / _FILES[0]):
        state, message = "UNKNOWN", "the supervisor runs but does not answer: it is starting or ending"
    observed: dict[str, Any] | None = None
    credentials: list[dict[str, Any]] = []
    troubles: list[dict[str, str]] = []
    try:
        if sidecar.is_dir() and (found := stored.read(sidecar)) is not None:
            observed = _observed(found, state, message, StateDirectory(sidecar).disk_bytes())
            credentials = _credentials(found)
    except NotReadable as error:
        troubles = [{"kind": "state", "cause": _UNKNOWN, "message": str(error)}]
    except _UNTRUE as error:
        troubles = [{"kind": "state", "cause": _UNKNOWN, "message": f"the stored data is damaged: {raised_at(error)}"}]
    return {
        "state": state,
        "message": message,
        "running": state != "STOPPED",
        "troubles": troubles,
        "supervisor": None,
        "sidecar": None,
        "wanted": None,
        "observed": observed,
        "credentials": credentials,
    }


def _sidecar_of(directory: Path) -> Path:
    """Returns the sidecar's state directory: below that of its supervisor, or this directory itself."""
    try:
        if any((directory / name).exists() for name in _FILES):
            return directory / "sidecar"
        if stored.is_state(directory):
            return directory
    except NotADirectoryError:
        raise OptionError(f"--state {directory}: not a directory") from None
    except FileNotFoundError:
        raise OptionError(f"--state {directory}: there is no such directory") from None
    except OSError as error:
        raise OptionError(f"--state {directory}: {error.strerror}") from None
    raise OptionError(f"--state {directory}: this is no state directory: neither a supervisor nor a shipper made it")


def _standing(owner: Owner, at: float | None, silence: str | None) -> tuple[str, str]:
    since = "" if at is None else f" since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}"
    if silence is not None:
        return "FAILED", silence
    if owner.lives:
        return "UNKNOWN", f"no supervisor answers; the sidecar (pid {owner.pid}) runs, and answers its supervisor alone"
    if owner.pid is None:
        return "STOPPED", f"not running{since}"
    return "STOPPED", f"not running: its process (pid {owner.pid}) was killed or crashed, and wrote last{since[6:]}"


def _last_seen(directory: Path, owner: Owner) -> float | None:
    if owner.at is not None:
        return owner.at
    try:
        return (directory / "supervise.json").stat().st_mtime
    except OSError:
        return None


def _observed(found: Stored, state: str, message: str, disk_bytes: int) -> dict[str, Any]:
    """Returns an `observed` of the stored data; its limit is 0 bytes, since the policy is sealed."""
    total, now = found.figures.total(), time.time()
    oldest = max(0.0, now - min(found.first.values(), default=now))
    queue = QueueFigures(total.events, total.bytes, 0, round(oldest, 3), disk_bytes)
    draining, left_out = _draining(found, now, state == "STOPPED")
    observed = Observed(
        state="STOPPED",
        message=message,
        code=Code.NOT_RUNNING if state == "STOPPED" else Code.UNKNOWN,
        revisions=found.revisions,
        draining=draining,
        draining_left_out=left_out,
        units=(),
        queue=queue,
        dead_letters=found.letters,
        credentials_in_use=found.credentials,
        credentials_wanted=(),
    )
    return {**msgspec.to_builtins(observed), "state": state}


def _draining(found: Stored, now: float, stopped: bool) -> tuple[list[Draining], DrainsLeftOut]:
    why = Why("nothing runs", Code.NOT_RUNNING) if stopped else Why("not known", Code.UNKNOWN)
    lanes = {
        id: LaneView(id, key.output, key.type, active, why.problem, key.credentials, key.destination, code=why.code)
        for id, key, active in found.lanes
    }

    def oldest_of(pairs: Collection[tuple[Revision, int]]) -> dict[Revision, float]:
        first: dict[Revision, float] = {}
        for revision, lane in pairs:
            at = found.first.get((lane, revision), now)
            first[revision] = min(first.get(revision, at), at)
        return first

    return health.drains(lanes, found.figures, found.barriers, oldest_of, now)


def _credentials(found: Stored) -> list[dict[str, Any]]:
    """Returns credentials by their ids; their names and files are sealed."""
    active = {id for lane in found.lanes if lane.active for id in lane.key.credentials}
    retired = {id for lane in found.lanes if not lane.active for id in lane.key.credentials} - active
    unknown: dict[str, Any] = {"name": "", "sources": [], "units": [], "released": False}
    return [{"id": id, **unknown, "current": id not in retired} for id in found.credentials]
