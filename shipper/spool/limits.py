"""The limits that the active revision sets for the spool, stored with its cut.

After a restart events are delivered, refused and ended under the same limits before a policy arrives. They are numbers
in `meta`; a spool of an earlier version has none, and uses the defaults until then.
"""

from __future__ import annotations

import sqlite3
from typing import Literal, NamedTuple

from shipper.spool import clock
from shipper.spool.dead_letters import Limits
from shipper.spool.schema import get_meta, set_meta

WhenFull = Literal["drop_oldest", "hold"]
OnDeadline = Literal["hold", "dead_letter", "drop", "forward"]
NeverReached = Literal["forward", "hold"]

_WHEN_FULL: tuple[WhenFull, ...] = ("drop_oldest", "hold")
_ON_DEADLINE: tuple[OnDeadline, ...] = ("hold", "dead_letter", "drop", "forward")
_NEVER_REACHED: tuple[NeverReached, ...] = ("forward", "hold")


class SpoolLimits(NamedTuple):
    """`deadline`: how long a barrier may wait before `on_deadline`, in seconds; None: for ever.

    `never_reached`: the action for events of a destination that never answered (see `forward`).
    """

    dead_letters: Limits = Limits()
    deadline: float | None = None
    on_deadline: OnDeadline = "hold"
    never_reached: NeverReached = "forward"


DEFAULTS = SpoolLimits()


def load(db: sqlite3.Connection) -> SpoolLimits:
    """Returns the limits of the active revision."""
    size = _number(db, "letters_max_bytes")
    if size is None:
        return DEFAULTS
    when_full = dict(enumerate(_WHEN_FULL)).get(_number(db, "letters_when_full") or 0, "drop_oldest")
    on_deadline = dict(enumerate(_ON_DEADLINE)).get(_number(db, "on_deadline") or 0, "hold")
    never_reached = dict(enumerate(_NEVER_REACHED)).get(_number(db, "never_reached") or 0, "hold")
    return SpoolLimits(Limits(size, when_full), _deadline(db), on_deadline, never_reached)


def store(db: sqlite3.Connection, limits: SpoolLimits) -> None:
    """Stores the limits of a revision that becomes active, in the transaction of its cut."""
    set_meta(db, "letters_max_bytes", min(limits.dead_letters.max_bytes, clock.LARGEST))
    set_meta(db, "letters_when_full", _WHEN_FULL.index(limits.dead_letters.when_full))
    set_meta(db, "on_deadline", _ON_DEADLINE.index(limits.on_deadline))
    set_meta(db, "never_reached", _NEVER_REACHED.index(limits.never_reached))
    clock.set_deadline(db, limits.deadline)


def _deadline(db: sqlite3.Connection) -> float | None:
    stored = _number(db, "deadline")
    return None if stored is None else stored / clock.MICROSECONDS


def _number(db: sqlite3.Connection, key: str) -> int | None:
    value = get_meta(db, key)
    return value if isinstance(value, int) else None
