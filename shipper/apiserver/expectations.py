"""Waits until own writes were seen, so that no decision is made on a state that is older than they are. Pure.

After a write that returned version r, what is known of the object is old until the watch has come to r. A decision then
would do again what was done, or undo it. So decisions wait:

    event ──changed──> due ──┬─ no own write is unseen ───────────────────> GO
                             ├─ one is, for less than SECONDS ────────────> WAIT  (the next event decides, or the time)
                             └─ for SECONDS since the first of them ──────> READ ──read──> GO

- Seen is all up to the newest version of an event, a bookmark or a list: one watch of one kind is in order. So it does
  not matter whether the event of the write itself comes: it is skipped by a list, or merged with a later change, and
  none follows a write that has changed nothing.
- The time runs from the first write that is not seen, and does not begin anew with further writes: an object that is
  written at each event is decided on, too.
- At the end of the time a read of the object by quorum decides, not the hope that it is current.
- A deletion waits for nothing.
- An object that changes while a decision is being made is due again (`decided` names the state that the decision saw).
- The event of a write often comes before the answer to it.
- An opaque version was seen if the watch had it for this object; one that it skips waits for the read.

Nothing is kept over a restart: the first list of a watch is a quorum read, and has every own write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from shipper.apiserver.versions import compare, is_covered, is_number, newest

SECONDS = 5.0
"""The longest wait for an own write, after which the object is read."""
_OPAQUE_KEPT = 8

Key = TypeVar("Key", bound=Hashable)


class Verdict(Enum):
    """What is to be done about an object that is due."""

    GO = "decide now"
    WAIT = "an own write was not seen yet"
    READ = "an own write was not seen for too long: read the object by quorum, and tell `read`"


@dataclass(slots=True)
class _State:
    version: str = ""
    """The newest one of this object that was seen or read."""
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=_OPAQUE_KEPT))
    """Opaque ones that were seen."""
    expected: str = ""
    """That of the newest own write that was not seen."""
    since: float = 0.0
    """When the first write that was not seen returned."""
    is_due: bool = False
    is_deleted: bool = False
    is_overdue: bool = False


class Expectations(Generic[Key]):
    """Of the objects that one reflector follows; a key is best a uid. All times are seconds of one clock."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.overdue = 0
        """How often an own write was not seen in time."""
        self._seconds = seconds
        self._states: dict[Key, _State] = {}
        self._seen = ""

    # -- what happens --------------------------------------------------------------------------------------------------

    def changed(self, key: Key, version: str, *, deleted: bool = False) -> None:
        """Notes an event of an object: a decision is due."""
        state = self._states.setdefault(key, _State())
        state.version = newest(state.version, version)
        state.is_due, state.is_deleted = True, deleted
        if not is_number(version):
            state.recent.append(version)
        self.caught_up(version)

    def caught_up(self, version: str) -> None:
        """Notes that all changes up to a version were seen, as a bookmark or a list has it."""
        if is_number(version):
            self._seen = newest(self._seen, version)
        for state in self._states.values():
            if state.expected and self._is_seen(state, state.expected):
                _meet(state)

    def wrote(self, key: Key, version: str, now: float) -> None:
        """Notes that an own write of an object has returned, with the object's version after it."""
        state = self._states.setdefault(key, _State())
        if self._is_seen(state, version) or state.is_deleted:
            return
        if not state.expected:
            state.since = now
        state.expected = newest(state.expected, version)

    def read(self, key: Key, version: str | None, now: float) -> None:
        """Notes what a quorum read has found, which began after READ was said; None: the object is gone."""
        state = self._states.setdefault(key, _State())
        if version is None:
            state.is_due = state.is_deleted = True
            _meet(state)
            return
        state.version = newest(state.version, version)
        state.is_due = True
        if compare(version, state.expected) == -1:  # of a write during the read
            state.since, state.is_overdue = now, False
        else:
            _meet(state)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def verdict(self, key: Key, now: float) -> Verdict | None:
        """Returns what is to be done about an object; None if it is not due."""
        state = self._states.get(key)
        if state is None or not state.is_due:
            return None
        if state.is_deleted or not state.expected:
            return Verdict.GO
        if now < state.since + self._seconds:
            return Verdict.WAIT
        if not state.is_overdue:
            state.is_overdue = True
            self.overdue += 1
        return Verdict.READ

    def due(self, now: float) -> Iterator[tuple[Key, Verdict]]:
        """Yields the objects that can be decided on or have to be read; what it yields may be told at once."""
        for key in [*self._states]:
            verdict = self.verdict(key, now)
            if verdict in (Verdict.GO, Verdict.READ):
                yield key, verdict

    def deadline(self) -> float | None:
        """Returns when the next object that waits has to be read; None if none waits."""
        waiting = (one for one in self._states.values() if one.is_due and one.expected and not one.is_deleted)
        return min((one.since + self._seconds for one in waiting), default=None)

    def decided(self, key: Key, version: str) -> None:
        """Notes that a decision was made on the object as it was at `version`; a newer one is due still."""
        state = self._states.get(key)
        if state is None:
            return
        if state.is_deleted:
            del self._states[key]
            return
        state.is_due = not (is_covered(state.version, version) or state.version == version)
        is_ahead = state.version and not is_covered(state.version, self._seen)  # it was read; older events will come
        if not state.is_due and not state.expected and not state.recent and not is_ahead:
            del self._states[key]

    def _is_seen(self, state: _State, version: str) -> bool:
        if is_number(version):
            return is_covered(version, self._seen) or is_covered(version, state.version)
        return version in state.recent or version == state.version


def _meet(state: _State) -> None:
    state.expected, state.is_overdue = "", False
